"""A group: the spool batches that one transaction writes, with their samples sorted."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.batch import (
    NO_SOURCE,
    CountBatch,
    Event,
    EventBatch,
    GapBatch,
    Int64s,
    SampleBatch,
)
from core.config.model import WriterOptions
from core.samples import Samples, joined
from core.time_limits import TimeLimits
from core.timestamps import iso
from ingest.spool.format import SpooledBatch
from ingest.writer.transaction import quarantine
from ingest.writer.transaction.counts import NO_COUNTS, Counts, Increments, aggregate, subset
from ingest.writer.transaction.quarantine import Quarantined

_DAY_US = 86_400_000_000
_HOUR_US = 3_600_000_000
_RECENT_DAYS = 7  # around the arrival, which are not counted: they are there in any case
_MAX_HOURS = 1000  # of sources, remembered


@dataclass(frozen=True, slots=True, eq=False)
class CountedBatch:
    """The increments of one batch; written only if its row in ``plant.ingest_batch`` is new."""

    key: tuple[int, int]  # source id, sequence
    inside: Increments  # the time limits
    quarantined: tuple[Quarantined, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that one transaction writes, and ``batches_by_file``: the batches of each spool file it consists of."""

    batches_by_file: tuple[tuple[Path, tuple[SpooledBatch, ...]], ...]
    samples: Samples  # by channel and time, each once
    events: tuple[tuple[int, Event], ...]  # (source id, event)
    repeated: int = 0  # samples contained twice in the group, identical
    conflicts: tuple[tuple[int, Event], ...] = ()  # different second values, rejected
    quarantined: tuple[Quarantined, ...] = ()
    counted: tuple[CountedBatch, ...] = ()
    counts: Counts = NO_COUNTS  # of all of ``counted``, aggregated

    def gaps(self) -> list[GapBatch]:
        """Changes of gaps."""
        return [spooled.batch for spooled in self.batches() if isinstance(spooled.batch, GapBatch)]

    def batches(self) -> list[SpooledBatch]:
        """All batches of all files."""
        return [batch for _, batches in self.batches_by_file for batch in batches]


def assemble(batches_by_file: Sequence[tuple[Path, Sequence[SpooledBatch]]], limits: TimeLimits) -> Group:
    """Combine batches, oldest first: of two samples with the same (channel, time) the first to arrive is kept."""
    by_file = tuple((path, tuple(of_file)) for path, of_file in batches_by_file)
    samples: list[SampleBatch] = []
    events: list[tuple[int, Event]] = []
    counted: dict[tuple[int, int], CountedBatch] = {}
    quarantined: list[Quarantined] = []
    for spooled in (spooled for _, of_file in batches_by_file for spooled in of_file):
        match spooled.batch:
            case SampleBatch() as batch:
                inside, outside = _samples_in_time(batch, limits)
                samples += [inside] if len(inside) else []
                quarantined += outside
            case EventBatch() as batch:
                quarantined += _events_in_time(batch, limits, events)
            case CountBatch() as batch if spooled.key not in counted:  # otherwise it was replayed within the group
                counted[spooled.key] = _counted(spooled, batch, limits)
    merged, repeated, conflicts = _merge(samples)
    counts = aggregate([counts_of_batch.inside for counts_of_batch in counted.values()])
    others = tuple(quarantined), tuple(counted.values()), counts
    return Group(by_file, merged, tuple(events), repeated, conflicts, *others)


def _samples_in_time(batch: SampleBatch, limits: TimeLimits) -> tuple[SampleBatch, list[Quarantined]]:
    """Split samples: within the time limits, and others."""
    inside = limits.inside(batch.received_at, batch.samples.time, batch.source_id)
    if inside.all():
        return batch, []
    outside = [
        quarantine.sample(batch, int(i), limits.reason(batch.received_at, int(batch.samples.time[i])))
        for i in np.flatnonzero(~inside)
    ]
    return batch.part(inside), outside


def _events_in_time(batch: EventBatch, limits: TimeLimits, events: list[tuple[int, Event]]) -> list[Quarantined]:
    """Add the events within the time limits to ``events``; return the others."""
    times = np.array([event.time for event in batch.events], np.int64)
    inside = limits.inside(batch.received_at, times, batch.source_id).tolist()
    outside: list[Quarantined] = []
    for event, is_inside in zip(batch.events, inside, strict=True):
        if is_inside:
            events.append((batch.source_id, event))
        else:
            reason = limits.reason(batch.received_at, event.time)
            outside.append(quarantine.event(batch.source_id, batch.received_at, event, reason))
    return outside


def _counted(spooled: SpooledBatch, batch: CountBatch, limits: TimeLimits) -> CountedBatch:
    """Split increments: within the time limits, and others."""
    inside = limits.inside(batch.received_at, batch.time, batch.source_id)
    if inside.all():
        return CountedBatch(spooled.key, batch, ())
    outside = aggregate([subset(batch, ~inside)], step=1)
    quarantined = (
        quarantine.count(spooled.key, batch.received_at, outside, i, limits.reason(batch.received_at, time))
        for i, time in enumerate(outside.time.tolist())
    )
    return CountedBatch(spooled.key, subset(batch, inside), tuple(quarantined))


def _merge(batches: Sequence[SampleBatch]) -> tuple[Samples, int, tuple[tuple[int, Event], ...]]:
    """Sorted samples, the number of duplicates, and the conflicts."""
    arrived = joined(batch.samples for batch in batches)
    # Stable: equal keys stay in order of arrival. Rows sorted by the table's key
    # keep B-tree inserts local (and connections never deadlock).
    order = arrived.order()
    samples = arrived.part(order)
    repeats = samples.repeats()
    if not repeats.any():
        return samples, 0, ()
    first = np.maximum.accumulate(np.where(repeats, 0, np.arange(len(order))))  # the row kept for this key
    bits, status = samples.bits, samples.status
    differs = repeats & ((bits != bits[first]) | (status != status[first]))
    batch = np.repeat(np.arange(len(batches)), [len(samples) for samples in batches])[order]
    conflicts = [
        Conflict(
            int(batch[i]),
            batches[batch[i]].source_id,
            int(samples.channel[i]),
            int(samples.time[i]),
            kept=(float(samples.value[first[i]]), int(status[first[i]])),
            refused=(float(samples.value[i]), int(status[i])),
        )
        for i in np.flatnonzero(differs)
    ]
    return samples.part(~repeats), int(repeats.sum() - differs.sum()), conflict_events(conflicts)


def same_sample(first: tuple[float, int], other: tuple[float, int]) -> bool:
    """True if two (value, status) are identical: a NaN equals itself, -0 differs from 0."""
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


@dataclass(frozen=True, slots=True)
class DayLimits(TimeLimits):
    """The time limits of the writer: besides, of data that a source sends within an hour, only ``days`` days count.

    What is inside stays so when it is looked at again: days are admitted until there are enough, newest first.
    """

    days: int
    _admitted: OrderedDict[tuple[int, int], set[int]] = field(default_factory=OrderedDict, compare=False)

    @classmethod
    def of_options(cls, options: WriterOptions) -> DayLimits:
        """Limits that the configuration has."""
        return cls(options.future_limit, options.oldest, options.days_per_hour)

    def inside(self, received_at: int, time: Int64s, source_id: int = NO_SOURCE) -> NDArray[np.bool_]:
        """Mask of the times (µs) within the bounds and on days that are admitted, (n,)."""
        within = TimeLimits.inside(self, received_at, time)
        far = within & (np.abs(time - received_at) > _RECENT_DAYS * _DAY_US)
        if not far.any():
            return within
        day = time // _DAY_US
        admitted = self._admitted_of(source_id, received_at // _HOUR_US)
        for new in reversed(np.unique(day[far]).tolist()):
            if len(admitted) >= self.days:
                break
            admitted.add(new)
        inside: NDArray[np.bool_] = within & (~far | np.isin(day, list(admitted)))
        return inside

    def _admitted_of(self, source_id: int, hour: int) -> set[int]:
        admitted = self._admitted.setdefault((source_id, hour), set())
        if len(self._admitted) > _MAX_HOURS:
            self._admitted.popitem(last=False)
        return admitted


def changes(column: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Mask of values that differ from the previous one, (n,); the first always does."""
    changes = np.ones(len(column), bool)
    np.not_equal(column[1:], column[:-1], out=changes[1:])
    return changes
