"""Checks of the packaging: gpuprof finds backends only by entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from gpuprof.backend import loading
from gpuprof.backend.boundary import BACKENDS
from gpuprof.errors import PluginError

from gpuprof_testing._case import Case, fail


class DiscoveryChecks(Case):
    """Users get the backend under test."""

    def test_its_entry_point_leads_to_it(self) -> None:
        """The entry point of this name leads to the class under test."""
        entry = (
            f'[project.entry-points."{BACKENDS}"]  {self.name} = '
            f'"{self.backend.__module__}:{self.backend.__qualname__}"'
        )
        try:
            target = loading.load_backend(self.name, "name")
        except PluginError as error:
            fail(
                str(error), f"install the distribution, and declare in its pyproject.toml: {entry}"
            )
        if target is not self.backend:
            fail(
                f"the entry point {self.name!r} leads to {target!r}, not to {self.backend!r}",
                f"declare: {entry}",
            )

    def test_an_installed_wheel_is_found(self, tmp_path: Path) -> None:
        """A fresh interpreter with the project's wheel lists the backend without an error."""
        if self.project is None:
            pytest.skip("no project to build a wheel from: set `project`")
        command = [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            str(tmp_path),
        ]
        built = subprocess.run(
            [*command, str(self.project)], capture_output=True, text=True, check=False
        )
        if built.returncode:
            fail(
                f"building a wheel of {self.project} failed: {built.stderr.strip()}",
                "fix the project, or install its build backend here",
            )
        site = tmp_path / "site"
        for wheel in tmp_path.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(site)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)]),
        }
        listing = [sys.executable, "-m", "gpuprof", "backends", "--json"]
        process = subprocess.run(
            listing, env=environment, capture_output=True, text=True, check=True
        )
        plugins = [plugin for plugin in json.loads(process.stdout) if plugin["name"] == self.name]
        if not plugins:
            fail(
                f"the wheel has no entry point {self.name!r} in the group {BACKENDS!r}",
                "declare the entry point in pyproject.toml",
            )
        if plugins[0]["error"] is not None:
            fail(
                f"the wheel's backend is broken: {plugins[0]['error']}",
                "put all modules into the wheel, and give every option a default",
            )
