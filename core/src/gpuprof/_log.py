"""The logger `gpuprof`.

Where the program has set up no logging, it speaks on stderr, in Sample Factory's form.
"""

from __future__ import annotations

import logging
import sys

FORMAT = "[%(asctime)s][%(process)d] %(message)s"


def log() -> logging.Logger:
    """The logger, which is sure to be heard: called only when there is something to say."""
    logger = logging.getLogger("gpuprof")
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(FORMAT))
        logger.addHandler(handler)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
    return logger
