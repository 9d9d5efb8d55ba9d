"""The compiled hot path, where there is one: `_hot.c` beside the Python that specifies it.

``GPUPROF_TIMING_PURE=1`` forces Python.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    Class = TypeVar("Class", bound=type[Any])

PURE_VARIABLE = "GPUPROF_TIMING_PURE"
"""``1`` forces Python."""


def _load() -> Any:
    if os.environ.get(PURE_VARIABLE) == "1":
        return None
    try:
        import gpuprof_timing._hot as _hot  # type: ignore[import-not-found]
    except ImportError:
        return None
    if not hasattr(_hot, "LinkedCalls"):  # an editable installation's, of an earlier source
        return None
    # its types belong to one copy of this package: a second one, in a process that has imported it
    # anew or in another interpreter, runs in Python
    return _hot if _hot.claim() else None


hot: Any = _load()
"""The compiled module; ``None`` in Python."""
compiled: bool = hot is not None
"""Whether the hot path of scopes runs in C. ``GPUPROF_TIMING_PURE=1`` forces Python."""


def slots_in_c(cls: Class) -> Class:
    """Decorate a class whose hottest slots are fields of a C type of the same name."""
    if hot is None:
        return cls
    base = getattr(hot, cls.__name__)
    fields = vars(base)
    slots = tuple(name for name in cls.__slots__ if name not in fields)
    names = {name: value for name, value in vars(cls).items() if name not in cls.__slots__}
    subclass: Any = type(cls.__name__, (base,), {**names, "__slots__": slots})
    hot.complete(subclass)
    return subclass  # type: ignore[no-any-return]


def methods_in_c(cls: Class) -> Class:
    """Decorate a class whose C type of the same name has its hottest methods, too.

    The C type gets all others from here. It calls the Python ones where a call is not hot.
    """
    if hot is None:
        return cls
    c_type: Class = getattr(hot, cls.__name__)
    for name, value in vars(cls).items():
        if name not in vars(c_type) and name != "__slots__":
            setattr(c_type, name, value)
    _in_python[c_type] = cls
    hot.specify(cls.__enter__, cls.__exit__)
    c_type.__module__, c_type.__doc__ = cls.__module__, cls.__doc__
    return c_type


def in_python(cls: Class) -> Class:
    """The class that `methods_in_c` decorated."""
    python_class: Class = _in_python.get(cls, cls)
    return python_class


_in_python: dict[Any, Any] = {}
