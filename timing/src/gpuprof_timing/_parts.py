"""A run cut into parts of two kinds, each kind with a tree of its own."""

from __future__ import annotations

import threading

from gpuprof_timing._merge import add_sums, common_pairs, pairs, subtract
from gpuprof_timing._node import NEVER, Node, walk
from gpuprof_timing._timing import Timing, _stand_still

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuprof_timing._reading import DeviceReading


class Parts:
    """Adds up the parts of a run by kind. The tree that is cut stays whole.

    Each part takes the time that a scope spent in it; the scope itself counts where it ends.

    Args:
        timing: the tree.
        since: a snapshot of it, where the first part begins; ``None`` for its beginning.

    >>> ticks = iter(range(0, 10**12, 1_000_000_000))
    >>> timing = Timing("t", clock=lambda: next(ticks))
    >>> parts = Parts(timing)
    >>> for apart in (False, True, False):
    ...     parts.cut(apart)
    ...     with timing.add_time("step"):
    ...         pass
    >>> ordinary, kept_apart = parts.trees()
    >>> ordinary["step"], kept_apart["step"], timing["step"]
    (2.0, 1.0, 3.0)
    """

    def __init__(self, timing: Timing, since: Timing | None = None) -> None:
        self._timing = timing
        self._since = since
        self._sums: dict[bool, Timing] = {}
        self._apart = False
        self._lock = threading.Lock()  # one thread cuts while another one reads

    def cut(self, apart: bool) -> None:
        """End a part of the run, and begin the next one.

        Asks nothing of the GPU: of its times, a part has those that scopes have found.

        Args:
            apart: the kind of the next one.
        """
        with self._lock:
            if apart != self._apart:
                part, whole = self._part()
                self._sums[self._apart] = self._sum(self._apart, part, ended=True)
                _forget_extremes(self._timing._recording.root)
                self._since = whole
                self._apart = apart

    def trees(self, device: DeviceReading = "known") -> tuple[Timing, Timing | None]:
        """The sum of the ordinary parts, and that of the parts of the other kind, if any.

        Args:
            device: which times on the GPU are read first, as `Timing.to_dict` has it.
        """
        self._timing._read_device(device)
        with self._lock:
            part, _ = self._part()
            sums = {**self._sums, self._apart: self._sum(self._apart, part, ended=False)}
        for tree in sums.values():
            tree.name = self._timing.name
        return sums.get(False, self._empty()), sums.get(True)

    def _part(self) -> tuple[Timing, Timing]:
        """The part of the run since the last cut, and the whole of it."""
        epoch = self._timing._recording.epoch
        data = self._timing.to_dict("known")
        part, whole = Timing.from_dict(data), Timing.from_dict(data)
        whole._epoch = epoch
        since = self._since
        if since is not None and since._epoch is not None and since._epoch != epoch:
            self._sums.clear()  # the tree was reset: what was before is gone from it, too
            since = None
        if since is not None:
            subtract(part._recording.root, since._recording.root)
            part._began -= since._began
        _refine(part._recording.root, self._timing._recording.root)
        return part, whole

    def _sum(self, apart: bool, part: Timing, ended: bool) -> Timing:
        earlier = self._sums.get(apart)
        total = self._empty() if earlier is None else Timing.from_dict(earlier.to_dict())
        _append(total._recording.root, part._recording.root, ended)
        total._began += part._began
        return total

    def _empty(self) -> Timing:
        tree = Timing(self._timing.name, clock=_stand_still, enabled=True)
        tree._wall = 0
        return tree


def _refine(part: Node, live: Node) -> None:
    """Add to a difference what only the living tree knows: extremes, and which scopes are new."""
    for node, place in common_pairs(part, live):  # a place may just have been reset
        node.minimum, node.maximum = place.minimum, place.maximum
        if not node.count:
            node.last = node.ended = 0
        if node.window is not None:
            old = max(0, len(node.window) - node.count)
            for _ in range(old):
                node.window.popleft()
        if node.elapsed_open < 0 and not node.open:  # a scope has ended that is older than the part
            node.total += node.elapsed_open
            node.elapsed_open = 0
            if node.count == 1:
                _set_only_duration(node)


def _set_only_duration(node: Node) -> None:
    node.last = node.minimum = node.maximum = node.total
    node.squares = node.total * node.total
    if node.window:
        node.window[-1] = node.total


def _append(total: Node, part: Node, ended: bool) -> None:
    """Add a part to the sum of those before it."""
    for mine, node in pairs(total, part):
        _add(mine, node, ended)


def _add(mine: Node, node: Node, ended: bool) -> None:
    add_sums(mine, node)
    if node.count:
        mine.last, mine.ended = node.last, node.ended
    if mine.window is not None and node.window is not None:
        mine.window.extend(node.window)
    if ended:
        mine.total += node.elapsed_open
    else:
        mine.elapsed_open += node.elapsed_open
    mine.entered = mine.count + (0 if ended else node.open)
    if mine.count == 1:  # with its time in earlier parts
        _set_only_duration(mine)


def _forget_extremes(root: Node) -> None:
    """Begin new extremes; each node keeps those of the whole run."""
    for node in walk(root):
        # without a call in between: see `gpuprof_timing._scope`
        if node.minimum < node.past_minimum:
            node.past_minimum = node.minimum
        if node.maximum > node.past_maximum:
            node.past_maximum = node.maximum
        node.minimum = NEVER
        node.maximum = 0
