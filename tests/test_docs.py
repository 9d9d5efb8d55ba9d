"""The docs say what the code does: every key is documented, every name is public."""

from __future__ import annotations

import ast
import doctest
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import attrs
import pytest
from gpuprof._artifacts.reasons import Reason
from gpuprof._config.schema import KEYS, RECORDING_KEYS, Config, Recording, Selection
from gpuprof.backend import Tool, Window, Worker, hookspecs
from gpuprof_nsight._command.options import NsightOptions
from gpuprof_rocprof_sys._environment import environment
from gpuprof_rocprof_sys._options import RocprofSysOptions

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OURS = (
    "gpuprof", "gpuprof_timing", "gpuprof_nsight", "gpuprof_rocprof_sys", "gpuprof_testing",
    "gpuprof_verl", "gpuprof_rlinf", "gpuprof_nemo_rl", "gpuprof_sample_factory",
)  # fmt: skip


@pytest.mark.parametrize(
    "keys",
    [
        {f"{name}" for name in KEYS},
        {f"groups.NAME.{name}" for name in RECORDING_KEYS},
        {f"nsight.{field.name}" for field in attrs.fields(NsightOptions)},
        {f"rocprof_sys.{field.name}" for field in attrs.fields(RocprofSysOptions)},
    ],
)
def test_every_key_is_documented(keys: set[str]) -> None:
    """A key that is missing on the page is missing, however the page is made."""
    text = (ROOT / "docs" / "keys.md").read_text()
    assert set() == keys - set(re.findall(r"^\| `([\w.]+)` \|", text, re.MULTILINE))


@pytest.mark.parametrize("model", [Selection, Recording, Config, NsightOptions, RocprofSysOptions])
def test_every_key_has_help(model: type) -> None:
    """What a key does is said where it is declared."""
    internal = {"defaults", "section", "sections", "flat", "source", "_patterns"}
    assert [] == [
        field.name
        for field in attrs.fields(model)
        if field.name not in internal and not field.metadata.get("help")
    ]


@pytest.mark.parametrize("reason", [each for each in Reason if each.value.strip("{detail}")])
def test_every_reason_of_a_receipt_has_its_remedy(reason: Reason) -> None:
    """Whoever sees it in a receipt finds it on the page, word by word."""
    page = (ROOT / "docs" / "missing-report.md").read_text()
    beginning, _, end = reason.value.partition("{detail}")
    assert beginning.split(":")[0] in page
    assert end in page


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


def public_names() -> dict[str, set[str]]:
    """The names of each module in docs/api.md."""
    sections = re.split(r"^## `([\w.]+)`$", (ROOT / "docs" / "api.md").read_text(), flags=re.M)[1:]
    return {
        module: set(re.findall(r"^\| `(\w+)", rows, re.M))
        for module, rows in zip(sections[::2], sections[1::2], strict=True)
    }


def names_in(source: str) -> set[str]:
    """Our modules' names that Python imports, or takes from a module, in full."""
    found, modules = set(), {}
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            modules.update({alias.asname or alias.name: alias.name for alias in node.names})
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found |= (
                {f"{modules[node.value.id]}.{node.attr}"} if node.value.id in modules else set()
            )
    return {name for name in found if name.split(".")[0] in OURS}


def not_public(source: str) -> list[str]:
    """The names in Python that are private or missing in docs/api.md."""
    public = public_names()
    known = {*public, *(f"{module}.{name}" for module in public for name in public[module])}
    return sorted(names_in(source) - known)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_name_in_the_docs_is_public(page: Path) -> None:
    """Readers paste what they see: every imported name has its entry in docs/api.md."""
    blocks = re.findall(r"^ *```(\w+)\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE)
    sources = [
        "".join(example.source for example in doctest.DocTestParser().get_examples(body))
        if language == "pycon"
        else textwrap.dedent(body)
        for language, body in blocks
        if language in ("python", "pycon")
    ]
    assert [] == [name for source in sources for name in not_public(source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from gpuprof._doctor.examine import examine", ["gpuprof._doctor.examine.examine"]),
        ("from gpuprof_verl.settings import DEFAULTS", ["gpuprof_verl.settings.DEFAULTS"]),
        ("import gpuprof\ngpuprof.missing()", ["gpuprof.missing"]),
        ("import gpuprof._cli", ["gpuprof._cli"]),
        ("from gpuprof.ray import Profiler\nimport gpuprof\ngpuprof.step(1)", []),
    ],
)
def test_a_private_name_in_the_docs_is_found(source: str, expected: list[str]) -> None:
    """Underscores, names without an entry, and attributes of an imported module."""
    assert expected == not_public(source)


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


@pytest.mark.parametrize(
    "script", ["api_page", "cli_page", "json_page", "keys_page", "options_page"]
)
def test_what_is_written_by_a_script_is_up_to_date(script: str) -> None:
    """Public names, keys, help and JSON of commands, and the options of AMD's launchers."""
    command = [sys.executable, f"scripts/{script}.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)
