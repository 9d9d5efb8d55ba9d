"""Builds `compiled.c` where there are a C compiler and NVTX's header; else, all is pure Python.

Either way the installation succeeds, and does the same: Python is slower. An editable installation
gets the module beside its source. ``GPUPROF_NSIGHT_PURE=1`` leaves the C out.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "gpuprof_nsight._nvtx.compiled"
SOURCE = Path("src/gpuprof_nsight/_nvtx/compiled.c")
HEADER = "nvtx3/nvToolsExt.h"
PACKAGE = "nvidia-nvtx-cu12>=12.3"
"""PyPI's package of the header. It has no file for other machines, and none without glibc."""
MACHINES = ("x86_64", "aarch64")


class Compiled(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled module, if it can be had."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """The package of the header, where it is of use: asked by whoever builds in isolation."""
        has_file = platform.machine() in MACHINES and platform.libc_ver()[0] == "glibc"
        wanted = has_file and not _forced() and _compiler() and not _header()
        return [PACKAGE] if wanted else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build, and tag the wheel for this Python and platform; or say why it is pure."""
        self._directory = tempfile.mkdtemp(prefix="gpuprof-nsight-")
        source = Path(self.root, SOURCE)
        beside = source.with_name("compiled" + str(sysconfig.get_config_var("EXT_SUFFIX")))
        try:
            built = self._build(source)
        except (Exception, SystemExit) as error:  # no compiler, a broken one, no header
            self.app.display_warning(f"pure Python: {type(error).__name__}: {error}")
            if version == "editable":
                beside.unlink(missing_ok=True)  # of an earlier source
            return
        build_data.update(pure_python=False, infer_tag=True)
        if version == "editable":
            # renamed, since a process may have the earlier one in its memory
            os.replace(shutil.copy(built, f"{beside}.tmp"), beside)
        else:
            build_data["force_include"][str(built)] = f"gpuprof_nsight/_nvtx/{built.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def _build(self, source: Path) -> Path:
        if _forced():
            raise RuntimeError("GPUPROF_NSIGHT_PURE=1")
        if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
            raise RuntimeError("the C is for CPython with its global lock")
        header = _header()
        if header is None:
            raise RuntimeError(f"no {HEADER}, which PyPI's {PACKAGE} has")
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext

        extension = Extension(
            NAME,
            [str(source)],
            include_dirs=[str(header)],
            libraries=["dl"],
            extra_compile_args=["-O3", "-g0", "-fwrapv"],
        )
        command = build_ext(Distribution({"ext_modules": [extension]}))
        command.build_lib = command.build_temp = self._directory
        command.ensure_finalized()
        command.run()
        return Path(command.get_ext_fullpath(NAME))


def _forced() -> bool:
    return os.environ.get("GPUPROF_NSIGHT_PURE") == "1"


def _compiler() -> str | None:
    command = os.environ.get("CC") or str(sysconfig.get_config_var("CC") or "cc")
    return shutil.which(command.split()[0])


def _header() -> Path | None:
    """The directory of NVTX's header: PyPI's, where this builds or is installed; or CUDA's."""
    packages = [*sys.path, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    cuda = [os.environ.get("CUDA_HOME") or "/usr/local/cuda", "/usr"]
    places = [Path(each, "nvidia/nvtx/include") for each in packages if each]
    places += [Path(each, "include") for each in cuda]
    return next((place for place in places if Path(place, HEADER).is_file()), None)
