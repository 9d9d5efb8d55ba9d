"""The logger `gpuprof`, which writes to stderr unless the program has set up logging.

Its records are escaped for a terminal, whichever handler formats them, because names and texts in
them may come from other nodes and from tools.
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

from gpuprof._terminal import printable

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
    logger.addFilter(_escape)  # only once
    return logger


def _escape(record: logging.LogRecord) -> bool:
    with suppress(Exception):  # logging itself reports a record that cannot be formatted
        message = record.getMessage()
        safe = printable(message)
        if safe != message:
            record.msg, record.args = safe, ()
    return True
