"""The section `rocprof_sys` of a configuration."""

from __future__ import annotations

from typing import Union

import attrs
from gpuprof import option
from gpuprof.errors import ConfigError

Value = Union[str, bool, int, float, None]


@attrs.frozen
class RocprofSysOptions:
    """How rocprof-sys-python is run."""

    args: dict[str, Value] = option("options of the launcher; null: one without a value", factory=dict)
    env: dict[str, str] = option("environment variables for profiled workers; they win over gpuprof's", factory=dict)
    executable: str = option("rocprof-sys-python: a name on PATH, or a path", default="rocprof-sys-python")
    interpreter_after_dashes: bool = option(
        "render `-- <python>`, for wrappers that accept it; the real launcher does not", default=False
    )

    def __attrs_post_init__(self) -> None:
        problems = [
            f"args.{key}: {key!r} is not valid; expected an option's name without dashes and without ="
            for key in self.args
            if not key or key.startswith("-") or "=" in key or any(letter.isspace() for letter in key)
        ]
        if problems:
            raise ConfigError(problems)
