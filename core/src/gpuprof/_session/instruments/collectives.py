"""torch.distributed: the ranks of a process group wait for each other in each collective.

So do the sender and the receiver of a message, of which gloo keeps no copy. Messages between two
ranks arrive in the order in which they are sent, so the n-th one has the same key in both.

The ledger gets the ranks of each process group once. They show which ranks have the same role.

On a GPU, a collective returns when it is queued, so only the host's waits are recorded.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import json
import os
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from gpuprof._session import dump
from gpuprof._session.instruments.instrument import Call, Instrument, UnexpectedError
from gpuprof._session.instruments.loops import Loops
from gpuprof._session.ledger import PROCESS_GROUP

COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
)
"""The collectives to mark. A release of torch may lack some of them."""
POINT_TO_POINT = ("send", "recv", "isend", "irecv")
MESSAGES = ("torch.send", "torch.recv")
"""The scopes of those that wait. They call the others."""
_MAKERS = ("init_process_group", "new_group", "_new_group_with_tag", "split_group")
"""The functions that make process groups. A DeviceMesh keeps its own reference to `new_group`, so
its calls are noticed in the private function that `new_group` calls."""
_FRAMES_ABOVE = 5
"""From `Loops.note` to the caller of a collective."""
_MOST_GROUPS = 512
"""The most process groups to note, since a job may make one in each step."""


def runs(numbers: Iterable[int]) -> list[tuple[int, int, int]]:
    """Compress numbers into stretches of evenly spaced ones, each as (first, step, count).

    >>> runs(range(4096)), runs([1, 3, 5, 7]), runs([4]), runs([0, 1, 5, 9])
    ([(0, 1, 4096)], [(1, 2, 4)], [(4, 1, 1)], [(0, 1, 2), (5, 4, 2)])
    """
    stretches: list[tuple[int, int, int]] = []
    for number in numbers:
        first, step, count = stretches[-1] if stretches else (0, 0, 0)
        if count == 1:
            stretches[-1] = first, number - first, 2
        elif count and number == first + step * count:
            stretches[-1] = first, step, count + 1
        else:
            stretches.append((number, 1, 1))
    return stretches


class _Group:
    """A process group, with a unique name that its ranks agree on."""

    def __init__(self, group: Any, store: Any) -> None:
        self._group = weakref.ref(group)
        name = os.urandom(8).hex()
        # the first rank names the group; no rank waits for another
        self.name = bytes(store.compare_set("gpuprof", "", name)).decode()
        self._between_two = 0
        self._messages: Counter[tuple[object, ...]] | None = Counter()

    @property
    def group(self) -> Any:
        """The group itself."""
        return self._group()

    @property
    def counted(self) -> int:
        """How many collectives the group has begun; the same number on all ranks."""
        return int(self.group._get_sequence_number_for_group()) - self._between_two

    def leave_out(self, since: int) -> None:
        """Take calls between two ranks out of the count, if the backend counts them.

        Args:
            since: the count before those calls.
        """
        self._between_two += self.counted - since

    def message(self, name: str, source: int | None, target: int | None, tag: int) -> str | None:
        """The key of the next message that this rank sends or receives.

        ``None`` once it has received from any rank: then nobody knows which messages those were.

        Args:
            name: the function that sends or receives.
            source: the rank in the group that sends it; ``None``: any.
            target: the rank that receives it.
        """
        if source is None:
            self._messages = None
        if self._messages is None:
            return None
        way = name.endswith("send"), source, target, tag
        self._messages[way] += 1
        return f"message:{self.name}:{source}:{target}:{tag}:{self._messages[way]}"


def _install(instrument: Instrument, distributed: ModuleType) -> None:
    if not distributed.is_available():
        return
    c10d = distributed.distributed_c10d
    with contextlib.suppress(ImportError):  # torch.compile finds the originals there
        importlib.import_module(f"{distributed.__name__}._functional_collectives")
    if not hasattr(c10d.ProcessGroup, "_get_sequence_number_for_group"):
        raise UnexpectedError("this release of torch does not number its collectives")
    store_of = c10d._get_process_group_store
    groups: weakref.WeakKeyDictionary[Any, _Group] = weakref.WeakKeyDictionary()
    keys: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    loops = Loops(instrument)
    old_groups: weakref.WeakSet[Any] = weakref.WeakSet()
    count = itertools.count()

    def note_loop() -> None:
        if not instrument.innermost().startswith("torch."):  # else a collective calls another one
            loops.note(_FRAMES_ABOVE)

    def note_groups() -> None:
        if not distributed.is_initialized():
            return
        rank = distributed.get_rank()
        for group, ranks in list(c10d._world.pg_group_ranks.items()):
            if rank in ranks and group not in old_groups and next(count) < _MOST_GROUPS:
                old_groups.add(group)
                name = getattr(group, "group_desc", None) or ""
                instrument.note_event(PROCESS_GROUP, name=name, rank=rank, ranks=runs(ranks))

    def group_of(argument: Any) -> _Group | None:
        if not distributed.is_initialized() or c10d._rank_not_in_group(argument):
            return None
        group = c10d._get_default_group() if argument is None else argument
        known_group = groups.get(group)
        if known_group is None:
            known_group = groups[group] = _Group(group, store_of(group))
        return known_group

    def collective(function: Callable[..., Any]) -> Callable[..., Call | None]:
        name, signature = function.__name__, inspect.signature(function)

        def before(*args: Any, **kwargs: Any) -> Call | None:
            arguments = signature.bind(*args, **kwargs).arguments
            group = group_of(arguments.get("group"))
            if group is None:
                return None
            note_loop()
            number = group.counted

            def key(result: Any) -> str | None:
                if group.counted == number:
                    return None  # this backend does not count
                link = f"dist:{group.name}:{number}:{name}"
                if result is not None:
                    keys[result] = link
                return link

            # An asynchronous call does not wait here. Other ranks that wait are waiting for it.
            return Call(f"torch.{name}", None if arguments.get("async_op") else "barrier", key)

        return before

    def between_two(function: Callable[..., Any]) -> Callable[..., Call | None]:
        name, signature = function.__name__, inspect.signature(function)
        sends, waits = name.endswith("send"), not name.startswith("i")

        def before(*args: Any, **kwargs: Any) -> Call | None:
            if instrument.innermost() in MESSAGES:
                return None
            note_loop()
            arguments = signature.bind(*args, **kwargs).arguments
            group = group_of(arguments.get("group"))
            if group is None:
                return None
            end = "dst" if sends else "src"
            peer = arguments.get(f"group_{end}")
            if peer is None and arguments.get(end) is not None:
                peer = c10d.get_group_rank(group.group, arguments[end])
            own = distributed.get_rank(group.group)
            source, target = (own, peer) if sends else (peer, own)
            link = group.message(name, source, target, arguments.get("tag", 0))
            number = group.counted

            def key(result: Any) -> str | None:
                group.leave_out(number)
                if link is not None and result is not None and not waits:
                    keys[result] = link
                return link

            waits_for = "*" if link is None else "barrier"
            return Call(f"torch.{name}", waits_for if waits else None, key)

        return before

    def wait(work: Any, *_: Any, **__: Any) -> Call | None:
        note_loop()
        key = keys.pop(work, None)
        return None if key is None else Call("torch.wait", "*", key)

    owners = [c10d, distributed]
    for names, before in ((COLLECTIVES, collective), (POINT_TO_POINT, between_two)):
        for name in names:
            if hasattr(c10d, name):
                original = inspect.unwrap(getattr(c10d, name))
                instrument.around(owners, name, before(original))
    instrument.around([c10d.Work], "wait", wait)
    for name in _MAKERS:
        if hasattr(c10d, name):
            instrument.after(owners, name, note_groups)
    note_groups()

    def now() -> list[dict[str, Any]]:
        """Each process group, with the number of collectives that this rank has begun in it.

        Those that torch itself begins, as in a step backwards, count, too.
        """
        rows = []
        for group, ranks in list(c10d._world.pg_group_ranks.items()):
            if distributed.get_rank() not in ranks:
                continue
            known_group = groups.get(group)
            with contextlib.suppress(RuntimeError):  # this backend does not count
                counted = (
                    group._get_sequence_number_for_group()
                    if known_group is None
                    else known_group.counted
                )
                name = c10d._world.pg_names.get(group, "")
                rows.append({"name": name, "ranks": runs(ranks), "begun": counted})
        return rows

    dump.states["rank of job"] = lambda: (
        distributed.get_rank() if distributed.is_initialized() else None
    )
    dump.states["groups"] = now
    dump.states["flight"] = lambda: _oldest_in_flight(sys.modules["torch._C._distributed_c10d"])


def _oldest_in_flight(binding: ModuleType) -> list[dict[str, Any]]:
    """The oldest collective of each process group that has not ended, says torch's flight recorder.

    The recorder is on by default. Newer releases record the collectives of gloo, too.

    Args:
        binding: torch's module for C++.
    """
    oldest: dict[tuple[str, bool], dict[str, Any]] = {}
    for name in ("_dump_nccl_trace_json", "_dump_fr_trace_json"):
        read = getattr(binding, name, None)
        trace = json.loads(read(includeCollectives=True, onlyActive=True)) if read else {}
        for entry in trace.get("entries", ()):
            if not entry["retired"]:
                two = entry["is_p2p"]
                oldest.setdefault((entry["process_group"][1], two), {
                    "name": entry["process_group"][0],  # as in `GroupNow`
                    "group": entry["process_group"][1],
                    "between_two": two,
                    "operation": entry["profiling_name"].rpartition(":")[2],
                    "number": entry["p2p_seq_id" if two else "collective_seq_id"],
                    "seconds": time.time() - entry["time_created_ns"] / 1e9,
                })  # fmt: skip
    return list(oldest.values())


INSTALL = {"torch.distributed": _install}
