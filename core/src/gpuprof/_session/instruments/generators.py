"""Generators: a call whose results come one by one releases each as it is there."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

from gpuprof._session.instruments.coroutines import Driven
from gpuprof._session.instruments.instrument import Call, Instrument

FIRST = 2
"""The number of the first item of a call of Ray, whose own result is number 1."""


class Stream:
    """A scope around each item of a generator.

    Args:
        instrument: what marks them.
        name: of the scopes.
        key_of: returns the key of an item, by its number; without one that of the call, which the
            last item releases, too.
    """

    def __init__(
        self, instrument: Instrument, name: str, key_of: Callable[[int | None], bytes]
    ) -> None:
        self._instrument = instrument
        self._name = name
        self._key_of = key_of

    def items(self, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """The items of a generator, which gets what is sent: Ray says how it stored an item."""
        value = None
        for number in itertools.count(FIRST):
            scope = self._begin()
            last = True
            try:
                item = generator.send(value)
                last = False
            except StopIteration as stop:
                return stop.value
            finally:
                self._end(scope, number, last)
            value = yield item
        raise AssertionError  # for type checkers

    async def async_items(
        self, generator: AsyncGenerator[Any, Any], before: Callable[[], object]
    ) -> AsyncGenerator[Any, Any]:
        """The same of an asynchronous generator.

        Args:
            before: called first, in its event loop.
        """
        value = None
        for number in itertools.count(FIRST):
            scope = self._begin(before if number == FIRST else None)
            last = True
            try:
                step = generator.asend(value)
                item = await Driven(self._instrument, step, owner=generator)
                last = False
            except StopAsyncIteration:
                return
            finally:
                self._end(scope, number, last)
            try:
                value = yield item
            except GeneratorExit:
                await generator.aclose()
                raise

    def _begin(self, before: Callable[[], object] | None = None) -> Any:
        if not self._instrument.on:
            return None

        def call() -> Call:
            if before is not None:
                before()
            return Call(self._name)

        return self._instrument.begin(call, (), {})

    def _end(self, opening: Any, number: int, last: bool) -> None:
        if isinstance(opening, Exception):
            self._instrument.fail(opening)
        elif opening is not None:
            call, scope = opening

            def keys(_: object) -> tuple[str, ...]:
                # the call's with the first item, too: its beginning is the call's
                whole = (self._key_of(None),) if last or number == FIRST else ()
                return (self._key_of(number), *whole)

            self._instrument.end(call._replace(key=keys), scope, None)
