"""Turning a context manager into a decorator that keeps the function's kind."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Any, Protocol, TypeAlias, TypeVar

    Function = TypeVar("Function", bound=Callable[..., Any])
    Make: TypeAlias = "Callable[[bool, Arguments], AbstractContextManager[object]]"

    class Switch(Protocol):
        """Tells whether calls are to run inside a context."""

        enabled: bool

    ExceptionInfo: TypeAlias = (
        "tuple[type[BaseException] | None, BaseException | None, TracebackType | None]"
    )


Arguments: TypeAlias = "tuple[tuple[Any, ...], dict[str, Any]]"
"""The positional arguments of a call, and those by name."""


class _Always:
    enabled = True


def decorate(function: Function, make: Make, switch: Switch = _Always()) -> Function:  # noqa: B008 - nobody turns it
    """Run every call of `function` inside a context of its own.

    A generator is inside it while it runs, not while it is suspended. Static and class methods keep
    their kind. A callable object is treated like its ``__call__``.

    Args:
        make: makes the context; its arguments are whether the context may be left in another task
            or thread than it was entered in, and the arguments of the call.
        switch: asked at every call of a plain function, which then costs next to nothing while
            switched off. Other kinds are slower anyway, and `make` gives them an empty context.

    Raises:
        TypeError: it is not callable, such as a property.
    """
    # Here, because they are slow to import and most programs only use `with`.
    import inspect
    from functools import partial, wraps

    if isinstance(function, staticmethod | classmethod):
        return type(function)(decorate(function.__func__, make, switch))

    if not callable(function):
        raise TypeError(
            f"a scope decorates what is called, not {function!r}; it stands below @property, not "
            "above"
        )

    target: Any = function
    while isinstance(target, partial):
        target = target.func
    either = (target, type(target).__call__)

    # Keep the function's kind for `inspect`: Ray calls a function that returns a
    # coroutine in the wrong way.
    if any(map(inspect.iscoroutinefunction, either)):

        @wraps(function)
        async def in_context_coroutine(*args: Any, **kwargs: Any) -> Any:
            with make(True, (args, kwargs)):
                return await function(*args, **kwargs)

        return in_context_coroutine  # type: ignore[return-value]

    if any(map(inspect.isgeneratorfunction, either)):

        @wraps(function)
        def in_context_generator(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            resume: Callable[..., Any] = generator.send
            arguments: tuple[Any, ...] = (None,)
            while True:
                with make(False, (args, kwargs)):
                    try:
                        value = resume(*arguments)
                    except StopIteration as stop:
                        return stop.value
                arguments = ()  # the thrown exception must not live as long as the generator
                try:
                    resume, arguments = generator.send, ((yield value),)
                except GeneratorExit:
                    with make(False, (args, kwargs)):
                        generator.close()
                    raise
                except BaseException as error:
                    resume, arguments = generator.throw, (error,)

        return in_context_generator  # type: ignore[return-value]

    if any(map(inspect.isasyncgenfunction, either)):

        @wraps(function)
        async def in_context_async_generator(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            resume: Callable[..., Any] = generator.asend
            arguments: tuple[Any, ...] = (None,)
            while True:
                with make(True, (args, kwargs)):
                    try:
                        value = await resume(*arguments)
                    except StopAsyncIteration:
                        return
                arguments = ()
                try:
                    resume, arguments = generator.asend, ((yield value),)
                except GeneratorExit:
                    with make(True, (args, kwargs)):
                        await generator.aclose()
                    raise
                except BaseException as error:
                    resume, arguments = generator.athrow, (error,)

        return in_context_async_generator  # type: ignore[return-value]

    @wraps(function)
    def in_context(*args: Any, **kwargs: Any) -> Any:
        if not switch.enabled:
            return function(*args, **kwargs)
        with make(False, (args, kwargs)):
            return function(*args, **kwargs)

    return in_context  # type: ignore[return-value]
