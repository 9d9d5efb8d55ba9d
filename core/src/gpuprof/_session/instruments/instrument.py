"""The base of all instruments: puts scopes around a library's functions, and removes them again."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from gpuprof_timing import Timing
from gpuprof_timing.instrument import LinkedScope, call_linked, is_compiling, recording_of

from gpuprof._session.after_import import after_import

Result = TypeVar("Result")

_MARK = "__gpuprof_marks__"
_all: weakref.WeakSet[Instrument] = weakref.WeakSet()
_numbers = itertools.count()
_token: tuple[int, str] = (0, "")


class UnexpectedError(Exception):
    """A library lacks a part that the instrument expects."""


Key: TypeAlias = "str | bytes | tuple[str | bytes, ...]"
"""One or several keys of a call, which the other side of a wait knows as well."""


class Call(NamedTuple):
    """How one call of a function is marked.

    Args:
        name: the name of the scope.
        waits_for: see `gpuprof.timer`.
        key: the key, or a function that makes the key from the call's result.
        args: positional arguments that replace the caller's; ``None`` keeps the caller's.
    """

    name: str
    waits_for: str | None = None
    key: Key | Callable[[Any], Key | None] | None = None
    args: tuple[Any, ...] | None = None


def _nothing(*_: Any, **__: Any) -> None:
    """A hook that does nothing."""


class Hooks(NamedTuple):
    """Functions that instruments call with what they notice in addition to scopes.

    Args:
        end_step: called when a library ends what it calls a step.
        sent: see `LedgerWriter`.
        event: see `LedgerWriter.event`.
        called: called before each call of an actor's method, with the name of the actor's class,
            the name of the method and the id of the actor.
        holds: called with the class of the actor that this process holds.
        sized: see `LedgerWriter.sized`.
        sample: see `Samples.add`.
        iterated: see `LedgerWriter.iterated`.
    """

    end_step: Callable[[], object] = _nothing
    sent: Callable[[int, bytes, tuple[bytes, ...]], object] = _nothing
    event: Callable[..., object] = _nothing
    called: Callable[[str, str, object], object] | None = None
    sized: Callable[[Any, int], object] = _nothing
    sample: Callable[[str, str, int, int, Mapping[str, float]], object] = _nothing
    holds: Callable[[type], object] = _nothing
    iterated: Callable[[int], object] = _nothing


NO_HOOKS = Hooks()


class Instrument:
    """Marks the waits of one library.

    A fault in the instrument itself switches the instrument off and is reported once. The library's
    functions keep working.

    Args:
        name: the instrument's name in the configuration.
        timing: the tree that gets the scopes.
        on_fault: called with a message after a fault.
        hooks: called with what the instrument notices in addition to scopes.

    Attributes:
        recording: the recording that the tree's scopes write to.
        on: whether calls are marked. False in a forked child, which has its own session.
        has_steps: whether the library has ended a step.
    """

    def __init__(
        self,
        name: str,
        timing: Timing,
        on_fault: Callable[[str], object],
        hooks: Hooks = NO_HOOKS,
    ) -> None:
        self.name = name
        self._hooks = hooks
        self.note_sent = hooks.sent
        self.note_called = hooks.called
        self.note_actor = hooks.holds
        self.note_event = hooks.event
        self.note_sample = hooks.sample
        self.note_iteration = hooks.iterated
        self._sized = hooks.sized
        self._timing = timing
        self.recording = recording_of(timing)
        self.on = True
        self.has_steps = False
        self._on_fault = on_fault
        self._undo: list[Callable[[], object]] = []
        _all.add(self)

    def after_import(
        self, module: str, install: Callable[[Instrument, ModuleType], object]
    ) -> None:
        """Call `install` once the job has imported a module; at once if it already has."""

        def apply(library: ModuleType) -> None:
            if self.on:
                self.guarded(install, self, library)

        after_import(module, apply)

    def around(self, owners: list[Any], attribute: str, before: Callable[..., Call | None]) -> None:
        """Put a scope around each call of a function.

        Args:
            owners: the modules or classes that have the function as an attribute.
            attribute: the name of the function.
            before: called with the arguments of each call, returns how to mark the call; ``None``
                leaves the call unmarked.

        Raises:
            UnexpectedError: the first owner has no such function.
        """
        self.replace(owners, attribute, lambda original: self.marked(original, before))

    def marked(
        self, original: Callable[..., Any], before: Callable[..., Call | None]
    ) -> Callable[..., Any]:
        """A function with a scope around each call; see `around`."""

        @functools.wraps(original)
        def marked(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not self.on:  # torch.compile must not trace gpuprof's code
                return original(*args, **kwargs)
            return self.call(before, original, args, kwargs)

        return marked

    def call(
        self,
        before: Callable[..., Call | None],
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
    ) -> Any:
        """Call a function inside a scope. Raises what the function raises, and nothing else.

        If the job itself has already opened a scope of the same name, no second scope is opened.
        """
        call = fault = None
        try:
            call = before(*args, **kwargs)
        except Exception as error:
            fault = error
        if call is None:
            result = function(*args, **kwargs)
            if fault is not None:  # not reached if the function itself rejects the arguments
                self.fail(fault)
            return result
        name, waits_for, key, others = call
        call_args = args if others is None else others
        return call_linked(
            self.recording, name, waits_for, key, function, call_args, kwargs, self.fail
        )

    async def call_coroutine(self, before: Callable[..., Call | None], coroutine: Any) -> Any:
        """Await a coroutine inside a scope, as `call` does."""
        scope_or_fault = self.begin(before, (), {})
        if not isinstance(scope_or_fault, tuple):
            result = await coroutine
            if scope_or_fault is not None:
                self.fail(scope_or_fault)
            return result
        call, scope = scope_or_fault
        scope._crosses_tasks = True
        try:
            result = await coroutine
        except BaseException as error:
            scope.__exit__(type(error), error, error.__traceback__)
            raise
        self.end(call, scope, result)
        return result

    def begin(
        self, before: Callable[..., Call | None], args: Any, kwargs: Any
    ) -> tuple[Call, LinkedScope] | Exception | None:
        """Open the scope of a call. Never raises.

        Returns:
            The call and its scope; ``None`` if there is nothing to mark; or the error with which
            this failed. The error is the job's own if the function rejects the same arguments.
        """
        try:
            call = before(*args, **kwargs)
            if call is None:
                return None
            # with a key function, so that the scope is of the class that can have a key
            scope = self._timing.add_time(call.name, None, call.waits_for, _no_key)
            if not isinstance(scope, LinkedScope):  # timing is switched off
                return None
            scope.__enter__()
        except Exception as error:
            return error
        return call, scope

    def end(self, call: Call, scope: LinkedScope, result: Any) -> None:
        """Close the scope of a call that has returned. Never raises."""
        scope.link = self.guarded(call.key, result) if callable(call.key) else call.key
        scope.__exit__(None, None, None)

    def innermost(self) -> str:
        """The name of the innermost open scope; empty without one."""
        node = self.recording.get_cursor().scope.node
        return "" if node is None else node.key or ""

    def end_step(self) -> None:
        """Call the hook for the end of a library's step. Never raises."""
        self.has_steps = True
        self.guarded(self._hooks.end_step)

    def note_size(self, size: int) -> None:
        """Note how many bytes the innermost open scope handles."""
        node = self.recording.get_cursor().scope.node
        if node is not None:
            self._sized(node, size)

    def replace(
        self, owners: list[Any], attribute: str, make: Callable[[Any], Callable[..., Any]]
    ) -> None:
        """Replace a function by ``make(original)``, until the marking ends.

        Raises:
            UnexpectedError: the first owner has no such function.
        """
        first = inspect.getattr_static(owners[0], attribute, None)
        if not callable(first):
            name = getattr(owners[0], "__qualname__", owners[0].__name__)
            raise UnexpectedError(f"it has no {name}.{attribute}")
        original = getattr(first, _MARK, first)  # a fork has its parent's
        static = isinstance(original, staticmethod)
        replacement = make(original.__func__ if static else original)
        replacement = staticmethod(replacement) if static else replacement
        setattr(replacement, _MARK, original)
        if isinstance(owners[0], ModuleType):
            # so that it is pickled by its name: where the job sends it, it is what is found there
            replacement.__module__, replacement.__qualname__ = owners[0].__name__, attribute
        for owner in owners:
            if inspect.getattr_static(owner, attribute, None) is first:
                setattr(owner, attribute, replacement)
                self._undo.append(
                    functools.partial(_put_back, owner, attribute, replacement, original)
                )

    def after(self, owners: list[Any], attribute: str, then: Callable[[], object]) -> None:
        """Call `then` after each call of a function that returns.

        Raises:
            UnexpectedError: the first owner has no such function.
        """

        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def followed(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                if self.on:
                    self.guarded(then)
                return result

            return followed

        self.replace(owners, attribute, make)

    def at_end(self, undo: Callable[[], object]) -> None:
        """Call `undo` when the marking ends."""
        self._undo.append(undo)

    def guarded(self, function: Callable[..., Result], *arguments: Any) -> Result | None:
        """Call a function of gpuprof's; a fault switches the instrument off. Never raises."""
        try:
            return function(*arguments)
        except Exception as error:
            self.fail(error)
            return None

    def fail(self, error: Exception) -> None:
        """Switch the instrument off after a fault, and report the fault."""
        if self.on:
            self.on = False
            what = (
                error if isinstance(error, UnexpectedError) else f"{type(error).__name__}: {error}"
            )
            self._on_fault(
                f"instruments: {self.name} is switched off here, the job goes on: {what}"
            )
            self.end_marking()

    def end_marking(self) -> None:
        """Put the library's functions back. Never raises."""
        self.on = False
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:
                self._on_fault(f"instruments: {self.name}: {type(error).__name__}: {error}")


def new_key(kind: str) -> str:
    """A key that no process of the run has used."""
    global _token
    if _token[0] != os.getpid():
        _token = os.getpid(), os.urandom(8).hex()
    return f"{kind}:{_token[1]}:{next(_numbers)}"


def is_marked(function: Any) -> bool:
    """Whether an instrument has replaced a function."""
    return hasattr(function, _MARK)


def short_name(function: Any) -> str:
    """A function's name, after the name of its class."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return ".".join(name.split(".")[-2:]).removeprefix("<locals>.")


def _no_key() -> Any:
    return None


def _switch_off() -> None:
    for instrument in _all:
        instrument.on = False


# checking the process id in each call would cost a system call
os.register_at_fork(after_in_child=_switch_off)


def _put_back(owner: Any, attribute: str, replacement: Any, original: Any) -> None:
    if (
        inspect.getattr_static(owner, attribute, None) is replacement
    ):  # else others have replaced it, too
        setattr(owner, attribute, original)
