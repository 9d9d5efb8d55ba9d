"""Reads our modules' imports from their source, whatever happens to be installed."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

CHECKOUT = Path(__file__).parents[1]
ROOTS = {
    "gpuprof": CHECKOUT / "core" / "src",
    "gpuprof_timing": CHECKOUT / "timing" / "src",
    **{path.name: path.parent for path in sorted(CHECKOUT.glob("backends/*/src/gpuprof_*"))},
    # The example of a third party keeps to the rules as a stranger must.
    **{path.name: path.parent for path in sorted(CHECKOUT.glob("examples/*/src/gpuprof_*"))},
}


class Import(NamedTuple):
    """One imported name.

    Args:
        module: the absolute name of the module; for ``from a import b`` it is ``a``.
        name: ``b`` of ``from a import b``, else empty.
        where: ``function`` is run when the function is, ``typing`` never.
        line: where it stands.
    """

    module: str
    name: str
    where: Literal["module", "function", "typing"]
    line: int

    @property
    def root(self) -> str:
        """The top-level package or module."""
        return self.module.partition(".")[0]


class Module(NamedTuple):
    """A module of ours.

    Args:
        name: as it is imported.
        source: its text.
        is_package: whether it is an ``__init__``.
    """

    name: str
    source: str
    is_package: bool = False

    @property
    def root(self) -> str:
        """The top-level package."""
        return self.name.partition(".")[0]


def modules_of(package: str) -> Iterator[Module]:
    """All modules of a package of ours."""
    for path in sorted((ROOTS[package] / package).rglob("*.py")):
        parts = path.relative_to(ROOTS[package]).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        yield Module(".".join(parts[:-1] if is_package else parts), path.read_text(), is_package)


MODULES = [module for package in ROOTS for module in modules_of(package)]


def imports(module: Module) -> list[Import]:
    """Everything that a module imports, wherever in it, `importlib.import_module` of a constant name included."""
    return list(_imports(ast.parse(module.source), module, "module"))


def _imports(node: ast.AST, module: Module, where: Literal["module", "function", "typing"]) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, "", where, node.lineno)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield Import(_absolute(node, module), alias.name, where, node.lineno)
    elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func).rpartition(".")[2] in ("import_module", "__import__"):
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            yield Import(node.args[0].value, "", where, node.lineno)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ROOTS:
        # `gpuprof._shim` after `import gpuprof` is as good as an import of it.
        yield Import(node.value.id, node.attr, where, node.lineno)

    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        for statement in node.body:
            yield from _imports(statement, module, "typing")
        for statement in node.orelse:
            yield from _imports(statement, module, where)
        return
    inner = "function" if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and where == "module" else where
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, module, inner)


def _absolute(node: ast.ImportFrom, module: Module) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    package = parts[: len(parts) - node.level + module.is_package]
    return ".".join([*package, *([node.module] if node.module else [])])


def imported_at_import(modules: Iterable[Module]) -> dict[str, set[str]]:
    """Which of `modules` each of them imports while it is itself being imported.

    The packages around a module are not counted unless they are imported by name: every submodule has them.
    """
    modules = list(modules)
    known = {module.name for module in modules}
    graph: dict[str, set[str]] = {module.name: set() for module in modules}
    for module in modules:
        for found in imports(module):
            submodule = f"{found.module}.{found.name}"
            target = submodule if submodule in known else found.module
            if found.where == "module" and target in known:
                graph[module.name].add(target)
    return graph


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one cycle, from one of them back to it; empty where there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []
