"""Pieces of a group: what the database rejects is bisected until the bad rows are isolated.

A group is split into batches, a batch into rows. Each piece is a transaction of its own, so that what is committed
stays committed, however long the rest takes. The row of a split batch in ``plant.ingest_batch`` and its bad rows are
written with its last piece.

A batch of counts is never split: only its row of ``plant.ingest_batch`` tells whether its increments are in the table
already. So all of it is one transaction, which isolates bad rows itself (see ``isolate_bad_rows``).

A group that spans many days is split from the start: each day is a chunk, each chunk takes locks, and the server's
lock table is shared by all sessions.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import numpy as np
from numpy.typing import NDArray

from core.batch import Batch, CountBatch, EventBatch, GapBatch, Int64s, SampleBatch
from core.database import bounded
from core.samples import NO_SAMPLES
from core.time_limits import TimeLimits
from core.timestamps import DAY_US
from ingest.journal.replay import BY_OTHER
from ingest.spool.format import SpooledBatch
from ingest.writer.pair.polled import WRITE, lonely
from ingest.writer.transaction import quarantine
from ingest.writer.transaction.group import Group, assemble
from ingest.writer.transaction.quarantine import Quarantined
from schema.queries import load

log = logging.getLogger(__name__)

# Days per transaction. Creating a chunk takes 6.4 locks until its end (measured), and no server has fewer than
# about 6,000 for all sessions.
MOST_DAYS = 100
_NO_DAYS = np.zeros(0, np.int64)

_ByFile: TypeAlias = list[tuple[Path, list[SpooledBatch]]]


@dataclass(slots=True)
class _SplitBatch:
    """A batch written in several pieces."""

    path: Path
    whole: SpooledBatch
    refused: list[Quarantined] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Part of a group that one transaction writes."""

    _group: Group
    _split: _SplitBatch | None = None  # None: whole batches
    last: bool = False  # of a split batch
    isolate_bad_rows: bool = False  # one batch of counts with bad rows

    @property
    def group(self) -> Group:
        """Samples, events, gaps; in the last piece of a batch also its bad rows."""
        return (
            replace(self._group, quarantined=tuple(self._split.refused)) if self.last and self._split else self._group
        )

    @property
    def complete(self) -> tuple[tuple[Path, tuple[SpooledBatch, ...]], ...]:
        """The batches that are complete after this piece."""
        if self._split is None:
            return self._group.batches_by_file
        return ((self._split.path, (self._split.whole,)),) if self.last else ()


def undivided(group: Group) -> Piece:
    """The whole group as one piece."""
    return Piece(group)


def split_by_days(group: Group, limits: TimeLimits) -> list[Piece]:
    """Split ``group`` into pieces of at most :data:`MOST_DAYS` days: batches of few days first, newest first,
    so that live data need not wait; then the parts of batches with many days."""
    batches = [(path, spooled) for path, of_file in group.batches_by_file for spooled in of_file]
    days = [_days(spooled.batch, limits) for _, spooled in batches]
    if len(np.unique(np.concatenate(days))) <= MOST_DAYS:
        return [undivided(group)]
    pieces: list[Piece] = []
    parts: list[Piece] = []
    gathered: list[tuple[Path, SpooledBatch]] = []  # batches of the current piece
    covered = _NO_DAYS  # days of these batches
    for index in sorted(range(len(batches)), key=lambda i: int(days[i].max(initial=0)), reverse=True):
        path, spooled = batches[index]
        if len(days[index]) > MOST_DAYS and isinstance(spooled.batch, SampleBatch | EventBatch):
            parts += _parts(path, spooled, days[index], limits)
            continue
        union = np.union1d(covered, days[index])
        if gathered and len(union) > MOST_DAYS:
            pieces.append(_as_piece(gathered, limits))
            gathered, union = [], days[index]
        gathered.append((path, spooled))
        covered = union
    return [*pieces, *([_as_piece(gathered, limits)] if gathered else []), *parts]


def _parts(path: Path, spooled: SpooledBatch, days: Int64s, limits: TimeLimits) -> list[Piece]:
    """Split a batch of samples or events by its ``days``, newest first; data outside the time limits
    is in the first part."""
    batch = spooled.batch
    assert isinstance(batch, SampleBatch | EventBatch)
    day = _times(batch) // DAY_US
    split = _SplitBatch(path, spooled)
    pieces: list[Piece] = []
    day_index = np.searchsorted(-days[::-1], -day)  # index of its day, from the newest
    part_of = np.where(np.isin(day, days), day_index // MOST_DAYS, 0)
    for number in range(-(-len(days) // MOST_DAYS)):
        part = replace(spooled, batch=_subset(batch, part_of == number))
        pieces.append(Piece(assemble([(path, [part])], limits), split))
    return [*pieces, Piece(Group((), NO_SAMPLES, ()), split, last=True)]


def _as_piece(batches: list[tuple[Path, SpooledBatch]], limits: TimeLimits) -> Piece:
    return Piece(assemble([(path, [spooled]) for path, spooled in batches], limits))


def _days(batch: Batch, limits: TimeLimits) -> Int64s:
    """The days (since 1970, ascending) within the time limits that a batch has rows for; if they are close, also
    those in between. Gaps have none: they are not in a hypertable."""
    if isinstance(batch, GapBatch) or len(batch) == 0:
        return _NO_DAYS
    day = _times(batch) // DAY_US
    first, last = int(day.min()), int(day.max())
    if last - first < MOST_DAYS:  # live data, nearly always
        return np.arange(first, last + 1)
    return np.unique(day[limits.inside(batch.received_at, _times(batch), batch.source_id)])


def _times(batch: SampleBatch | EventBatch | CountBatch) -> Int64s:
    """Times of samples or events (µs), (n,)."""
    if isinstance(batch, EventBatch):
        return np.array([event.time for event in batch.events], np.int64)
    return batch.samples.time if isinstance(batch, SampleBatch) else batch.time


def _subset(batch: SampleBatch | EventBatch, mask: NDArray[np.bool_]) -> Batch:
    if isinstance(batch, SampleBatch):
        return batch.part(mask)
    return replace(batch, events=[event for event, taken in zip(batch.events, mask, strict=True) if taken])


def bisect(piece: Piece, limits: TimeLimits, error: Exception, poison: bool) -> list[Piece]:
    """Smaller pieces to replace one that failed, in order; ``[piece]`` if it cannot be split.

    ``poison``: a single row goes to the quarantine with ``error``.
    """
    if piece.last:
        return [piece]
    batches = [(path, spooled) for path, of_file in piece.group.batches_by_file for spooled in of_file]
    if len(batches) > 1:
        half = len(batches) // 2
        return [Piece(assemble([(p, [b]) for p, b in part], limits)) for part in (batches[:half], batches[half:])]
    ((path, spooled),) = batches
    if isinstance(spooled.batch, CountBatch):
        return [replace(piece, isolate_bad_rows=True)] if poison and not piece.isolate_bad_rows else [piece]
    parts = _halves(spooled.batch)
    if not parts and not poison:
        return [piece]
    split = piece._split or _SplitBatch(path, spooled)
    if not parts:
        split.refused.append(quarantine.refused(spooled.batch, error))
    pieces = [Piece(assemble([(path, [replace(spooled, batch=batch)])], limits), split) for batch in parts]
    if piece._split is None:
        pieces.append(Piece(Group((), NO_SAMPLES, ()), split, last=True))
    return pieces


def _halves(batch: SampleBatch | EventBatch | GapBatch) -> Sequence[Batch]:
    """The halves of a batch; nothing if it has one row."""
    half = len(batch) // 2
    if isinstance(batch, GapBatch):
        return _gap_halves(batch)
    if half == 0:
        return ()
    if isinstance(batch, SampleBatch):
        return batch.part(slice(None, half)), batch.part(slice(half, None))
    return replace(batch, events=batch.events[:half]), replace(batch, events=batch.events[half:])


def _gap_halves(batch: GapBatch) -> Sequence[Batch]:
    if len(batch) > 1:
        half = len(batch) // 2
        # The order of gaps does not matter: see the revision in section gap of write.sql.
        later = replace(batch, received_at=batch.received_at + half, gaps=batch.gaps[half:])
        return replace(batch, gaps=batch.gaps[:half]), later
    (gap,) = batch.gaps
    if gap.channel_ids is None or len(gap.channel_ids) == 1:
        return ()
    half = len(gap.channel_ids) // 2
    return [
        replace(batch, gaps=(replace(gap, channel_ids=ids),))
        for ids in (gap.channel_ids[:half], gap.channel_ids[half:])
    ]


async def split_committed(
    connection: asyncpg.Connection[Any], pieces: Sequence[Piece], time_out: float
) -> tuple[_ByFile, _ByFile]:
    """The batches of ``pieces`` that the database has, and the others. None are known if it can't tell.

    Of what both members of a redundant pair polled, and the other one wrote, the database has samples nearby.
    """
    batches = [(path, spooled) for piece in pieces for path, of_file in piece.complete for spooled in of_file]
    keys = [spooled.key for _, spooled in batches]
    polled = [
        (index, spooled.batch)
        for index, (path, spooled) in enumerate(batches)
        if spooled.is_polled and isinstance(spooled.batch, SampleBatch) and path.name.endswith(BY_OTHER)
    ]

    async def fetch(query: str, *parameters: object) -> list[asyncpg.Record]:
        return await bounded(connection, time_out, connection.fetch(query, *parameters))

    try:
        rows = await fetch(load("write")["select_batches"], [key[0] for key in keys], [key[1] for key in keys])
        stored_keys = {(row["source_id"], row["sequence"]) for row in rows}
        stored = {index for index, key in enumerate(keys) if key in stored_keys}
        stored |= {index for index, _ in polled} - await lonely(polled, WRITE, fetch)
    except Exception as error:
        log.warning("replay: %s: %s; writing batches that the database may have", type(error).__name__, error)
        stored = set()
    return (
        [(path, [spooled]) for index, (path, spooled) in enumerate(batches) if index in stored],
        [(path, [spooled]) for index, (path, spooled) in enumerate(batches) if index not in stored],
    )
