"""Builds `_hot.c` where there is a C compiler; without one, the distribution is pure Python.

Either way the installation succeeds, and does the same: Python is slower. An editable installation
gets the module beside its source.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "gpuprof_timing._hot"
SOURCE = Path("src/gpuprof_timing/_hot.c")


class Compiled(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled module, if it can be had."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and tag the wheel for this Python and platform; or say why it is pure."""
        self._directory = tempfile.mkdtemp(prefix="gpuprof-timing-")
        source = Path(self.root, SOURCE)
        beside = source.with_name("_hot" + str(sysconfig.get_config_var("EXT_SUFFIX")))
        try:
            built = self._build(source)
        except (Exception, SystemExit) as error:  # no compiler, a broken one, no Python.h
            self.app.display_warning(f"pure Python: {type(error).__name__}: {error}")
            if version == "editable":
                beside.unlink(missing_ok=True)  # of an earlier source
            return
        build_data.update(pure_python=False, infer_tag=True)
        if version == "editable":
            # renamed, since a process may have the earlier one in its memory
            os.replace(shutil.copy(built, f"{beside}.tmp"), beside)
        else:
            build_data["force_include"][str(built)] = f"gpuprof_timing/{built.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def _build(self, source: Path) -> Path:
        if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
            raise RuntimeError("the C is for CPython with its global lock")
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext

        extension = Extension(NAME, [str(source)], extra_compile_args=["-O3", "-g0", "-fwrapv"])
        command = build_ext(Distribution({"ext_modules": [extension]}))
        command.build_lib = command.build_temp = self._directory
        command.ensure_finalized()
        command.run()
        return Path(command.get_ext_fullpath(NAME))
