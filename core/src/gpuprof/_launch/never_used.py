"""Whether a command can use gpuprof at all, as far as its source tells before it starts."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from contextlib import suppress

from gpuprof.backend.types import Command

_LEADS_ON = {
    "code",
    "concurrent",
    "ctypes",
    "imp",
    "importlib",
    "multiprocessing",
    "os",
    "pickle",
    "pkgutil",
    "pydoc",
    "runpy",
    "shelve",
    "site",
    "subprocess",
    "unittest",
}
"""Standard modules that import or run what a script names at run time."""
_RUNS_CODE = {"__import__", "__builtins__", "compile", "eval", "exec", "globals", "vars"}


def never_uses_gpuprof(command: Command) -> bool:
    """Whether a Python script surely never uses gpuprof: it imports harmless standard modules only.

    Anything else may: a framework that it imports, a program that becomes a Python.
    """
    source = _source(command)
    if source is None:
        return False
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # Python says so itself
        return False
    harmless = set(sys.stdlib_module_names) - _LEADS_ON - set(_nearby(command))
    return set(_modules(tree)) <= harmless and not any(
        isinstance(node, ast.Name) and node.id in _RUNS_CODE for node in ast.walk(tree)
    )


def defines(command: Command, path: str) -> bool:
    """Whether a script may define a function, or a class with the method, at its top level."""
    source = _source(command)
    if source is None:
        return True
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # Python says so itself
        return True
    *classes, name = path.split(".")
    if classes:  # the method may be inherited
        name = classes[0]
    kinds = (ast.ClassDef,) if classes else (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(n, kinds) and n.name == name for n in ast.walk(tree))


def _source(command: Command) -> bytes | str | None:
    words = command.arguments
    if command.python and words[:1] == ("-c",) and len(words) > 1:
        return words[1]
    if not command.script or not words:
        return None
    try:
        with open(words[0], "rb") as file:
            return file.read()
    except OSError:  # a directory, a zip file, or not there
        return None


def _nearby(command: Command) -> Iterator[str]:
    """The names in the folders that Python searches before the standard library's."""
    own = os.path.dirname(command.arguments[0]) if command.script else ""
    for folder in (own, *os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        with suppress(OSError):
            yield from (name.partition(".")[0] for name in os.listdir(folder or "."))


def _modules(tree: ast.AST) -> Iterator[str]:
    """The top-level modules that a source imports; an empty name for a relative import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "" if node.level else (node.module or "").partition(".")[0]
