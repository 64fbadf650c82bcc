"""Conflicts: other values of a channel and time than the one that is kept, and the events that report them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.batch import Event
from core.timestamps import iso


def same_sample(first: tuple[float, int], other: tuple[float, int]) -> bool:
    """Return whether two (value, status) are identical: a NaN equals itself, -0 differs from 0."""
    return struct.pack("=dq", *first) == struct.pack("=dq", *other)


@dataclass(frozen=True, slots=True)
class Conflict:
    """A second, different (value, status) of the same channel and time."""

    batch: int  # its index in the group
    source_id: int
    channel_id: int
    time: int  # µs
    kept: tuple[float, int]
    refused: tuple[float, int]


def conflict_events(conflicts: Iterable[Conflict]) -> tuple[tuple[int, Event], ...]:
    """An event for each channel of each batch, with the first of its conflicts and their number, with its source."""
    by_channel: dict[tuple[int, int], list[Conflict]] = {}
    for conflict in conflicts:
        by_channel.setdefault((conflict.batch, conflict.channel_id), []).append(conflict)
    return tuple((of_channel[0].source_id, _conflict_event(of_channel)) for of_channel in by_channel.values())


def _conflict_event(conflicts: Sequence[Conflict]) -> Event:
    first = min(conflicts, key=lambda conflict: conflict.time)
    last = max(conflict.time for conflict in conflicts)
    detail: dict[str, object] = {
        # repr: the shortest text for the exact double; and JSON has no NaN
        "kept_value": repr(first.kept[0]),
        "kept_status": f"0x{first.kept[1]:08X}",
        "refused_value": repr(first.refused[0]),
        "refused_status": f"0x{first.refused[1]:08X}",
    }
    if len(conflicts) > 1:
        detail |= {"refused": len(conflicts), "to": iso(last)}
    return Event("conflict", first.time, first.channel_id, status=first.refused[1], detail=detail)


def conflict_count(events: Iterable[tuple[int, Event]]) -> int:
    """The number of samples that events of conflicts stand for."""
    return sum(event.detail.get("refused", 1) for _, event in events)
