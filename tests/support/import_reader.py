"""Reads our modules' imports from their source, whatever happens to be installed."""

from __future__ import annotations

import ast
import functools
import graphlib
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

CHECKOUT = Path(__file__).parents[2]
ROOTS = {
    "gpuprof": CHECKOUT / "core" / "src",
    "gpuprof_timing": CHECKOUT / "timing" / "src",
    "gpuprof_testing": CHECKOUT / "testing" / "src",
    **{path.name: path.parent for path in sorted(CHECKOUT.glob("backends/*/src/gpuprof_*"))},
    **{path.name: path.parent for path in sorted(CHECKOUT.glob("frameworks/*/src/gpuprof_*"))},
    # The example of a third party keeps to the rules as a stranger must.
    **{path.name: path.parent for path in sorted(CHECKOUT.glob("examples/*/src/gpuprof_*"))},
}
IMPORTERS = ("import_module", "__import__")

Where = Literal["module", "function", "typing"]


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
    where: Where
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

    @property
    def public(self) -> list[str]:
        """What its ``__all__`` has."""
        for statement in ast.parse(self.source).body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
                return list(ast.literal_eval(statement.value))
        return []


def modules_of(package: str, source: Path) -> Iterator[Module]:
    """All modules of a package.

    Args:
        source: the directory that has the package's.
    """
    for path in sorted((source / package).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        yield Module(".".join(parts[:-1] if is_package else parts), path.read_text(), is_package)


MODULES = [module for package, source in ROOTS.items() for module in modules_of(package, source)]


@functools.cache
def imports(module: Module) -> tuple[Import, ...]:
    """All imports of a module, anywhere in it, including literal dynamic imports."""
    return tuple(_imports(ast.parse(module.source), module, "module"))


def _imports(node: ast.AST, module: Module, where: Where) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, "", where, node.lineno)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield Import(_absolute(node, module), alias.name, where, node.lineno)
    elif isinstance(node, ast.Call):
        # the importer may be handed on, as to `partial`
        for importer, name in pairwise([node.func, *node.args]):
            last = getattr(importer, "attr", getattr(importer, "id", ""))
            if last in IMPORTERS and (text := _beginning(name)):
                yield Import(text, "", where, node.lineno)
    elif (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ROOTS
    ):
        # `gpuprof._shim` after `import gpuprof` is as good as an import of it.
        yield Import(node.value.id, node.attr, where, node.lineno)

    if (
        isinstance(node, ast.If)
        and ast.unparse(node.test).removeprefix("typing.") == "TYPE_CHECKING"
    ):
        for statement in node.body:
            yield from _imports(statement, module, "typing")
        for statement in node.orelse:
            yield from _imports(statement, module, where)
        return
    inner: Where = (
        "function"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        and where == "module"
        else where
    )
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, module, inner)


def _beginning(name: ast.expr) -> str:
    """What is known of a module's name: of an f-string what stands before its first value."""
    if isinstance(name, ast.JoinedStr) and name.values:
        name = name.values[0] if isinstance(name.values[0], ast.expr) else name
    return (
        str(name.value).rstrip(".")
        if isinstance(name, ast.Constant) and isinstance(name.value, str)
        else ""
    )


def _absolute(node: ast.ImportFrom, module: Module) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    package = parts[: len(parts) - node.level + module.is_package]
    return ".".join([*package, *([node.module] if node.module else [])])


def graph_of(modules: Iterable[Module]) -> dict[str, set[str]]:
    """Which of `modules` each of them imports.

    The packages around a module are not counted unless they are imported by name: every submodule
    has them.
    """
    modules = list(modules)
    known = {module.name for module in modules}
    graph: dict[str, set[str]] = {module.name: set() for module in modules}
    for module in modules:
        for found in imports(module):
            submodule = f"{found.module}.{found.name}"
            target = submodule if submodule in known else found.module
            if target in known - {module.name}:
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
