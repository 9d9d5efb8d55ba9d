"""Time on the GPU's stream, from events that are read later: no scope waits for the GPU."""

from __future__ import annotations

import sys
from collections import deque

from gpuprof_timing._scope import Scope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, Protocol, TypeVar

    from gpuprof_timing._decorate import Arguments
    from gpuprof_timing._node import Node

    Self = TypeVar("Self", bound="DeviceScope")

    class EventProvider(Protocol):
        """Records and reads events, which are opaque here."""

        def begin(self) -> Any:
            """Record an event on the current stream.

            Returns a handle; ``None`` if impossible now.
            """

        def end(self, begun: Any) -> Any:
            """Record the second event, on the device and stream of the first.

            Returns a handle of the pair; ``None`` if impossible now.
            """

        def elapsed(self, pair: Any) -> int | None:
            """Nanoseconds between the two, or ``None`` while the GPU has not passed both.

            Must not wait.
            """

        def wait(self, pair: Any) -> None:
            """Wait until the GPU has passed both."""


_AT_ONCE = 4
"""Pairs checked when a scope ends: enough to keep up, few enough to be cheap."""


class DeviceTimes:
    """The pairs of events that the GPU has not passed yet.

    A provider that raises is not used again.

    Args:
        provider: records and reads the events.
    """

    def __init__(self, provider: EventProvider) -> None:
        self._provider: EventProvider | None = provider
        self._pending: deque[tuple[Node, Any]] = deque()

    def begin(self) -> Any:
        """Record the first event of a pair; ``None`` if impossible."""
        try:
            return self._provider.begin() if self._provider is not None else None
        except Exception as error:
            self._give_up(error)

    def end(self, node: Node, begun: Any) -> None:
        """Record the second event, store the pair, and read the oldest pairs that are ready.

        Reads nothing if the second event is missing, as this thread is capturing a CUDA graph.
        Captures in other threads cannot be detected; reading breaks one in the mode ``global``.
        """
        try:
            pair = self._provider.end(begun) if self._provider is not None else None
            if pair is not None and self._provider is not None:
                self._pending.append((node, pair))
                for _ in range(_AT_ONCE):
                    if not self._read_first(self._provider):
                        break
        except Exception as error:
            self._give_up(error)

    def resolve(self, wait: bool) -> None:
        """Read all pairs that are ready; with `wait`, wait for the GPU and read all pairs.

        For reports, never inside a scope.
        """
        try:
            while self._pending and self._provider is not None:
                if not self._read_first(self._provider, wait) and not wait:
                    break
        except Exception as error:
            self._give_up(error)

    def forget(self) -> None:
        """Drop all pairs unread."""
        self._pending.clear()

    def _read_first(self, provider: EventProvider, wait: bool = False) -> bool:
        try:
            node, pair = self._pending.popleft()
        except IndexError:  # another thread was faster
            return False
        if wait:
            provider.wait(pair)
        duration = provider.elapsed(pair)
        if duration is None:
            self._pending.appendleft((node, pair))
            return False
        node.device_count += 1
        node.device_total += duration
        return True

    def _give_up(self, error: Exception) -> None:
        import logging

        self._provider = None
        self._pending.clear()
        logging.getLogger("gpuprof.timing").warning(
            "time on the GPU is not measured any more: %s: %s", type(error).__name__, error
        )


class DeviceScope(Scope):
    """A scope that also measures the time between two events on the current stream."""

    __slots__ = ("_begun",)

    def _another(self, crosses_tasks: bool, arguments: Arguments) -> Scope:
        scope = self.recording.add_time(self.place, "cuda")
        scope._crosses_tasks = crosses_tasks
        return scope

    def __enter__(self: Self) -> Self:
        if self.node is not None:
            return super().__enter__()  # which refuses
        self._begun = None
        try:
            super().__enter__()
            times = self.recording.device_times
            # In recursion only the outermost scope counts the time.
            if times is not None and self.started is not None:
                self._begun = times.begin()
        except BaseException as error:  # a signal's handler has raised: no `with` will leave this
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        times = self.recording.device_times
        try:
            if times is not None and self.node is not None and self._begun is not None:
                times.end(self.node, self._begun)
        finally:
            super().__exit__(kind, error, trace)


class CudaEvents:
    """torch's events, at most `pool` per device kept for reuse."""

    def __init__(self, pool: int = 1024) -> None:
        self._pool = pool
        self._free: dict[int, deque[Any]] = {}

    def begin(self) -> Any:
        """Record on the current stream and device; ``None`` while a CUDA graph is captured."""
        cuda = sys.modules["torch"].cuda
        if cuda.is_current_stream_capturing():
            return None
        stream = cuda.current_stream()
        return self._record(stream), stream

    def end(self, begun: Any) -> Any:
        """Record on the same stream; ``None`` if a CUDA graph's capture began inside the scope."""
        first, stream = begun
        if sys.modules["torch"].cuda.is_current_stream_capturing():
            return None
        return first, self._record(stream), stream.device.index

    def elapsed(self, pair: Any) -> int | None:
        """Read, and keep the events for the next scope."""
        first, last, device = pair
        if not last.query():
            return None
        self._free.setdefault(device, deque(maxlen=self._pool)).extend((first, last))
        return int(first.elapsed_time(last) * 1e6)

    def wait(self, pair: Any) -> None:
        """Wait for the second event."""
        pair[1].synchronize()

    def _record(self, stream: Any) -> Any:
        try:
            event = self._free[stream.device.index].popleft()
        except (KeyError, IndexError):
            event = sys.modules["torch"].cuda.Event(enable_timing=True)
        event.record(stream)
        return event


def find_provider() -> EventProvider | None:
    """torch's events; ``None`` without torch or a GPU, when scopes measure only the CPU."""
    return CudaEvents() if sys.modules["torch"].cuda.is_available() else None
