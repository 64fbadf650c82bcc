"""Stores the samples of a checked file: each part in a transaction, with the row that says so.

The key of a part in ``plant.ingest_batch`` follows from the file's content, so that a part is stored once, and a
command that was killed continues where it stopped. The key of samples does the rest: what is stored stays as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np

from core.batch import Event, EventBatch, Int64s, SampleBatch, sequence_of
from core.database import bounded
from core.errors import OperationError
from core.time_limits import NO_LIMITS
from core.timestamps import HOUR_US, now_us, timestamp
from history.codec.packed_hours import samples_of
from history.codec.segments import Segments
from history.imports.check import Checked
from history.imports.portion import ImportPortion
from history.imports.whole_hours import Part, copy_packed, packed_days
from ingest.spool.format import SpooledBatch
from ingest.writer.bisect import split_by_days
from ingest.writer.transaction.group import Group, assemble
from ingest.writer.transaction.write import Copy, RepeatingChannels, write
from schema.queries import load

_NO_FILE = Path("import")
_PACKED_HOURS = 200  # of channels that are compared at a time: seven million samples if there are ten a second


@dataclass(frozen=True, slots=True)
class Channel:
    """Channel that samples go to."""

    id: int
    source_id: int


NO_CHANNEL = Channel(0, 0)  # of a name without samples


@dataclass(slots=True)
class ImportCounts:
    """Counts of samples by outcome."""

    new: int = 0
    stored_before: int = 0
    conflicts: int = 0

    def add(self, other: ImportCounts) -> None:
        """Add samples."""
        self.new += other.new
        self.stored_before += other.stored_before
        self.conflicts += other.conflicts


@dataclass(slots=True)
class Store:
    """Stores one file. ``channels``: in the order of the reader's names."""

    connection: asyncpg.Connection[Any]
    time_out: float
    checked: Checked
    channels: Sequence[Channel]
    counts: ImportCounts = field(default_factory=ImportCounts)
    _key: bytes = b""
    _parts: int = 0

    async def begin(self, described: object) -> None:
        """Look up what the keys of parts depend on; ``described``: how the file is understood."""
        span = timestamp(int(self.checked.first.min())), timestamp(int(self.checked.last.max()))
        deleted = await self.connection.fetchval(load("history_import")["select_deleted"], *span)
        ids = [channel.id for channel in self.channels]
        self._key = hashlib.sha256(repr((self.checked.sha256, described, ids, deleted)).encode()).digest()

    async def add(self, part: Part) -> None:
        """Store the next part, unless it is stored. Raises what asyncpg raises."""
        self._parts += 1
        if not len(part.portion):
            return
        spooled_batches = self._spooled(part.portion)
        keys = [spooled.key for spooled in spooled_batches]
        columns = [list(column) for column in zip(*keys, strict=True)]
        rows = await self.connection.fetch(load("write")["select_batches"], *columns)
        stored = {(row["source_id"], row["sequence"]) for row in rows}
        self.counts.stored_before += sum(len(spooled.batch) for spooled in spooled_batches if spooled.key in stored)
        lacking = [await self._without_packed(spooled) for spooled in spooled_batches if spooled.key not in stored]
        group = assemble([(_NO_FILE, [spooled for spooled in lacking if len(spooled.batch)])], NO_LIMITS)
        if not len(group.samples):
            return
        for piece in split_by_days(group, NO_LIMITS):
            complete = [spooled for _, of_file in piece.complete for spooled in of_file]
            copy = await self._copy(piece.group) if part.is_whole else None
            work = write(self.connection, piece.group, complete, RepeatingChannels(), copy=copy)
            result = await bounded(self.connection, self.time_out, work)
            self.counts.add(ImportCounts(result.samples, result.duplicates, result.conflicts))

    async def _copy(self, group: Group) -> Copy | None:
        """Way to store whole hours; None: as rows."""
        if not len(group.samples):
            return None
        days = await bounded(self.connection, self.time_out, packed_days(self.connection, group.samples.time))
        return partial(copy_packed, days) if days else None

    async def record(self, event: Event, source_id: int | None = None) -> None:
        """Store an event of the import, or of a channel of ``source_id``."""
        if source_id is None:
            source_id = next(channel.source_id for channel in self.channels if channel is not NO_CHANNEL)
        batch = EventBatch(source_id, event.time, (event,))
        spooled = SpooledBatch(self._sequence(f"event {event.time} {event.channel_id}"), event.time, event.time, batch)
        group = assemble([(_NO_FILE, [spooled])], NO_LIMITS)
        await bounded(self.connection, self.time_out, write(self.connection, group, [spooled], RepeatingChannels()))

    def _spooled(self, portion: ImportPortion) -> list[SpooledBatch]:
        """A batch for each source."""
        channel_index = portion.samples.channel
        ids = np.array([channel.id for channel in self.channels], np.int32)[channel_index]
        sources = np.array([channel.source_id for channel in self.channels], np.int32)[channel_index]
        samples, now = replace(portion.samples, channel=ids), now_us()
        sequence = self._sequence(str(self._parts))
        return [
            _as_spooled(sequence, SampleBatch(source, now, samples.part(sources == source)))
            for source in np.unique(sources).tolist()
        ]

    def _sequence(self, name: str) -> int:
        return sequence_of(self._key + name.encode())

    async def _without_packed(self, spooled: SpooledBatch) -> SpooledBatch:
        """The batch without samples that are in packed hours already: the table of rows takes them as new.

        A different one stays, as a conflict, which the next packing of the hour records.
        """
        batch = spooled.batch
        assert isinstance(batch, SampleBatch)
        hour = batch.samples.time // HOUR_US * HOUR_US
        order = np.lexsort((batch.samples.time, batch.samples.channel, hour))
        batch, hour = batch.part(order), hour[order]
        samples, hours = batch.samples, Segments.of_runs(batch.samples.channel, hour)
        keys = _keys(hours.repeated(np.arange(len(hours))), samples.time)
        is_packed, equal = np.zeros(len(samples), np.bool_), np.zeros(len(samples), np.bool_)
        for first in range(0, len(hours), _PACKED_HOURS):
            begins = hours.begins[first : first + _PACKED_HOURS]
            times = [timestamp(us) for us in hour[begins].tolist()]
            arguments = samples.channel[begins].tolist(), times, times[0], times[-1]
            rows = await self.connection.fetch(load("history_import")["select_packed"], *arguments)
            if not rows:
                continue
            packed = samples_of(rows)
            indices = np.repeat([first + row["index"] for row in rows], [row["n"] for row in rows])
            packed_keys = _keys(indices, packed.time)
            part = slice(int(begins[0]), int(hours.ends[first + len(begins) - 1]))
            at = np.minimum(np.searchsorted(packed_keys, keys[part]), len(packed) - 1)
            is_packed[part] = packed_keys[at] == keys[part]
            is_same = (packed.bits[at] == samples.bits[part]) & (packed.status[at] == samples.status[part])
            equal[part] = is_packed[part] & is_same
        if not is_packed.any():
            return spooled
        different = int(is_packed.sum() - equal.sum())
        self.counts.add(ImportCounts(-different, int(equal.sum()), different))
        return _as_spooled(spooled.sequence, batch.part(~equal))


def _as_spooled(sequence: int, batch: SampleBatch) -> SpooledBatch:
    time = batch.samples.time
    return SpooledBatch(sequence, int(time.min(initial=2**62)), int(time.max(initial=0)), batch)


def _keys(hour_indices: Int64s, time: Int64s) -> Int64s:
    """A number for each time of each hour."""
    return hour_indices * HOUR_US + time % HOUR_US


async def create_channels(
    connection: asyncpg.Connection[Any],
    installation: UUID | None,
    source: str,
    kinds: Mapping[str, str],
    last_ids: tuple[int, int],
) -> None:
    """Make channels (name → kind) of a source, which is made if it is missing.

    Raises OperationError if it is another one's.
    """
    queries = load("history_import")
    async with connection.transaction():
        await connection.execute(load("register")["lock_registration"])
        await connection.execute(load("push")["advance_ids"], *last_ids)
        await connection.execute(queries["insert_source"], source, installation)
        row: Mapping[str, Any] = await connection.fetchrow(queries["select_source"], source) or {}
        if row["kind"] != "push" or row["installation_id"] != installation:
            raise OperationError(
                f"--source {source}: it is another installation's, or reads a device; legal: a source of kind push, or "
                "a new name"
            )
        await connection.execute(load("push")["insert_channels"], row["id"], list(kinds), list(kinds.values()))
