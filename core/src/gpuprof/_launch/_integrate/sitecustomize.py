"""Python imports this as it starts, because `gpuprof run --integrate` put the folder on its path.

Needs nothing but the standard library, and imports gpuprof only in a process that imports the
framework. The environment's own `sitecustomize` runs as well.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_PACKAGE, _, _PLUGIN = os.environ.get("GPUPROF_INTEGRATE", "").partition("=")


class _Watch(importlib.abc.MetaPathFinder):
    """Installs the framework's plugin when the framework is imported."""

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != _PACKAGE:
            return None
        sys.meta_path.remove(self)
        try:
            module = importlib.import_module(_PLUGIN)
            module.install()
            if module.ON_RAY:  # Ray's hook reaches only Ray's processes
                importlib.import_module("gpuprof._launch.integrate").leave()
        except Exception as error:
            what = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
            sys.stderr.write(f"gpuprof: {sys.executable}: not integrated: {what}\n")
        # ask all finders again: the plugin may have added one that waits for this package
        finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
        return next(filter(None, (each.find_spec(name, path, target) for each in finders)), None)


if _PACKAGE:
    sys.meta_path.insert(0, _Watch())

# Search only behind this folder: each of gpuprof's folders passes on to the next one on the path,
# and never back.
_places = [os.path.abspath(entry or ".") for entry in sys.path]
_rest = sys.path[_places.index(_HERE) + 1 :] if _HERE in _places else []
_own = importlib.machinery.PathFinder.find_spec("sitecustomize", _rest)
if _own is not None and _own.loader is not None:
    _own.loader.exec_module(importlib.util.module_from_spec(_own))
