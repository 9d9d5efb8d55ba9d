"""Reading a tree: by key, as text, as a table, as metrics, as data."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from gpuprof_timing._node import text_of, tree_to_dicts, walk
from gpuprof_timing._render import tree_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Literal, TypeAlias

    from gpuprof_timing._node import Node
    from gpuprof_timing._recording import Recording

DeviceReading: TypeAlias = 'Literal["wait", "ready", "known"]'
"""Which GPU times to read first; see `Timing.to_dict`."""
FORMAT_VERSION = 1


class Reading(Mapping[str, float]):
    """The half of `Timing` that only reads. Documented there."""

    _recording: Recording
    _wall: int
    _began: int
    _found: tuple[object, dict[str, list[Node]]] = (None, {})

    @property
    def name(self) -> str:
        """The title of the printed tree."""
        return self._recording.name

    @name.setter
    def name(self, name: str) -> None:
        self._recording.name = name

    # Flat access

    def _find(self) -> dict[str, list[Node]]:
        """Every key by the tree's levels, with its places that are not below another of its own.

        Cached until the tree gets another place: otherwise reading all keys would walk the tree for
        each.
        """
        # taken first: a place that is added during the walk may be missed
        shape = self._recording.shape
        if self._found[0] is not shape:
            index: dict[str, list[Node]] = {}
            pending = deque([self._recording.root])
            while pending:
                for node in pending.popleft().descend():
                    places = index.setdefault(node.key, [])
                    if not node.lies_below_its_key:
                        places.append(node)
                    pending.append(node)
            self._found = shape, index
        return self._found[1]

    def __getitem__(self, key: str) -> float:
        nodes = self._find().get(text_of(key))
        if nodes is None:
            raise KeyError(key)
        if nodes[0].kind == "timeit":
            return max(nodes, key=lambda node: node.ended).last / 1e9
        if nodes[0].kind == "time_avg":
            windows = [node.windowed() for node in nodes]
            count = sum(count for _, count in windows)
            return sum(total for total, _ in windows) / count / 1e9 if count else 0.0
        now = self._recording.clock()
        return sum(node.elapsed(now) for node in nodes) / 1e9

    def __getattr__(self, key: str) -> float:
        # Private names are never keys here: copy and pickle look for them before there is a tree.
        if not key.startswith("_"):
            try:
                return self[key]
            except KeyError:
                pass
        recording = self.__dict__.get("_recording")
        raise AttributeError(
            f"{type(self).__name__} {recording and recording.name!r} has no attribute and no key "
            f"{key!r}"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._find())

    def __len__(self) -> int:
        return len(self._find())

    def __bool__(self) -> bool:
        return bool(self._recording.root.children)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    # Reports

    def __str__(self) -> str:
        return "\n".join(
            [f"{self.name} tree view:", *tree_lines(self._recording.root, self._recording.clock())]
        )

    def __repr__(self) -> str:
        return f"Timing({self.name!r}, keys={len(self)})"

    def flat_str(self) -> str:
        """Every key once, on one line: ``train: 1.5000, forward: 0.5000``."""
        return ", ".join(f"{key}: {value:.4f}" for key, value in self.items())

    def text(self, other: float = 0.05) -> str:
        """Like `str`, plus ``(other)`` where a large part of a scope's time is its own.

        ``(other)`` is the time of an `add_time` scope outside of the scopes inside it.

        Args:
            other: the share of a scope's time above which it is shown, from a millisecond on.

        >>> from gpuprof_timing import Timing
        >>> ticks = iter([0] * 4 + [1_000_000_000] + [4_000_000_000] * 2)
        >>> timing = Timing("t", clock=lambda: next(ticks))
        >>> with timing.add_time("train"), timing.add_time("forward"):
        ...     pass
        >>> print(timing.text())
        t tree view:
        train: 4.0000
          forward: 1.0000, (other): 3.0000
        """
        lines = tree_lines(self._recording.root, self._recording.clock(), other)
        return "\n".join([f"{self.name} tree view:", *lines])

    def rows(self) -> list[dict[str, str]]:
        """The rows of `table`, as text by column."""
        from gpuprof_timing._table import table_rows

        self._read_device("wait")
        now = self._recording.clock()
        return table_rows(self._recording.root, now, now - self._began)

    def table(self, format: str = "simple") -> str:  # noqa: A002 - the word that users try first
        """The tree as a table, with a row for each place.

        Columns: calls, total, mean, extremes, deviation, shares, time on the GPU. Times are
        seconds, below a millisecond as ``4.91e-07``. ``% parent`` is the share of the scope around
        it, ``% run`` the share of the time since the tree began. ``(other)`` is a place's time
        outside of its children. ``∥`` marks a place whose children took more time than itself, as
        they ran in parallel. `open` counts the open scopes; `total` includes their time so far. May
        wait for the GPU, to read its last times.

        Args:
            format: a table format of tabulate's, such as ``github`` for Markdown.

        Raises:
            ImportError: tabulate is not installed.
            ValueError: it has no such format.
        """
        from gpuprof_timing._table import table

        return table(self.rows(), format)

    def metrics(self, prefix: str = "") -> dict[str, float]:
        """Each place's value in seconds, keys joined by ``/``, for TensorBoard or W&B.

        A ``/`` inside a key becomes ``%2F`` and a ``%`` becomes ``%25``, so that two places never
        have one name.

        >>> from gpuprof_timing import Timing
        >>> timing = Timing(clock=lambda: 0)
        >>> with timing.add_time("a"), timing.add_time("b"), timing.add_time("c/d"):
        ...     pass
        >>> list(timing.metrics("time/"))
        ['time/a', 'time/a/b', 'time/a/b/c%2Fd']
        """
        now = self._recording.clock()
        values: dict[str, float] = {}
        path: list[str] = []
        for node in walk(self._recording.root):
            path[node.depth - 1 :] = [node.key.replace("%", "%25").replace("/", "%2F")]
            values[prefix + "/".join(path)] = node.shown(now)
        return values

    def to_dict(self, device: DeviceReading = "wait") -> dict[str, Any]:
        """The whole tree as JSON-compatible values. Durations are nanoseconds.

        Args:
            device: which times on the GPU are in it. ``wait``: all, which waits for the GPU;
                ``ready``: those that the GPU has finished; ``known``: those that scopes have found
                finished as they ended. Only ``known`` makes no call on the device: a call from any
                thread breaks the capture of a CUDA graph in the mode ``global``.

        Raises:
            ValueError: another word.
        """
        if device not in ("wait", "ready", "known"):
            raise ValueError(f"device={device!r}: expected 'wait', 'ready' or 'known'")
        self._read_device(device)
        now = self._recording.clock()
        return {
            "version": FORMAT_VERSION,
            "name": self.name,
            "run": now - self._began,
            "children": tree_to_dicts(self._recording.root, now, self._wall),
        }

    def _read_device(self, device: DeviceReading) -> None:
        if device != "known" and self._recording.device_times is not None:
            self._recording.device_times.resolve(wait=device == "wait")
