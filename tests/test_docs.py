"""The docs say what the code does: every key is documented, every example runs, nothing speaks of
how it was made.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from gpuprof._config.schema import KEYS, Config, Selection
from gpuprof.backend import Tool, Window, Worker, hookspecs
from gpuprof_nsight._command.options import NsightOptions
from gpuprof_rocprof_sys._environment import environment
from gpuprof_rocprof_sys._options import RocprofSysOptions

ROOT = Path(__file__).parents[1]


def test_the_page_of_keys_is_up_to_date() -> None:
    """Every key of the schema and of our backends, as it is declared."""
    done = subprocess.run(
        [sys.executable, "scripts/keys_page.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)


@pytest.mark.parametrize(
    "keys",
    [
        {f"{name}" for name in KEYS},
        {f"nsight.{field.name}" for field in attrs.fields(NsightOptions)},
        {f"rocprof_sys.{field.name}" for field in attrs.fields(RocprofSysOptions)},
    ],
)
def test_every_key_is_documented(keys: set[str]) -> None:
    """A key that is missing on the page is missing, however the page is made."""
    text = (ROOT / "docs" / "keys.md").read_text()
    assert set() == keys - set(re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE))


@pytest.mark.parametrize("model", [Selection, Config, NsightOptions, RocprofSysOptions])
def test_every_key_has_help(model: type) -> None:
    """What a key does is said where it is declared."""
    internal = {"defaults", "section", "flat", "source"}
    assert [] == [
        field.name
        for field in attrs.fields(model)
        if field.name not in internal and not field.metadata.get("help")
    ]


def test_every_hook_says_what_it_is_for() -> None:
    """The contract explains itself."""
    assert [] == [name for name in hookspecs.__all__ if not getattr(hookspecs, name).__doc__]


def test_every_variable_of_rocprof_sys_is_documented() -> None:
    """What is set for a worker, by any release, and why, stands in the table of its page."""
    page = (ROOT / "docs" / "rocprof_sys.md").read_text()
    worker = Worker("run", "A", 0, "node", "1", "/out", (Window(1, 3, 4),))
    names = {
        name
        for version in ("0.1.0", "1.6.0")
        for name in environment(worker, Tool("t", version), RocprofSysOptions())
    }
    assert names == set(
        re.findall(r"`(ROCPROFSYS_\w+)`", page.split("## What gpuprof sets")[1].split("\n## ")[0])
    )


def test_links_between_pages_lead_somewhere() -> None:
    """A link to a file of ours finds it."""
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *ROOT.glob("examples/*/*.md"),
        *ROOT.glob("backends/*/*.md"),
    ]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    ]
    assert [] == [(str(page), link) for page, link in links if not (page.parent / link).exists()]


def test_the_readmes_example_compiles() -> None:
    """Python that a reader would paste is Python."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        compile(block, "README.md", "exec")


def test_shell_scripts_parse() -> None:
    """Scripts that CI and set-up run are at least shell."""
    for script in [*(ROOT / "scripts").glob("*.sh"), ROOT / ".ci" / "run"]:
        subprocess.run(["sh", "-n", str(script)], check=True)


@pytest.mark.parametrize("script", ["api_page", "options_page"])
def test_what_is_written_by_a_script_is_up_to_date(script: str) -> None:
    """Every public name with the first sentence of its docstring, and every option of AMD's
    launchers.
    """
    command = [sys.executable, f"scripts/{script}.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)
