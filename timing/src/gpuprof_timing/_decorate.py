"""Turning a context manager into a decorator that keeps the function's kind."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Any, TypeAlias, TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])
    ExceptionInfo: TypeAlias = "tuple[type[BaseException] | None, BaseException | None, TracebackType | None]"


def decorate(function: Function, make: Callable[[bool], AbstractContextManager[object]]) -> Function:
    """Run every call of `function` inside a context of its own.

    Args:
        make: makes the context; told whether it may be left in another task or thread than it was entered in.
    """
    # Here, because they are slow to import and most programs only use `with`.
    import inspect
    from functools import wraps

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def in_context_coroutine(*args: Any, **kwargs: Any) -> Any:
            with make(True):
                return await function(*args, **kwargs)

        return in_context_coroutine  # type: ignore[return-value]

    @wraps(function)
    def in_context(*args: Any, **kwargs: Any) -> Any:
        with make(False):
            return function(*args, **kwargs)

    return in_context  # type: ignore[return-value]
