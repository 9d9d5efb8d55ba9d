"""Who may import what, read from the source and not from what happens to be installed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from support.import_reader import (
    CHECKOUT,
    MODULES,
    ROOTS,
    Import,
    Module,
    cycle,
    graph_of,
    imports,
    modules_of,
)

ABOVE_CORE = sorted(set(ROOTS) - {"gpuprof", "gpuprof_timing"})
"""The backends, the plugins of frameworks and the conformance kit."""
FRAMEWORKS = {root for root, source in ROOTS.items() if "frameworks" in source.parts}
KIT = "gpuprof_testing"
"""It looks into a worker as no author of a backend can, so it may use private names of core."""
LINE = (
    "_terminal",
    "_shim errors _log _tables _distribution",
    "backend",
    "_config",
    "_plan _session settings",
    "_artifacts frameworks",
    "_analysis",
    "_report _doctor",
    "ray",
    "_launch",
    "_cli",
    "__main__",
)
"""A folder imports only folders that stand before it, and none that stands beside it."""
STATION = {folder: station for station, folders in enumerate(LINE) for folder in folders.split()}
FACE = ""
"""The package itself: whatever it imports, nothing in it imports that."""
PUBLIC = {
    module.name: module.public
    for module in MODULES
    if module.name
    in (
        "gpuprof",
        "gpuprof.backend",
        "gpuprof.backend.hookspecs",
        "gpuprof.errors",
        "gpuprof.frameworks",
        "gpuprof.ray",
        "gpuprof.ray.driver",
        "gpuprof.settings",
        "gpuprof_timing",
        "gpuprof_timing.instrument",
        "gpuprof_timing.recording",
    )
}

# Ray's own plugins that wrap a worker, as keys of its runtime_env: a worker that has one already
# cannot be wrapped by us, whatever our backend, so core must know how Ray spells them. These exact
# strings in this one module, nothing else anywhere.
KEYS_OF_RAY = {"gpuprof.ray._runtime_env": {"nsight", "_nsight", "rocprof_sys", "_rocprof_sys"}}
NAMES_OF_TOOLS = re.compile("(?<!i)nsight|rocprof", re.IGNORECASE)  # "insight" is a word
OF_FRAMEWORKS = ("gpuprof.frameworks", "gpuprof.ray", "gpuprof.ray.driver", "gpuprof.settings")
"""The public modules that are for plugins of frameworks, and for no backend."""

Rule = Callable[[Module, Import], bool]


def breaches(modules: Iterable[Module], rule: Rule) -> list[str]:
    """The imports that break a rule, with module and line."""
    return [
        f"{module.name}:{found.line}: {found.module}{found.name and f'.{found.name}'}"
        for module in modules
        for found in imports(module)
        if not rule(module, found)
    ]


def folder_of(module: str) -> str:
    """The folder of core, or the single module of it, that a module of core lies in."""
    return (*module.split("."), FACE)[1]


def folders_stand_in_line(module: Module, found: Import) -> bool:
    """A folder of core imports itself and those that stand before it, at run time as well."""
    if module.root != "gpuprof" or found.root != "gpuprof":
        return True
    here, there = folder_of(module.name), folder_of(found.module)
    if there == FACE and found.name in {*STATION, "conf"}:
        there = found.name  # from gpuprof.settings import read
    if here == FACE:
        return True
    return here in STATION and (here == there or STATION.get(there, len(STATION)) < STATION[here])


def timing_stands_alone(module: Module, found: Import) -> bool:
    """gpuprof_timing imports the standard library, and tabulate where it draws a table."""
    if module.root != "gpuprof_timing" or found.root == "gpuprof_timing":
        return True
    return found.root in sys.stdlib_module_names or (
        found.root == "tabulate" and found.where == "function"
    )


def core_knows_no_backend(module: Module, found: Import) -> bool:
    """Of our packages, core imports itself and timing."""
    return (
        module.root != "gpuprof"
        or not found.root.startswith("gpuprof")
        or found.root in ("gpuprof", "gpuprof_timing")
    )


def others_names_are_public(module: Module, found: Import) -> bool:
    """Of another distribution of ours, a module imports public modules and names in ``__all__``."""
    if found.root == module.root or found.root not in ("gpuprof", "gpuprof_timing"):
        return True
    if (module.root, found.root) == (KIT, "gpuprof"):
        return True
    there = f"{found.module}.{found.name}" if found.name else found.module
    opened = there if there in PUBLIC else found.module
    if opened in OF_FRAMEWORKS and module.root not in FRAMEWORKS:
        return False
    return there in PUBLIC or found.name in PUBLIC.get(found.module, ())


def backends_do_not_know_each_other(module: Module, found: Import) -> bool:
    """A backend imports neither another backend nor the kit, and the kit no backend."""
    return not {module.root, found.root} <= {*ABOVE_CORE} or found.root == module.root


def ray_stays_in_its_package(module: Module, found: Import) -> bool:
    """Only gpuprof.ray imports Ray."""
    return (
        found.root != "ray"
        or module.name == "gpuprof.ray"
        or module.name.startswith("gpuprof.ray.")
    )


def torch_is_not_imported(module: Module, found: Import) -> bool:
    """Only the backend of torch's profiler imports torch, when a window opens."""
    return found.root != "torch" or (
        module.root == "gpuprof_torch_profiler" and found.where == "function"
    )


def the_shim_stands_alone(module: Module, found: Import) -> bool:
    """The shim imports only the standard library and itself: no environment is set up yet."""
    if not f"{module.name}.".startswith("gpuprof._shim."):
        return True
    return found.root in sys.stdlib_module_names or f"{found.module}.".startswith(
        ("gpuprof._shim.", "_shim.")
    )


BREACHES: dict[Rule, list[tuple[str, str, str]]] = {
    folders_stand_in_line: [
        (
            "gpuprof/_config/bad.py",
            "from gpuprof._plan.planner import X",
            "gpuprof._plan.planner.X",
        ),
        ("gpuprof/_config/bad.py", "from gpuprof import settings", "gpuprof.settings"),
        (
            "gpuprof/_config/bad.py",
            "def f():\n  import gpuprof._session.public",
            "gpuprof._session.public",
        ),
        (
            "gpuprof/_config/bad.py",
            "importlib.import_module('gpuprof.settings.verl')",
            "gpuprof.settings.verl",
        ),
        ("gpuprof/_config/bad.py", "import_module(f'gpuprof.settings.{name}')", "gpuprof.settings"),
        (
            "gpuprof/_config/bad.py",
            "partial(import_module, f'gpuprof.settings.{name}')",
            "gpuprof.settings",
        ),
        ("gpuprof/_config/bad.py", "__import__('gpuprof._cli')", "gpuprof._cli"),
        (
            "gpuprof/_plan/bad.py",
            "if TYPE_CHECKING:\n  import gpuprof._session.public",
            "gpuprof._session.public",
        ),
        ("gpuprof/_session/bad.py", "from .._plan import planner", "gpuprof._plan.planner"),
        ("gpuprof/_doctor/bad.py", "from gpuprof._report import trees", "gpuprof._report.trees"),
        ("gpuprof/_log.py", "from gpuprof import errors", "gpuprof.errors"),
        ("gpuprof/backend/bad.py", "import gpuprof", "gpuprof"),
        ("gpuprof/_report/bad.py", "from gpuprof import timer", "gpuprof.timer"),
        ("gpuprof/_new/bad.py", "from gpuprof import errors", "gpuprof.errors"),
        ("gpuprof/_launch/bad.py", "from gpuprof._new import x", "gpuprof._new.x"),
    ],
    timing_stands_alone: [
        ("gpuprof_timing/_bad.py", "import attrs", "attrs"),
        ("gpuprof_timing/_bad.py", "from tabulate import tabulate", "tabulate.tabulate"),
        ("gpuprof_timing/_bad.py", "if TYPE_CHECKING:\n  import gpuprof", "gpuprof"),
        ("gpuprof_timing/_bad.py", "def f():\n  import numpy", "numpy"),
    ],
    core_knows_no_backend: [
        ("gpuprof/_plan/bad.py", "from gpuprof_nsight import plugin", "gpuprof_nsight.plugin"),
        ("gpuprof/_plan/bad.py", "importlib.import_module('gpuprof_other')", "gpuprof_other"),
        ("gpuprof/_plan/bad.py", "__import__(f'gpuprof_other.{name}')", "gpuprof_other"),
        ("gpuprof/_launch/bad.py", "import gpuprof_sample_factory", "gpuprof_sample_factory"),
        ("gpuprof/_doctor/bad.py", "import gpuprof_testing", "gpuprof_testing"),
    ],
    others_names_are_public: [
        ("gpuprof_nsight/_bad.py", "from gpuprof import _shim", "gpuprof._shim"),
        ("gpuprof_nsight/_bad.py", "import gpuprof._shim", "gpuprof._shim"),
        (
            "gpuprof_nsight/_bad.py",
            "from gpuprof.backend import loading",
            "gpuprof.backend.loading",
        ),
        (
            "gpuprof_nsight/_bad.py",
            "from gpuprof.backend.types import Tool",
            "gpuprof.backend.types.Tool",
        ),
        (
            "gpuprof_nsight/_bad.py",
            "from gpuprof.errors import _private",
            "gpuprof.errors._private",
        ),
        ("gpuprof_nsight/_bad.py", "x = gpuprof._shim.encode", "gpuprof._shim"),
        ("gpuprof_nsight/_bad.py", "import gpuprof.ray", "gpuprof.ray"),
        ("gpuprof_nsight/_bad.py", "from gpuprof import ray", "gpuprof.ray"),
        (
            "gpuprof/_session/bad.py",
            "from gpuprof_timing._node import walk",
            "gpuprof_timing._node.walk",
        ),
        ("gpuprof/_session/bad.py", "from gpuprof_timing import _torch", "gpuprof_timing._torch"),
        (
            "gpuprof/_session/bad.py",
            "from gpuprof_timing.recording import _hot",
            "gpuprof_timing.recording._hot",
        ),
        (
            "gpuprof_sample_factory/_bad.py",
            "from gpuprof.frameworks import _changes",
            "gpuprof.frameworks._changes",
        ),
        (
            "gpuprof_sample_factory/_bad.py",
            "from gpuprof.ray._job import hook_workers",
            "gpuprof.ray._job.hook_workers",
        ),
        ("gpuprof_testing/_bad.py", "from gpuprof_timing import _node", "gpuprof_timing._node"),
    ],
    backends_do_not_know_each_other: [
        ("gpuprof_sample_factory/_bad.py", "import gpuprof_nsight", "gpuprof_nsight"),
        ("gpuprof_nsight/_bad.py", "import gpuprof_rocprof_sys", "gpuprof_rocprof_sys"),
        (
            "gpuprof_nsight/_bad.py",
            "from gpuprof_testing import BackendConformance",
            "gpuprof_testing.BackendConformance",
        ),
    ],
    ray_stays_in_its_package: [
        ("gpuprof_sample_factory/_bad.py", "import ray", "ray"),
        ("gpuprof/_launch/bad.py", "def f():\n  from ray.util import state", "ray.util.state"),
        ("gpuprof/_launch/bad.py", "importlib.import_module('ray')", "ray"),
        ("gpuprof/rays.py", "import ray", "ray"),
    ],
    torch_is_not_imported: [
        ("gpuprof_torch_profiler/_bad.py", "import torch", "torch"),
        ("gpuprof/bad.py", "try:\n  import torch.cuda\nexcept ImportError:\n  pass", "torch.cuda"),
    ],
    the_shim_stands_alone: [
        ("gpuprof/_shim/bad.py", "from gpuprof import errors", "gpuprof.errors"),
        ("gpuprof/_shim/bad.py", "from .. import errors", "gpuprof.errors"),
        ("gpuprof/_shim/bad.py", "def f():\n  import attrs", "attrs"),
        ("gpuprof/_shim/__init__.py", "import gpuprof_timing", "gpuprof_timing"),
        ("gpuprof/_shim/__main__.py", "from _control import x", "_control.x"),
    ],
}
"""For each rule the path of a module, its source, and the import that breaks the rule."""


class _WithoutText(ast.NodeTransformer):
    """Drops docstrings, and strings that are exempt."""

    def __init__(self, exempt: set[str]) -> None:
        self.exempt = exempt

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Pass() if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("") if node.value in self.exempt else node


def names_of_tools(module: Module) -> list[str]:
    """The statements of a module, without comments and docstrings, that name a backend's tool."""
    tree = _WithoutText(KEYS_OF_RAY.get(module.name, set())).visit(ast.parse(module.source))
    lines = ast.unparse(tree).splitlines()
    return [f"{module.name}: {line.strip()}" for line in lines if NAMES_OF_TOOLS.search(line)]


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has after `statement`."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    return set(
        json.loads(
            subprocess.run(
                [sys.executable, "-I", "-c", code], check=True, stdout=subprocess.PIPE
            ).stdout
        )
    )


def planted(source: Path, files: dict[str, str]) -> list[Module]:
    """The modules of packages that are written to `source`, by their paths there."""
    for path, text in files.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(text)
    return [
        module
        for package in sorted(path.name for path in source.iterdir())
        for module in modules_of(package, source)
    ]


@pytest.fixture(scope="module")
def loaded_by_gpuprof() -> set[str]:
    """The modules that a fresh interpreter has after the import of gpuprof."""
    return loaded_by("import gpuprof")


def test_a_workers_first_import_brings_all_that_its_session_needs() -> None:
    """Threads that import parts of a package at once could each get half a module."""
    loaded = loaded_by("import os; os.environ['GPUPROF_WORKER'] = 'a row'; import gpuprof")
    assert {"gpuprof._session.session", "gpuprof.backend.types"} <= loaded


@pytest.mark.parametrize("rule", BREACHES)
def test_our_modules_keep_the_rule(rule: Rule) -> None:
    """No module of any of our packages breaks the rule."""
    assert [] == breaches(MODULES, rule)


@pytest.mark.parametrize(
    ("rule", "path", "source", "expected"),
    [(rule, *breach) for rule, of_rule in BREACHES.items() for breach in of_rule],
)
def test_a_breach_of_the_rule_is_found(
    rule: Rule, path: str, source: str, expected: str, tmp_path: Path
) -> None:
    """Each rule can fail: the breach is planted in a package, which is read as ours are."""
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    line = next(
        number
        for number, text in enumerate(source.splitlines(), 1)
        if expected.rpartition(".")[2] in text
    )
    assert [f"{name}:{line}: {expected}"] == breaches(planted(tmp_path, {path: source}), rule)


@pytest.mark.parametrize("package", ROOTS)
def test_every_package_is_read(package: str) -> None:
    """No rule is kept because nothing was read."""
    assert package in [module.name for module in MODULES]


def test_every_folder_has_its_place_in_the_line() -> None:
    """None is missing in the line, and none is in it that is not there."""
    assert {*STATION, "conf", FACE} == {
        folder_of(module.name) for module in MODULES if module.root == "gpuprof"
    }


def test_the_architecture_page_numbers_the_folders_as_the_line_does() -> None:
    """A reader of the table and these tests follow the same rule."""
    page = (CHECKOUT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (.*?) \| .* \|$", page, re.MULTILINE)
    numbers = {
        folder.strip("/"): int(number) - 1
        for number, folders in rows
        for folder in re.findall(r"`([\w/]+)`", folders)
    }
    assert STATION == {"__main__": len(LINE) - 1, **numbers}


def test_core_names_no_tool() -> None:
    """Core names no backend, save for the keys of Ray."""
    core = [module for module in MODULES if module.root == "gpuprof"]
    assert [] == [found for module in core for found in names_of_tools(module)]


@pytest.mark.parametrize(
    "statement",
    [
        "backend = 'nsight'",
        "Nsight.start()",
        "print(f'{path}/rocprof')",
        "def run_rocprof(): ...",
        "importlib.import_module('gpuprof_nsight')",
    ],
    ids=str,
)
def test_a_name_of_a_tool_is_found(statement: str, tmp_path: Path) -> None:
    """Strings, f-strings and names of code count."""
    (module,) = planted(tmp_path, {"gpuprof/_plan/bad.py": statement})
    assert 1 == len(names_of_tools(module))


@pytest.mark.parametrize("text", ['"""As nsight does."""', "# rocprof", "x = 'insight'"])
def test_prose_may_name_a_tool(text: str) -> None:
    """Docstrings and comments give examples, and other words may contain the name."""
    assert [] == names_of_tools(Module("gpuprof._good", text))


def test_only_the_exact_keys_of_ray_are_exempt() -> None:
    """In the module that knows Ray's keys any other mention is found."""
    assert 1 == len(
        names_of_tools(Module("gpuprof.ray._runtime_env", "a = 'nsight'\nb = 'nsight options'"))
    )


@pytest.mark.parametrize("package", ROOTS)
def test_imports_run_one_way(package: str) -> None:
    """No import circle: at import, at run time, or for the type checker."""
    assert [] == cycle(graph_of(module for module in MODULES if module.root == package))


@pytest.mark.parametrize("package", ROOTS)
@pytest.mark.parametrize(
    "back",
    [
        "from ._a import name",
        "def f():\n  from {0}._a import name",
        "if TYPE_CHECKING:\n  from {0} import _a",
        "importlib.import_module('{0}._a')",
    ],
)
def test_a_circle_is_found(package: str, back: str, tmp_path: Path) -> None:
    """Modules that import each other are named, whichever way each import is written."""
    files = {"__init__": "", "_a": f"from {package} import _b", "_b": back.format(package)}
    modules = planted(tmp_path, {f"{package}/{name}.py": text for name, text in files.items()})
    assert {f"{package}._a", f"{package}._b"} == set(cycle(graph_of(modules)))


def test_a_circle_over_the_package_is_found() -> None:
    """A private module that takes a name from the package which imports it is on a circle."""
    modules = [
        Module("gpuprof", "from gpuprof._a import name", is_package=True),
        Module("gpuprof._a", "from gpuprof import Timing"),
    ]
    assert {"gpuprof", "gpuprof._a"} == set(cycle(graph_of(modules)))


@pytest.mark.parametrize("heavy", ["ray", "torch", "nvtx", "yaml", "click"])
def test_importing_gpuprof_leaves_out(heavy: str, loaded_by_gpuprof: set[str]) -> None:
    """A worker that only times pays for none of the libraries that plan, print or profile."""
    assert heavy not in loaded_by_gpuprof


def test_a_loaded_module_is_seen() -> None:
    """The list of what is loaded has what is loaded."""
    assert "yaml" in loaded_by("import yaml")
