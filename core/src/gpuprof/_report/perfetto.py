"""Writes traces for ui.perfetto.dev with Perfetto's own library.

A slice takes two packets, and the library takes microseconds to make a packet. So the library makes
only one packet of each kind, and NumPy puts the numbers of all slices into copies of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import attrs
import numpy as np
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
    Trace,
    TrackDescriptor,
    TrackEvent,
)
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket as Packet

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

_SEQUENCE = 1
_MOST_NAMES = 4
_MOST_LANES = 100
"""The most lanes of a track. Nobody reads more, and each lane slows down the search for a free
one."""
_ARROW = "arrow"
"""The category of the slices at both ends of an arrow."""
_TRACK, _NAME, _TIME = (1 << 27) + 0x34567, (1 << 27) + 0x2ABCDE, (1 << 62) + 0x1234567
"""Placeholders in the packet for the numbers of each slice. Each occurs once in the packet, and
takes as many bytes as the largest number that can replace it."""


@attrs.define
class Mark:
    """A moment of a slice, where arrows begin and end.

    Perfetto draws an arrow from the slice that begins first. So arrows between the ends of slices
    need extra slices of zero length at these ends.

    Args:
        leaves: the arrows that begin here, with the names of what they lead to.
        arrives: the arrows that end here, with the names of what they come from.
    """

    leaves: dict[int, str] = attrs.field(factory=dict)
    arrives: dict[int, str] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        return bool(self.leaves or self.arrives)

    @property
    def name(self) -> str:
        """The mark's name, such as ``released by Actor-3``."""
        parts = [("released by", self.arrives), ("releases", self.leaves)]
        return ", ".join(f"{verb} {_listed(others.values())}" for verb, others in parts if others)


@attrs.define
class Extra:
    """Extra data that only some slices have.

    Args:
        name: a name that replaces the one in the table of names.
        about: details that are shown with the slice.
    """

    name: str | None = None
    about: dict[str, str | int | float] = attrs.field(factory=dict)
    begin: Mark = attrs.field(factory=Mark)
    end: Mark = attrs.field(factory=Mark)


class TraceWriter:
    """Writes a trace packet by packet, so that only names and tracks are held in memory.

    All times are nanoseconds since the epoch.

    Args:
        file: the file to write to. Perfetto also reads files compressed with gzip.

    Attributes:
        left: the number of slices left out because too many others overlap them.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._names: dict[str, int] = {}
        self._new: list[tuple[int, str]] = []
        self._tracks = 0
        self.left = 0
        self._shapes: dict[str, _Shape] = {}
        packet = _packet()
        packet.sequence_flags = Packet.SEQ_INCREMENTAL_STATE_CLEARED
        self._write(packet)
        packet = _packet()
        packet.track_descriptor.uuid = 0
        packet.track_descriptor.child_ordering = TrackDescriptor.EXPLICIT
        self._write(packet)

    def track(self, name: str, parent: int = 0, rank: int = 0, about: str = "") -> int:
        """Add a track, which can have other tracks below it.

        Args:
            parent: the track above it; 0 for none.
            rank: its position among the tracks with the same parent.
            about: a description that is shown with the track.
        """
        return self._add_track(name, parent, rank, about, str(self._tracks + 1))

    def _add_track(
        self,
        name: str,
        parent: int,
        rank: int,
        about: str,
        row: str,
        unit: str | None = None,
    ) -> int:
        """Add a track that shares one row on the screen with others of the same `row`.

        With a unit, which may be empty, it is the track of a curve.
        """
        self._tracks += 1
        packet = _packet()
        descriptor = packet.track_descriptor
        descriptor.uuid = self._tracks
        if parent:
            descriptor.parent_uuid = parent
        descriptor.name = _encodable(name)
        if about:
            descriptor.description = _encodable(about)
        if unit is not None:
            descriptor.counter.unit_name = unit
        descriptor.child_ordering = TrackDescriptor.EXPLICIT
        descriptor.sibling_order_rank = rank
        descriptor.sibling_merge_behavior = (
            TrackDescriptor.SIBLING_MERGE_BEHAVIOR_BY_SIBLING_MERGE_KEY
        )
        descriptor.sibling_merge_key = row
        self._write(packet)
        return int(descriptor.uuid)

    def name(self, text: str) -> int:
        """The number of a name in the table of names."""
        number = self._names.get(text)
        if number is None:
            number = self._names[text] = len(self._names) + 1
            self._new.append((number, text))
        return number

    def slices(
        self,
        title: str,
        parent: int,
        category: str,
        names: Integers,
        starts: Integers,
        ends: Integers,
        rank: int = 0,
        extras: Mapping[int, Extra] | None = None,
        depths: Integers | None = None,
        row: str | None = None,
    ) -> None:
        """Add a track with slices. Slices that overlap without nesting go to further tracks.

        Args:
            title: the track's name; see `track`, also for `parent` and `rank`.
            names: the numbers of the slices' names; see `name`.
            depths: the slices' depths. Of two slices with the same times, the one with the lower
                depth is the outer one.
            row: tracks with the same parent and the same `row` share a row on the screen.
        """
        self._write_names()
        keys = [-ends, starts] if depths is None else [depths, -ends, starts]
        order = np.lexsort(keys)
        names, starts, ends = names[order], starts[order], ends[order]
        extras_in_order = {
            position: extras[row]
            for position, row in enumerate(order.tolist() if extras else ())
            if extras and row in extras
        }
        row = str(self._tracks + 1) if row is None else row
        lanes = _lanes(starts.tolist(), ends.tolist())
        self.left += len(starts) - sum(map(len, lanes)) // 2
        for lane in lanes:
            track = self._add_track(title, parent, rank, "", row)
            events = np.array(lane, np.int64)
            ending = events < 0
            rows = np.where(ending, ~events, events)
            times = np.where(ending, ends[rows], starts[rows])
            self._write_events(
                category=category,
                track=track,
                names=names[rows],
                times=times,
                ending=ending,
                rows=rows,
                extras=extras_in_order,
            )

    def counter(
        self,
        title: str,
        parent: int,
        times: Integers,
        values: Sequence[float],
        rank: int = 0,
        unit: str = "",
    ) -> None:
        """Add a track with a curve."""
        track = self._add_track(title, parent, rank, "", str(self._tracks + 1), unit)
        for time, value in zip(times.tolist(), values, strict=True):
            packet = _packet()
            packet.timestamp = time
            packet.sequence_flags = Packet.SEQ_NEEDS_INCREMENTAL_STATE
            packet.track_event.type = TrackEvent.TYPE_COUNTER
            packet.track_event.track_uuid = track
            packet.track_event.double_counter_value = value
            self._write(packet)

    def instant(self, title: str, parent: int, category: str, time: int, rank: int = 0) -> None:
        """Add a track with a single instant that has the track's title."""
        packet = _event(TrackEvent.TYPE_INSTANT, category, self.track(title, parent, rank), time)
        packet.track_event.name = _encodable(title)
        self._write(packet)

    def _write_events(
        self,
        category: str,
        track: int,
        names: Integers,
        times: Integers,
        ending: NDArray[np.bool_],
        rows: Integers,
        extras: Mapping[int, Extra],
    ) -> None:
        if category not in self._shapes:
            self._shapes[category] = _Shape(category)
        events = self._shapes[category].fill(track, names, times, ending)
        count = 0
        special = np.isin(rows, np.fromiter(extras, np.int64)).nonzero()[0] if extras else ()
        for position in special:
            self._file.write(events[count:position].tobytes())
            count = position + 1
            extra = extras[int(rows[position])]
            kind = TrackEvent.TYPE_SLICE_END if ending[position] else TrackEvent.TYPE_SLICE_BEGIN
            packet = _event(kind, category, track, int(times[position]))
            event = packet.track_event
            if extra.name is None:
                event.name_iid = int(names[position])
            else:
                event.name = _encodable(extra.name)
            if ending[position]:
                self._mark(extra.end, track, int(times[position]))
                self._write(packet)
            else:
                _annotate(event, extra.about)
                self._write(packet)
                self._mark(extra.begin, track, int(times[position]))
        self._file.write(events[count:].tobytes())

    def _mark(self, mark: Mark, track: int, time: int) -> None:
        if mark:
            packet = _event(TrackEvent.TYPE_INSTANT, _ARROW, track, time)
            packet.track_event.name = _encodable(mark.name)
            packet.track_event.flow_ids.extend(mark.leaves)
            packet.track_event.terminating_flow_ids.extend(mark.arrives)
            self._write(packet)

    def _write_names(self) -> None:
        if not self._new:
            return
        packet = _packet()
        for number, text in self._new:
            packet.interned_data.event_names.add(iid=number, name=_encodable(text))
        self._new = []
        self._write(packet)

    def _write(self, packet: Packet) -> None:
        self._file.write(_wrapped(packet))


class _Shape:
    """The two packets of a slice, filled in for many slices at once."""

    def __init__(self, category: str) -> None:
        self._begin, self._end = (
            np.frombuffer(_wrapped(_placeholder(kind, category)), np.uint8)
            for kind in (TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END)
        )
        content = self._begin.tobytes()
        self._places = [slice(*_find(content, number)) for number in (_TRACK, _NAME, _TIME)]

    def fill(
        self, track: int, names: Integers, times: Integers, ending: NDArray[np.bool_]
    ) -> NDArray[np.uint8]:
        """A row of bytes for each beginning or end of a slice."""
        events = np.where(ending[:, None], self._end, self._begin)
        for place, values in zip(self._places, (np.array([track]), names, times), strict=True):
            events[:, place] = _varints(values, place.stop - place.start)
        return events


def _find(content: bytes, number: int) -> tuple[int, int]:
    """The position of a number's bytes in a packet."""
    digits = _varints(np.array([number]), -(-number.bit_length() // 7)).tobytes()
    place = content.index(digits)
    return place, place + len(digits)


def _lanes(starts: Sequence[int], ends: Sequence[int]) -> list[list[int]]:
    """Spread slices over lanes in which they nest.

    Args:
        starts: the slices' beginnings in ascending order. Of slices that begin together, the outer
            one comes first.
        ends: the slices' ends.

    Returns:
        For each lane, its slices' beginnings and ends in order of time: ``slice`` for a beginning
        and ``~slice`` for an end. Slices for which there is no lane are left out.

    >>> _lanes([0, 1, 2, 5], [4, 3, 6, 6])
    [[0, 1, -2, -1, 3, -4], [2, -3]]
    """
    lanes: list[tuple[list[int], list[int]]] = []
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        for parents, events in lanes:
            while parents and ends[parents[-1]] <= start:
                events.append(~parents.pop())
            if not parents or end <= ends[parents[-1]]:
                break
        else:
            if len(lanes) == _MOST_LANES:
                continue
            parents, events = [], []
            lanes.append((parents, events))
        parents.append(row)
        events.append(row)
    for parents, events in lanes:
        events += [~row for row in reversed(parents)]
    return [events for _, events in lanes]


def _varints(numbers: Integers, width: int) -> NDArray[np.uint8]:
    """Numbers in protobuf's encoding, padded with zeros to `width` bytes each."""
    digits = (numbers[:, None] >> np.arange(0, 7 * width, 7) & 0x7F).astype(np.uint8)
    digits[:, :-1] |= 0x80
    return digits


def _packet() -> Packet:
    return Packet(trusted_packet_sequence_id=_SEQUENCE)


def _event(kind: int, category: str, track: int, time: int) -> Packet:
    packet = _packet()
    packet.timestamp = time
    packet.sequence_flags = Packet.SEQ_NEEDS_INCREMENTAL_STATE
    packet.track_event.type = kind
    packet.track_event.categories.append(category)
    packet.track_event.track_uuid = track
    return packet


def _placeholder(kind: int, category: str) -> Packet:
    packet = _event(kind, category, _TRACK, _TIME)
    packet.track_event.name_iid = _NAME
    return packet


def _listed(names: Iterable[str]) -> str:
    """The different names as text, at most `_MOST_NAMES` of them."""
    unique = list(dict.fromkeys(names))
    more = len(unique) - _MOST_NAMES
    return ", ".join(unique[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _annotate(event: TrackEvent, about: Mapping[str, Any]) -> None:
    for key, value in about.items():
        note = event.debug_annotations.add(name=key)
        if isinstance(value, str):
            note.string_value = _encodable(value)
        elif isinstance(value, int):
            note.int_value = value
        else:
            note.double_value = value


def _encodable(text: str) -> str:
    """A name in UTF-8: names of files need not be text."""
    return text.encode("utf-8", "backslashreplace").decode()


def _wrapped(*packets: Packet) -> bytes:
    """Packets as the bytes of a trace file."""
    return bytes(Trace(packet=packets).SerializeToString())
