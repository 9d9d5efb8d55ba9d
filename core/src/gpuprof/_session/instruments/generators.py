"""Generators: a call whose results come one by one releases each result's key when it is ready."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

from gpuprof._session.instruments.coroutines import Driven
from gpuprof._session.instruments.instrument import Call, Instrument

FIRST = 2
"""The number of the first item of a generator call in Ray. Number 1 is the call's own result."""


class Stream:
    """A scope around each item of a generator.

    Args:
        instrument: puts in the scopes.
        name: the name of the scopes.
        key_of: returns the key of the item with a number; for ``None``, the key of the call. The
            first and the last item release the call's key as well.
    """

    def __init__(
        self, instrument: Instrument, name: str, key_of: Callable[[int | None], bytes]
    ) -> None:
        self._instrument = instrument
        self._name = name
        self._key_of = key_of

    def items(
        self, generator: Generator[Any, Any, Any], done: Callable[[bytes], object]
    ) -> Generator[Any, Any, Any]:
        """Yield the items of a generator, and pass on the values sent to it.

        Ray sends a value that says how it stored the item.

        Args:
            generator: the generator.
            done: called with each item's key before the item is stored.
        """
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
            done(self._key_of(number))
            value = yield item
        raise AssertionError  # for type checkers

    async def async_items(
        self, generator: AsyncGenerator[Any, Any], before: Callable[[], object]
    ) -> AsyncGenerator[Any, Any]:
        """Yield the items of an asynchronous generator; see `items`.

        Args:
            generator: the asynchronous generator.
            before: called before the first item, in the generator's event loop.
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
                # the first item also gets the call's key: the call begins when that item does
                whole = (self._key_of(None),) if last or number == FIRST else ()
                return (self._key_of(number), *whole)

            self._instrument.end(call._replace(key=keys), scope, None)
