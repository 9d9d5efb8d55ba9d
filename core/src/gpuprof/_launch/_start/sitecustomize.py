"""Python imports this as it starts, because `gpuprof run` put this folder on its path.

Starts the session, so that the window of the program's whole life opens even if the program never
uses gpuprof. In a rank of a launcher such as torchrun, this process becomes `gpuprof run` instead.
The next `sitecustomize` on the path runs as well.
"""

import sys

_before = set(sys.modules)

import contextlib  # noqa: E402
import importlib.machinery  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402

_HERE = os.path.dirname(os.path.abspath(__file__))
_places = [os.path.abspath(entry or ".") for entry in sys.path]
_behind = sys.path[_places.index(_HERE) + 1 :] if _HERE in _places else []

# Take the folder off the path: processes that this one starts are other programs.
sys.path[:] = [entry for entry, place in zip(sys.path, _places) if place != _HERE]  # noqa: B905
_left = [
    entry
    for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if os.path.abspath(entry or ".") != _HERE
]
_with_us = os.environ.get("PYTHONPATH", "")
if _left:
    os.environ["PYTHONPATH"] = os.pathsep.join(_left)
else:
    os.environ.pop("PYTHONPATH", None)


def _follow(launcher: int, *flags: str) -> None:
    """Become `gpuprof run` with this command line, if this process is a rank of the launcher."""
    if os.getpid() == launcher:
        os.environ["PYTHONPATH"] = _with_us  # keep the folder for the ranks
        return
    del os.environ["GPUPROF_FOLLOWED"]
    of_ranks = ("TORCHELASTIC_RUN_ID", "ACCELERATE_MIXED_PRECISION")
    if os.getppid() == launcher and any(name in os.environ for name in of_ranks):
        ours = [sys.executable, "-m", "gpuprof", "run", *flags, "--", sys.executable]
        os.execv(sys.executable, [*ours, *sys.orig_argv[1:]])


def _folder_of_program() -> str:
    """The first folder in which Python looks for the program's own modules."""
    words = iter(sys.orig_argv[1:])
    for word in words:
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(words, None)
        elif word[:1] != "-":
            return os.path.dirname(os.path.realpath(word))
        elif word[:2] != "--" and ("c" in word or "m" in word):
            break
    return os.getcwd()


def _give_way(folder: str) -> None:
    """Unload modules that we imported if the program has its own modules of the same names.

    Otherwise the program's import would get the module that is already loaded. Without gpuprof,
    Python finds the program's module first.
    """
    new = {name.partition(".")[0] for name in set(sys.modules) - _before}
    for name in new - {"gpuprof", "gpuprof_timing", "sitecustomize"}:
        place = os.path.join(folder, name)
        if os.path.isfile(place + ".py") or os.path.isfile(os.path.join(place, "__init__.py")):
            for module in [m for m in sys.modules if m == name or m.startswith(name + ".")]:
                del sys.modules[module]


_next = importlib.machinery.PathFinder.find_spec("sitecustomize", _behind)
if _next is not None and _next.loader is not None:
    _own = importlib.util.module_from_spec(_next)
    sys.modules["sitecustomize"] = _own  # the program expects its own module under this name
    _next.loader.exec_module(_own)

try:
    if "GPUPROF_FOLLOWED" in os.environ:
        _follow(*json.loads(os.environ["GPUPROF_FOLLOWED"]))
    from gpuprof._session.public import session

    session()
    if "GPUPROF_LAUNCHED" in os.environ:
        import gpuprof._launch.children
        import gpuprof.ray._unmodified

        gpuprof._launch.children.install()
        gpuprof.ray._unmodified.install()
except Exception as error:
    _what = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
    sys.stderr.write(f"gpuprof: {sys.executable}: not profiled: {_what}\n")
with contextlib.suppress(OSError):  # the current directory was removed, so it has no modules
    _give_way(_folder_of_program())
