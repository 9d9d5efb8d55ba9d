"""Steps set by the key ``step_at``: the calls of a function, or of an actor's method."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType, ModuleType
from typing import Any

from gpuprof._session.instruments.instrument import Instrument, UnexpectedError

MAIN, SPAWNED = "__main__", "__mp_main__"
"""The names of the program's own script, and of the same in the processes that it spawns."""
_MOST_SEEN = 20

Mark = Callable[[int], AbstractContextManager[object]]

start_session: Callable[[], object] = list
"""Starts the session of a fork. Set by `public`, which imports this; until then it does nothing."""
_here: StepAt | None = None
"""What marks the steps of this process or, in a fork without a session, those of its parent."""


class StepAt:
    """Marks the steps of this process, from 0.

    Args:
        name: ``module:Class.method`` or ``module:function``; or ``Class.method`` for the method of
            an actor that this process calls, or holds and calls.
        mark: makes the step with a given number.
    """

    def __init__(self, name: str, mark: Mark, instrument: Instrument) -> None:
        self._instrument = instrument
        self._module, _, self._path = name.rpartition(":")
        self.name = name
        self._mark = mark
        self._number = 0
        self._running = False
        self._step: AbstractContextManager[object] | None = None
        self._counted: object = None
        self._others: set[object] = set()
        self._seen: dict[str, None] = {}
        self._actors: set[type] = set()
        self._problem = ""
        self._pid = os.getpid()

    # A function

    def install(self) -> None:
        """Follow the function, if `name` is that of a function and not of an actor's method."""
        global _here
        _here = self
        if self._module in (MAIN, SPAWNED):
            self._when_defined()
        elif self._module:
            self._problem = f"{self._module} was never imported"
            self._instrument.after_import(self._module, lambda _, module: self._replace(module))

    def _replace(self, module: ModuleType | _Variables) -> None:
        self._problem = ""
        owner: Any = module
        *classes, name = self._path.split(".")
        for class_name in classes:
            owner = getattr(owner, class_name, None)
        if owner is None or not hasattr(owner, name):
            self._problem = f"{self._module} has no {self._path}"
            raise UnexpectedError(self._problem)
        owners = [owner]
        if self._module == SPAWNED and not classes:  # Python has copied the script's variables
            owners.append(_Variables(_variables_of(getattr(owner, name))))
        self._instrument.replace(owners, name, self._around)

    def _around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the function so that each outermost call is a step."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def step(*args: Any, **kwargs: Any) -> Any:
                steps = self.of_this_process()
                outermost = steps.enter()
                try:
                    return await function(*args, **kwargs)
                finally:
                    steps.leave(outermost)

        else:

            @functools.wraps(function)
            def step(*args: Any, **kwargs: Any) -> Any:
                steps = self.of_this_process()
                outermost = steps.enter()
                try:
                    return function(*args, **kwargs)
                finally:
                    steps.leave(outermost)

        return step

    def of_this_process(self) -> StepAt:
        """Itself; or in a fork, which has its parent's function, what marks the steps there.

        Starts the fork's session, unless the steps are the parent's. Never raises.
        """
        if not self._instrument.on and self._pid != os.getpid():
            if self is _here and not self._number:
                self._instrument.guarded(start_session)
            return self if _here is None else _here
        return self

    def enter(self) -> bool:
        """Begin a step, unless one is running. Returns whether a step was begun. Never raises."""
        if self._running or not self._instrument.on:
            return False
        self._running = True
        self._begin()
        return True

    def leave(self, outermost: bool) -> None:
        """End the step, if the call has begun one. Never raises.

        Args:
            outermost: what `enter` returned for the call.
        """
        if outermost:
            self._running = False
            self._end()

    def __reduce__(self) -> tuple[type[_Elsewhere], tuple[()]]:
        """Pickle as an object that marks nothing.

        The job may send the wrapped function to another process, and this object with it.
        """
        return _Elsewhere, ()

    def _when_defined(self) -> None:
        """Replace the function once the program's own script has defined it.

        The script is not imported, so its lines are traced until the function exists.
        """
        first = self._path.partition(".")[0]

        def replaced() -> bool:
            module = sys.modules.get(self._module)
            if module is None or first not in vars(module):
                return False
            self._instrument.guarded(self._replace, module)
            return True

        def lines(_: FrameType, event: str, __: object) -> Any:
            if not replaced():
                return lines
            sys.settrace(None)
            return None

        def calls(frame: FrameType, event: str, _: object) -> Any:
            name = frame.f_code.co_name
            if name == "<module>":
                module = sys.modules.get(self._module)
                return lines if module and frame.f_globals is vars(module) else None
            if name == "_bootstrap":  # a spawned process has read its script, and begins
                sys.settrace(None)
            return None

        if replaced():  # in a fork
            return
        if sys.gettrace() is None:
            self._problem = f"the program has not defined {self._path}"
            sys.settrace(calls)
        else:
            self._problem = "a debugger follows the program's own functions"

    # An actor's method

    def called(self, class_name: str, method: str, actor: object) -> None:
        """Note that this process is about to call a method of an actor.

        A loop may call the method on several actors. A step ends when the method is called on the
        same actor again.
        """
        name = f"{class_name}.{method}"
        if self._module or name != self._path:
            if len(self._seen) < _MOST_SEEN:
                self._seen[name] = None
            return
        if self._counted is not None and actor != self._counted and actor not in self._others:
            self._others.add(actor)
            return
        self._counted, self._others = actor, set()
        self._end()
        self._begin()

    def held(self, actor: type) -> None:
        """Note the class of the actor that this process holds.

        The actor may call the method itself, as a loop does that runs inside it. Calls from other
        processes are steps of theirs: Ray has looked up the method before it is replaced here.

        A function of the script comes with the class: its methods see a copy of the script's
        variables, as the script is no module here.
        """
        if actor in self._actors:
            return
        self._actors.add(actor)
        modules = {owner.__module__ for owner in actor.__mro__}
        is_script = self._module == MAIN or self._module not in sys.modules
        if self._module in modules and is_script:
            self._instrument.guarded(self._replace_copies, actor)
        class_name, _, method = self._path.rpartition(".")
        if actor.__name__ == class_name and hasattr(actor, method):
            self._instrument.guarded(self._instrument.replace, [actor], method, self._around)

    def _replace_copies(self, actor: type) -> None:
        functions = (function for owner in actor.__mro__ for function in vars(owner).values())
        copies = {id(copy): copy for copy in map(_variables_of, functions)}
        for copy in copies.values():
            # a method of an actor is not in the copy that its own methods see
            if "." not in self._path and self._path in copy and copy is not vars(sys.modules[MAIN]):
                self._replace(_Variables(copy))

    # Both

    def _begin(self) -> None:
        try:
            self._step = self._mark(self._number)
            self._number += 1
            self._step.__enter__()
        except Exception as error:
            self._step = None
            self._instrument.fail(error)

    def _end(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            try:
                step.__exit__(None, None, None)
            except Exception as error:
                self._instrument.fail(error)

    @property
    def why_none(self) -> str:
        """Why there was no step; empty if there was one."""
        if self._number:
            return ""
        why = self._problem or "this process never called it"
        calls = f"; it called {', '.join(self._seen)}" if self._seen else ""
        return f"step_at: {self.name} has marked no step: {why}{calls}"


class _Elsewhere:
    """Takes the place of `StepAt` in a process that the function was sent to. Marks nothing."""

    def of_this_process(self) -> _Elsewhere:
        return self

    def enter(self) -> bool:
        return False

    def leave(self, outermost: bool) -> None:
        pass


class _Variables:
    """Global variables as attributes."""

    def __init__(self, variables: dict[str, Any]) -> None:
        self.__dict__ = variables


def _variables_of(function: Any) -> dict[str, Any]:
    """The global variables that a function sees; none if it is not one of Python's own."""
    variables: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    return variables
