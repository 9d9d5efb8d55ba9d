"""The logger `gpuprof`; writes to stderr unless the program has set up logging."""

from __future__ import annotations

import logging
import sys

FORMAT = "[%(asctime)s][%(process)d] %(message)s"


def log() -> logging.Logger:
    """The logger, given a handler on first use if there is none."""
    logger = logging.getLogger("gpuprof")
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(FORMAT))
        logger.addHandler(handler)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
    return logger
