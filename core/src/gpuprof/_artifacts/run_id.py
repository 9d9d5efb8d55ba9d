"""The id of a run: a new one, or the one that the user gave in `GPUPROF_RUN`."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping

from gpuprof.errors import ConfigError

RUN_VARIABLE = "GPUPROF_RUN"
_VALID = r"[A-Za-z0-9][\w.@+-]*"
_LONGEST = 128
"""Most characters of an id. It is a name in paths, which file systems limit to 255 bytes."""


def given_run_id(environ: Mapping[str, str]) -> str | None:
    """The id that the user gave; ``None`` if the variable is not set."""
    text = environ.get(RUN_VARIABLE)
    if text is None:
        return None
    if len(text) > _LONGEST or not re.fullmatch(_VALID, text, re.ASCII):
        excerpt = text if len(text) <= _LONGEST else f"{text[:20]}…"
        valid = f"letters, digits and . _ @ + -, the first a letter or digit, at most {_LONGEST}"
        raise ConfigError(f"{RUN_VARIABLE}: {excerpt!r} is not valid; expected {valid}")
    return text


def new_run_id(began: time.struct_time | None = None, suffix: str = "") -> str:
    """A new id: the UTC time and six hex digits."""
    moment = time.strftime("%Y%m%d-%H%M%S", began or time.gmtime())
    return f"{moment}-{suffix or secrets.token_hex(3)}"
