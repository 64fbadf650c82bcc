"""A group: the spool batches that one transaction writes, with their samples sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.batch import (
    CountBatch,
    Event,
    EventBatch,
    GapBatch,
    SampleBatch,
)
from core.samples import Samples, joined
from core.time_limits import TimeLimits
from ingest.spool.format import SpooledBatch
from ingest.writer.transaction import quarantine
from ingest.writer.transaction.conflicts import Conflict, conflict_events
from ingest.writer.transaction.counts import NO_COUNTS, Counts, Increments, aggregate, subset
from ingest.writer.transaction.quarantine import Quarantined


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
