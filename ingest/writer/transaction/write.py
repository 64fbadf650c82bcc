"""One transaction: a group's samples by COPY, its events, the rows of its batches, and its counts.

Every transaction takes locks in the same order: samples, events, states, gaps, batches, counts, quarantine, in each
table by its key. So connections that write the same rows wait for each other, but never deadlock. Counts come
late because all connections update the same few rows: those locks are held only briefly.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, cast
from uuid import UUID

import asyncpg
import numpy as np
from numpy.typing import NDArray

from core.batch import CountBatch, Event, EventBatch, GapBatch, Int32s, SampleBatch
from core.copy_stream import COLUMNS, copy_stream
from core.errors import LeaseLost
from core.samples import NO_SAMPLES, Samples
from core.timestamps import MINUTE_US, microseconds, timestamp
from ingest.event_rows import event_columns, reset_columns, state_columns, version_columns
from ingest.spool.format import SpooledBatch
from ingest.writer.transaction import quarantine
from ingest.writer.transaction.conflicts import Conflict, conflict_count, conflict_events, same_sample
from ingest.writer.transaction.counts import NO_COUNTS, Counts, of_events, of_quality
from ingest.writer.transaction.dirty import dirty, parameters, split_by_minutes
from ingest.writer.transaction.group import Group
from ingest.writer.transaction.receipts import sign_gap_receipts, today, write_event_receipts, write_sample_receipts
from ingest.writer.transaction.rows import NO_GAPS, AddedIncrements, GapStarts, write_alarms, write_counts, write_gaps
from schema.queries import load

_KINDS = {SampleBatch: "samples", EventBatch: "events", GapBatch: "gaps", CountBatch: "counts"}
_REPEATING_CHANNELS = 256  # more at once are a replay of whole batches, which ends by itself
_REPEATING_SECONDS = 600.0  # without a repeat, until a channel is normal again
_REPEATING_ROWS = 10_000  # more in a group are not worth individual look-ups


StoredConflict: TypeAlias = tuple[int, int, tuple[float, int], tuple[float, int]]  # channel, time, kept, refused
Copy: TypeAlias = "Callable[[asyncpg.Connection[Any], Samples], Awaitable[None]]"


@dataclass(frozen=True, slots=True)
class Fence:
    """Lets only transactions of the lease's holder commit."""

    installation: UUID
    member: int
    token: int

    @property
    def session_name(self) -> str:
        """The application name of sessions that write with this token."""
        return f"{session_prefix(self.installation)}{self.token}"

    async def check(self, connection: asyncpg.Connection[Any]) -> None:
        """Lock the lease until the transaction ends. Raises LeaseLost if it went to another member or process."""
        if not await connection.fetch(load("lease")["lock_lease"], self.installation, self.token):
            raise LeaseLost("the other member of the pair has taken over")


def session_prefix(installation: UUID) -> str:
    """Beginning of the names of all sessions that write for an installation."""
    return f"plantlog writer of {installation.hex[:16]}, lease "


class RepeatingChannels:
    """Channels of one writer that repeat times already stored: their samples are looked up before COPY.

    COPY rejects a whole group for one existing row, which costs an error in the server's log and the slow path. A
    gateway that repeats one sample usually does so for a long time.
    """

    def __init__(self) -> None:
        self._until: dict[int, float] = {}  # time.monotonic()

    def add(self, channels: Sequence[int]) -> None:
        """A sample of each was stored already."""
        if len(channels) <= _REPEATING_CHANNELS:
            self._until.update(dict.fromkeys(channels, time.monotonic() + _REPEATING_SECONDS))

    def indices_in(self, channel_id: Int32s) -> NDArray[np.intp] | None:
        """The indices of their samples; None: there are none, or too many."""
        if not self._until:
            return None
        now = time.monotonic()
        self._until = {channel: until for channel, until in self._until.items() if until > now}
        if len(self._until) > _REPEATING_CHANNELS:
            self._until.clear()
        indices = np.flatnonzero(np.isin(channel_id, list(self._until)))
        return indices if 0 < len(indices) <= _REPEATING_ROWS else None


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a transaction."""

    method: str  # "copy": all samples were new; "conflict": some were stored already
    samples: int  # new rows in samples_raw
    duplicates: int  # samples stored already, identical
    conflicts: int  # samples stored already with another value or status
    events: int
    quarantined: int  # samples, events, gaps and increments rejected
    added: AddedIncrements
    fresh: Samples = NO_SAMPLES  # the new samples, if known
    opened: dict[int, list[int]] = field(default_factory=dict)  # open minutes since 1970 → rows of rollup_dirty
    gaps: GapStarts = NO_GAPS  # that are new


@dataclass(frozen=True, slots=True)
class _Written:
    """The result for a group's samples."""

    method: str
    samples: Samples  # possibly new ones
    new: int
    differing: tuple[tuple[int, Event], ...]  # conflicts with stored rows
    not_good: Counts  # of the new ones


async def write(
    connection: asyncpg.Connection[Any],
    group: Group,
    complete: Sequence[SpooledBatch],
    repeating: RepeatingChannels,
    *,
    isolate_bad_rows: bool = False,
    minutes: Collection[int] = (),
    fence: Fence | None = None,
    copy: Copy | None = None,
    state: Path | None = None,
) -> WriteResult:
    """Write ``group`` in one transaction; existing rows are left unchanged.

    ``complete``: the batches that are complete after this; their rows of ``plant.ingest_batch`` are written. A batch of
    counts among them adds nothing if its row exists already; for others the caller makes sure that they are not written
    twice. ``isolate_bad_rows``: bad rows of ``group``'s only batch, one of counts, go to the quarantine.

    Samples are copied straight into the table: twice as fast as staging (573 against 268 k rows/s, by
    lab/bench/copy_speed.py). Only a group that COPY rejects as not unique goes through the staging table, which the
    connection must have (section ``staging``). Samples of ``repeating`` channels are looked up first.

    The caller computes the rollups of new samples and gaps in ``minutes`` (since 1970; ``open_minutes``).

    ``fence``: of a redundant pair. It is checked last, so that a take-over waits for no COPY. Raises LeaseLost.

    ``copy`` stores new samples in another form than rows. ``state``: the folder with the key that receipts of gaps are
    signed with.
    """
    try:
        async with connection.transaction():
            written = _Written("copy", NO_SAMPLES, 0, (), NO_COUNTS)
            if len(group.samples):
                new, differing = await _without_stored(connection, group, repeating)
                await (copy or copy_rows)(connection, new)
                await write_sample_receipts(connection, new.channel, new.time, may_be_packed=copy is None)
                written = _Written("copy", new, len(new), differing, of_quality(new.channel, new.time, new.status))
            result = await _finish(connection, group, complete, written, isolate_bad_rows, minutes, fence, state)
            return replace(result, fresh=written.samples)
    except asyncpg.UniqueViolationError:
        if not len(group.samples):
            raise  # another constraint
        async with connection.transaction():
            written = await _stage(connection, group, repeating)
            return await _finish(connection, group, complete, written, isolate_bad_rows, (), fence, state)


async def copy_rows(connection: asyncpg.Connection[Any], samples: Samples) -> None:
    """Copy samples into the table of rows. Raises UniqueViolationError if one is there."""
    await _copy(connection, "samples_raw", "plant", samples)


async def _copy(connection: asyncpg.Connection[Any], table: str, schema: str | None, samples: Samples) -> None:
    stream = copy_stream(samples)
    # A memoryview because asyncpg takes bytes for a file name.
    await connection.copy_to_table(
        table,
        schema_name=schema,
        source=cast(Any, stream),
        columns=COLUMNS,
        format="binary",
    )


async def _without_stored(
    connection: asyncpg.Connection[Any], group: Group, repeating: RepeatingChannels
) -> tuple[Samples, tuple[tuple[int, Event], ...]]:
    """The samples without stored ones of repeating channels, and the conflicts with stored ones."""
    samples = group.samples
    indices = repeating.indices_in(samples.channel)
    if indices is None:
        return samples, ()
    looked_up = samples.part(indices)
    first, last = timestamp(int(looked_up.time.min())), timestamp(int(looked_up.time.max()))
    stored = await connection.fetch(
        load("write")["select_stored"], looked_up.channel.tolist(), looked_up.time.tolist(), first, last
    )
    if not stored:
        return samples, ()
    new = np.ones(len(samples), bool)
    differing: list[StoredConflict] = []
    for row in stored:
        i = int(indices[row["index"]])
        new[i] = False
        channel = int(samples.channel[i])
        kept = float(row["value"]), row["status"] & 0xFFFFFFFF
        refused = float(samples.value[i]), int(samples.status[i])
        if not same_sample(kept, refused):
            differing.append((channel, int(samples.time[i]), kept, refused))
    repeating.add(np.unique(samples.channel[~new]).tolist())
    return samples.part(new), _conflicts(group, differing)


async def _stage(connection: asyncpg.Connection[Any], group: Group, repeating: RepeatingChannels) -> _Written:
    """Insert new samples through the staging table."""
    queries, samples = load("write"), group.samples
    await _copy(connection, "staging", None, samples)
    inserted = cast(asyncpg.Record, await connection.fetchrow(queries["insert_staged"], timestamp(today())))
    late = np.array(inserted["late_channel_id"], np.int32), np.array(inserted["late_time"], np.int64)
    await write_sample_receipts(connection, *late)
    not_good = of_quality(
        np.array(inserted["channel_id"], np.int32),
        np.array(inserted["time"], np.int64),
        np.array(inserted["status"], np.int32).view(np.uint32),
    )
    repeating.add(inserted["repeated"])
    first, last = timestamp(int(samples.time.min())), timestamp(int(samples.time.max()))
    differing: list[StoredConflict] = [
        (
            row["channel_id"],
            microseconds(row["time"]),
            (row["stored_value"], row["stored_status"] & 0xFFFFFFFF),
            (row["value"], row["status"] & 0xFFFFFFFF),
        )
        for row in await connection.fetch(queries["select_conflicts"], first, last)
    ]
    return _Written("conflict", samples, inserted["new"], _conflicts(group, differing), not_good)


async def _without_known_resets(
    connection: asyncpg.Connection[Any], events: Sequence[tuple[int, Event]]
) -> list[tuple[int, Event]]:
    """The events but for resets of counters that the other member of the pair has recorded."""
    resets = [item for item in events if item[1].type == "counter_reset"]
    columns = reset_columns([event for _, event in resets])
    stored = await connection.fetch(load("write")["known_resets"], *columns) if resets else ()
    known = {id(resets[row["index"]]) for row in stored}
    return [item for item in events if id(item) not in known]


async def _finish(
    connection: asyncpg.Connection[Any],
    group: Group,
    complete: Sequence[SpooledBatch],
    written: _Written,
    isolate_bad_rows: bool,
    minutes: Collection[int],
    fence: Fence | None,
    state: Path | None,
) -> WriteResult:
    """Write everything but the samples, at the end of the transaction."""
    queries = load("write")
    opened = await _mark_dirty(connection, written.samples, minutes)
    events = [*group.events, *group.conflicts, *written.differing]
    if fence is not None:
        events = await _without_known_resets(connection, events)
    new_events = await connection.fetch(queries["insert_events"], *event_columns(events)) if events else ()
    await write_event_receipts(connection, new_events)
    states = state_columns(group.events)
    if states[0]:
        await connection.execute(queries["update_source_state"], *states)
    if read := [event for _, event in group.events if event.type == "version_read"]:
        await connection.execute(queries["record_version_read"], *version_columns(read))
    await write_alarms(connection, group.events)
    gaps = group.gaps()
    begins, open_minute_gaps = await write_gaps(connection, gaps, minutes, None if fence is None else fence.member)
    if gaps and state is not None:
        await sign_gap_receipts(connection, state)
    for minute, row in open_minute_gaps:
        opened.setdefault(minute, []).append(row)
    new_batches = (
        await connection.fetch(queries["insert_batches"], *_ingest_batch_columns(complete)) if complete else ()
    )
    stored = {spooled.key for spooled in complete}.difference(
        (row["source_id"], row["sequence"]) for row in new_batches
    )
    named = of_events((row["time"], row["type"], row["channel_id"]) for row in new_events)
    added, refused = await write_counts(connection, group, stored, named, written.not_good, isolate_bad_rows)
    quarantined = [
        *group.quarantined,
        *(row for counted in group.counted if counted.key not in stored for row in counted.quarantined),
        *(
            quarantine.refused_count(spooled.key, spooled.batch.received_at, row, error)
            for spooled in complete[:1]
            for row, error in refused
        ),
    ]
    if quarantined:
        await connection.execute(queries["insert_quarantine"], *quarantine.columns(quarantined))
    if fence is not None:
        await fence.check(connection)
    return WriteResult(
        written.method,
        written.new,
        group.repeated + len(group.samples) - written.new - conflict_count(written.differing),
        conflict_count((*group.conflicts, *written.differing)),
        len(events),
        len(quarantined),
        added,
        opened=opened,
        gaps=begins,
    )


async def _mark_dirty(
    connection: asyncpg.Connection[Any], samples: Samples, minutes: Collection[int]
) -> dict[int, list[int]]:
    """Mark the rollup minutes changed by these samples. Returns the rows of open minutes."""
    queries = load("write")
    touched, others = split_by_minutes(samples, minutes) if len(samples) else ([], samples)
    if len(others):
        await connection.executemany(queries["insert_dirty"], parameters(dirty(others)))
    if not touched:
        return {}
    rows = await connection.fetch(queries["insert_open_minutes"], [timestamp(minute * MINUTE_US) for minute in touched])
    return {microseconds(row["from_time"]) // MINUTE_US: [row["id"]] for row in rows}


def _ingest_batch_columns(batches: Sequence[SpooledBatch]) -> tuple[list[Any], ...]:
    """Columns of ``ingest_batch``, a list each, in the order of the table's key."""
    batches = sorted(batches, key=lambda spooled: spooled.key)
    return (
        [b.key[0] for b in batches],
        [b.key[1] for b in batches],
        [_KINDS[type(b.batch)] for b in batches],
        [len(b.batch) for b in batches],
        [timestamp(b.first_time) for b in batches],
        [timestamp(b.last_time) for b in batches],
        [timestamp(b.batch.received_at) for b in batches],
    )


def _conflicts(group: Group, differing: Sequence[StoredConflict]) -> tuple[tuple[int, Event], ...]:
    """Events of samples that differ from stored ones."""
    if not differing:
        return ()
    batch_of: dict[tuple[int, int], tuple[int, int]] = {}  # (channel, time) → index of the first batch, and its source
    channels = np.array(sorted({channel for channel, *_ in differing}), np.int32)
    for index, spooled in enumerate(group.batches()):
        batch = spooled.batch
        if isinstance(batch, SampleBatch):
            samples = batch.samples.part(np.isin(batch.samples.channel, channels))
            for key in zip(samples.channel.tolist(), samples.time.tolist(), strict=True):
                batch_of.setdefault(key, (index, batch.source_id))
    return conflict_events(
        Conflict(*batch_of[channel, time], channel, time, kept, refused) for channel, time, kept, refused in differing
    )
