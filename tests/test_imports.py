"""Who may import what, read from the source and not from what happens to be installed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable

import pytest
from import_reader import MODULES, ROOTS, Import, Module, cycle, imported_at_import, imports

BACKENDS = sorted(set(ROOTS) - {"gpuprof", "gpuprof_timing"})
PUBLIC = ("gpuprof", "gpuprof.errors", "gpuprof.hookspecs", "gpuprof.testing")

# Ray's own plugins that wrap a worker, as keys of its runtime_env: a worker that has one already cannot be wrapped by us, whatever
# our backend, so core must know how Ray spells them. These exact strings in this one module, nothing else anywhere.
KEYS_OF_RAY = {"gpuprof.ray._runtime_env": {"nsight", "_nsight", "rocprof_sys", "_rocprof_sys"}}
# A reader of another system's settings says which backend those settings mean, so it has its name: these modules, nothing else.
READERS = ("gpuprof.compat.nemo_rl", "gpuprof.compat.rlinf", "gpuprof.compat.verl")
NAMES_OF_TOOLS = re.compile("(?<!i)nsight|rocprof", re.IGNORECASE)  # "insight" is a word

Rule = Callable[[Module, Import], bool]


def breaches(modules: Iterable[Module], rule: Rule) -> list[str]:
    """The imports that break a rule, with module and line."""
    return [
        f"{module.name}:{found.line}: {found.module}{found.name and f'.{found.name}'}"
        for module in modules
        for found in imports(module)
        if not rule(module, found)
    ]


def timing_stands_alone(module: Module, found: Import) -> bool:
    """gpuprof_timing imports the standard library; tabulate where a table is drawn and nowhere else."""
    if module.root != "gpuprof_timing" or found.root == "gpuprof_timing":
        return True
    return found.root in sys.stdlib_module_names or (found.root == "tabulate" and found.where == "function")


def core_knows_no_backend(module: Module, found: Import) -> bool:
    """Of our packages, core imports itself and timing."""
    return module.root != "gpuprof" or not found.root.startswith("gpuprof") or found.root in ("gpuprof", "gpuprof_timing")


def backends_use_public_names(module: Module, found: Import) -> bool:
    """Of gpuprof, backends import the modules that are public, and from them nothing with a leading underscore."""
    if module.root not in BACKENDS or found.root != "gpuprof":
        return True
    submodule = f"{found.module}.{found.name}"
    return not found.name.startswith("_") and (found.module in PUBLIC or submodule in PUBLIC) and submodule != "gpuprof.ray"


def backends_do_not_know_each_other(module: Module, found: Import) -> bool:
    """A backend imports no other backend."""
    return module.root not in BACKENDS or found.root not in BACKENDS or found.root == module.root


def ray_stays_in_its_package(module: Module, found: Import) -> bool:
    """Only gpuprof.ray imports Ray."""
    return found.root != "ray" or module.name == "gpuprof.ray" or module.name.startswith("gpuprof.ray.")


def torch_is_not_imported(module: Module, found: Import) -> bool:
    """Nothing imports torch, but for the backend of torch's own profiler, and that when a window opens."""
    return found.root != "torch" or (module.root == "gpuprof_torch_profiler" and found.where == "function")


NEIGHBOURS = {
    "gpuprof._shim": ("_exit_code", "_scratch", "_tool_process"),
    "gpuprof._tool_process": ("_scratch",),
    "gpuprof._exit_code": (),
    "gpuprof._scratch": (),
}


def the_shim_stands_alone(module: Module, found: Import) -> bool:
    """The shim and its neighbours run before any environment is set up: the standard library, and nothing else of gpuprof."""
    if module.name not in NEIGHBOURS or found.root in sys.stdlib_module_names:
        return True
    return any((found.module, found.name) in ((name, ""), ("gpuprof", name)) for name in NEIGHBOURS[module.name])


RULES = (
    timing_stands_alone,
    core_knows_no_backend,
    backends_use_public_names,
    backends_do_not_know_each_other,
    ray_stays_in_its_package,
    torch_is_not_imported,
    the_shim_stands_alone,
)


class _WithoutText(ast.NodeTransformer):
    """Drops docstrings, and strings that are exempt."""

    def __init__(self, exempt: set[str]) -> None:
        self.exempt = exempt

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.Pass() if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("") if node.value in self.exempt else node


def names_of_tools(module: Module) -> list[str]:
    """The statements of a module, as code without comments and docstrings, that name a backend's tool."""
    tree = _WithoutText(KEYS_OF_RAY.get(module.name, set())).visit(ast.parse(module.source))
    lines = ast.unparse(tree).splitlines()
    return [f"{module.name}: {line.strip()}" for line in lines if NAMES_OF_TOOLS.search(line)]


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has after `statement`."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    return set(json.loads(subprocess.run([sys.executable, "-I", "-c", code], check=True, stdout=subprocess.PIPE).stdout))


@pytest.fixture(scope="module")
def loaded_by_gpuprof() -> set[str]:
    """The modules that a fresh interpreter has after the import of gpuprof."""
    return loaded_by("import gpuprof")


@pytest.mark.parametrize("rule", RULES)
def test_our_modules_keep_the_rule(rule: Rule) -> None:
    """No module of any of our packages breaks the rule."""
    assert [] == breaches(MODULES, rule)


@pytest.mark.parametrize(
    ("rule", "name", "source", "expected"),
    [
        (timing_stands_alone, "gpuprof_timing._bad", "import attrs", "attrs"),
        (timing_stands_alone, "gpuprof_timing._bad", "from tabulate import tabulate", "tabulate.tabulate"),
        (timing_stands_alone, "gpuprof_timing._bad", "if TYPE_CHECKING:\n  import gpuprof", "gpuprof"),
        (timing_stands_alone, "gpuprof_timing._bad", "def f():\n  import numpy", "numpy"),
        (core_knows_no_backend, "gpuprof._bad", "from gpuprof_nsight import plugin", "gpuprof_nsight.plugin"),
        (core_knows_no_backend, "gpuprof._bad", "importlib.import_module('gpuprof_other')", "gpuprof_other"),
        (backends_use_public_names, "gpuprof_nsight._bad", "from gpuprof import _shim", "gpuprof._shim"),
        (backends_use_public_names, "gpuprof_nsight._bad", "import gpuprof._shim", "gpuprof._shim"),
        (backends_use_public_names, "gpuprof_nsight._bad", "from gpuprof._types import Tool", "gpuprof._types.Tool"),
        (backends_use_public_names, "gpuprof_nsight._bad", "from gpuprof.errors import _private", "gpuprof.errors._private"),
        (backends_use_public_names, "gpuprof_nsight._bad", "x = gpuprof._shim.encode", "gpuprof._shim"),
        (backends_use_public_names, "gpuprof_nsight._bad", "import gpuprof.ray", "gpuprof.ray"),
        (backends_use_public_names, "gpuprof_nsight._bad", "from gpuprof import ray", "gpuprof.ray"),
        (backends_do_not_know_each_other, "gpuprof_nsight._bad", "import gpuprof_rocprof_sys", "gpuprof_rocprof_sys"),
        (ray_stays_in_its_package, "gpuprof._bad", "def f():\n  from ray.util import state", "ray.util.state"),
        (ray_stays_in_its_package, "gpuprof.rays", "import ray", "ray"),
        (torch_is_not_imported, "gpuprof_torch_profiler._bad", "import torch", "torch"),
        (torch_is_not_imported, "gpuprof._bad", "try:\n  import torch.cuda\nexcept ImportError:\n  pass", "torch.cuda"),
        (the_shim_stands_alone, "gpuprof._shim", "from gpuprof import errors", "gpuprof.errors"),
        (the_shim_stands_alone, "gpuprof._shim", "from . import errors", "gpuprof.errors"),
        (the_shim_stands_alone, "gpuprof._shim", "def f():\n  import attrs", "attrs"),
        (the_shim_stands_alone, "gpuprof._shim", "import _control", "_control"),
        (the_shim_stands_alone, "gpuprof._exit_code", "import attrs", "attrs"),
        (the_shim_stands_alone, "gpuprof._scratch", "from gpuprof import _shim", "gpuprof._shim"),
        (the_shim_stands_alone, "gpuprof._tool_process", "from gpuprof import _shim", "gpuprof._shim"),
    ],
)
def test_a_breach_of_the_rule_is_found(rule: Rule, name: str, source: str, expected: str) -> None:
    """Each rule can fail."""
    line = next(number for number, text in enumerate(source.splitlines(), 1) if expected.rpartition(".")[2] in text)
    assert [f"{name}:{line}: {expected}"] == breaches([Module(name, source)], rule)


@pytest.mark.parametrize("package", ROOTS)
def test_every_package_is_read(package: str) -> None:
    """No rule is kept because nothing was read."""
    assert package in [module.name for module in MODULES]


def test_core_names_no_tool() -> None:
    """The code of core works for any backend, so it has the name of none, save the keys of Ray and the readers of settings."""
    core = [module for module in MODULES if module.root == "gpuprof" and module.name not in READERS]
    assert [] == [found for module in core for found in names_of_tools(module)]


def test_readers_import_the_backend_that_they_name_as_little_as_others_do() -> None:
    """What is exempt is the name: a reader imports nothing of a backend, and each of them is there."""
    readers = [module for module in MODULES if module.name in READERS]
    assert sorted(READERS) == sorted(module.name for module in readers)
    assert [] == breaches(readers, core_knows_no_backend)


@pytest.mark.parametrize(
    "statement", ["backend = 'nsight'", "Nsight.start()", "print(f'{path}/rocprof')", "def run_rocprof(): ..."], ids=str
)
def test_a_name_of_a_tool_is_found(statement: str) -> None:
    """Strings, f-strings and names of code count."""
    assert 1 == len(names_of_tools(Module("gpuprof._bad", statement)))


@pytest.mark.parametrize("text", ['"""As nsight does."""', "# rocprof", "x = 'insight'"])
def test_prose_may_name_a_tool(text: str) -> None:
    """Docstrings and comments give examples, and other words may contain the name."""
    assert [] == names_of_tools(Module("gpuprof._good", text))


def test_only_the_exact_keys_of_ray_are_exempt() -> None:
    """In the module that knows Ray's keys any other mention is found."""
    assert 1 == len(names_of_tools(Module("gpuprof.ray._runtime_env", "a = 'nsight'\nb = 'nsight options'")))


def test_imports_run_one_way() -> None:
    """No module needs, while it is imported, a module that needs it."""
    assert [] == cycle(imported_at_import(MODULES))


def test_a_cycle_is_found() -> None:
    """Modules that import each other are named, whichever way each import is written."""
    modules = [
        Module("gpuprof", "", is_package=True),
        Module("gpuprof._a", "from gpuprof import _b"),
        Module("gpuprof._b", "from ._a import name"),
    ]
    assert {"gpuprof._a", "gpuprof._b"} == set(cycle(imported_at_import(modules)))


def test_a_cycle_over_the_package_is_found() -> None:
    """A private module that takes a name from the package which imports it is on a cycle."""
    modules = [
        Module("gpuprof", "from gpuprof._a import name", is_package=True),
        Module("gpuprof._a", "from gpuprof import Timing"),
    ]
    assert {"gpuprof", "gpuprof._a"} == set(cycle(imported_at_import(modules)))


@pytest.mark.parametrize("source", ["def f():\n  from gpuprof import _b", "if TYPE_CHECKING:\n  from gpuprof import _b"])
def test_an_import_that_waits_makes_no_cycle(source: str) -> None:
    """Imports in functions and for the type checker do not run while the module is imported."""
    modules = [Module("gpuprof._a", source), Module("gpuprof._b", "import gpuprof._a")]
    assert [] == cycle(imported_at_import(modules))


@pytest.mark.parametrize("heavy", ["ray", "torch", "nvtx", "yaml", "click", "cattrs"])
def test_importing_gpuprof_leaves_out(heavy: str, loaded_by_gpuprof: set[str]) -> None:
    """A worker that only times pays for none of the libraries that plan, print or profile."""
    assert heavy not in loaded_by_gpuprof


def test_a_loaded_module_is_seen() -> None:
    """The list of what is loaded has what is loaded."""
    assert "yaml" in loaded_by("import yaml")
