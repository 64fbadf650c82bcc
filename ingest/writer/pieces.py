"""Pieces of a group: what the database refuses is divided until the rows that it refuses stand alone.

A group is divided into its batches, a batch into its rows. Each piece is a transaction of its own, so that what has
landed has landed, however long the rest takes. The facts of a divided batch, and its rows that were refused, go with
the last piece.

A batch of counts is not divided: nothing but its facts tells whether increments are in the table already, so all of it
goes in one transaction, which finds out by itself which rows are refused (see ``careful``).

What reaches over many days is in pieces from the start: each day is a chunk, each chunk takes locks, and the server's
table of locks is shared by all of its sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingest.batch import Batch, CountBatch, EventBatch, GapBatch, Int64s, SampleBatch
from ingest.spool.format import SpooledBatch
from ingest.writer import quarantine
from ingest.writer.group import Group, TimeLimits, assemble, part
from ingest.writer.quarantine import Quarantined

# Days of one transaction. A chunk that it makes takes 6.4 locks until its end (measured), and no server has fewer than
# some 6,000 for all of its sessions.
MOST_DAYS = 100
_DAY_US = 86_400_000_000
_NO_DAYS = np.zeros(0, np.int64)


@dataclass(slots=True)
class _Divided:
    """A batch that is written in parts."""

    path: Path
    whole: SpooledBatch
    refused: list[Quarantined] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """What one transaction writes."""

    _group: Group
    _of: _Divided | None = None  # None: whole batches
    last: bool = False  # of a divided batch
    careful: bool = False  # one batch of counts, of which the database refuses some

    @property
    def group(self) -> Group:
        """Samples, events, gaps, and what was refused so far where it is the last of its batch."""
        return replace(self._group, quarantined=tuple(self._of.refused)) if self.last and self._of else self._group

    @property
    def complete(self) -> tuple[tuple[Path, tuple[SpooledBatch, ...]], ...]:
        """The batches of which nothing is left to write after this piece."""
        if self._of is None:
            return self._group.taken
        return ((self._of.path, (self._of.whole,)),) if self.last else ()


def whole(group: Group) -> Piece:
    """All of a group at once."""
    return Piece(group)


def by_days(group: Group, limits: TimeLimits) -> list[Piece]:
    """``group`` in pieces of at most :data:`MOST_DAYS` days each: batches of few days first, the newest before others,
    so that what is live does not wait for the rest; then the parts of batches of many."""
    batches = [(path, spooled) for path, of_file in group.taken for spooled in of_file]
    days = [_days(spooled.batch, limits) for _, spooled in batches]
    if len(np.unique(np.concatenate(days))) <= MOST_DAYS:
        return [whole(group)]
    pieces: list[Piece] = []
    parts: list[Piece] = []
    together: list[tuple[Path, SpooledBatch]] = []  # the batches of one piece
    covered = _NO_DAYS  # theirs
    for place in sorted(range(len(batches)), key=lambda i: int(days[i].max(initial=0)), reverse=True):
        path, spooled = batches[place]
        if len(days[place]) > MOST_DAYS and isinstance(spooled.batch, SampleBatch | EventBatch):
            parts += _parts(path, spooled, days[place], limits)
            continue
        union = np.union1d(covered, days[place])
        if together and len(union) > MOST_DAYS:
            pieces.append(_together(together, limits))
            together, union = [], days[place]
        together.append((path, spooled))
        covered = union
    return [*pieces, *([_together(together, limits)] if together else []), *parts]


def _parts(path: Path, spooled: SpooledBatch, days: Int64s, limits: TimeLimits) -> list[Piece]:
    """A batch of samples or events in parts of some of its ``days``, newest first; what is outside of the time limits
    goes with the first."""
    batch = spooled.batch
    assert isinstance(batch, SampleBatch | EventBatch)
    day = _times(batch) // _DAY_US
    divided = _Divided(path, spooled)
    pieces: list[Piece] = []
    place = np.searchsorted(-days[::-1], -day)  # among its days, from the newest
    part_of = np.where(np.isin(day, days), place // MOST_DAYS, 0)
    for number in range(-(-len(days) // MOST_DAYS)):
        some = replace(spooled, batch=_some(batch, part_of == number))
        pieces.append(Piece(assemble([(path, [some])], limits), divided))
    return [*pieces, Piece(Group((), None, ()), divided, last=True)]


def _together(batches: list[tuple[Path, SpooledBatch]], limits: TimeLimits) -> Piece:
    return Piece(assemble([(path, [spooled]) for path, spooled in batches], limits))


def _days(batch: Batch, limits: TimeLimits) -> Int64s:
    """The days (since 1970, ascending) within the time limits that a batch has rows of; where they are near, those
    between them as well. Gaps have none: they are in no hypertable."""
    if isinstance(batch, GapBatch) or len(batch) == 0:
        return _NO_DAYS
    day = _times(batch) // _DAY_US
    first, last = int(day.min()), int(day.max())
    if last - first < MOST_DAYS:  # live data, nearly always
        return np.arange(first, last + 1)
    return np.unique(day[limits.inside(batch.received_at, _times(batch))])


def _times(batch: SampleBatch | EventBatch | CountBatch) -> Int64s:
    """µs, (n,)."""
    if isinstance(batch, EventBatch):
        return np.array([event.time for event in batch.events], np.int64)
    return batch.time


def _some(batch: SampleBatch | EventBatch, which: NDArray[np.bool_]) -> Batch:
    if isinstance(batch, SampleBatch):
        return part(batch, which)
    return replace(batch, events=[event for event, taken in zip(batch.events, which, strict=True) if taken])


def divide(piece: Piece, limits: TimeLimits, error: Exception, poison: bool) -> list[Piece]:
    """Smaller pieces in place of one that failed, in order; ``[piece]`` where there are none.

    Where ``poison``, a row that stands alone goes to quarantine with what ``error`` says.
    """
    if piece.last:
        return [piece]
    batches = [(path, spooled) for path, of_file in piece.group.taken for spooled in of_file]
    if len(batches) > 1:
        half = len(batches) // 2
        return [Piece(assemble([(p, [b]) for p, b in some], limits)) for some in (batches[:half], batches[half:])]
    ((path, spooled),) = batches
    if isinstance(spooled.batch, CountBatch):
        return [replace(piece, careful=True)] if poison and not piece.careful else [piece]
    parts = _halves(spooled.batch)
    if not parts and not poison:
        return [piece]
    divided = piece._of or _Divided(path, spooled)
    if not parts:
        divided.refused.append(quarantine.refused(spooled.batch, error))
    pieces = [Piece(assemble([(path, [replace(spooled, batch=batch)])], limits), divided) for batch in parts]
    if piece._of is None:
        pieces.append(Piece(Group((), None, ()), divided, last=True))
    return pieces


def _halves(batch: SampleBatch | EventBatch | GapBatch) -> Sequence[Batch]:
    """The first and the second half of a batch; nothing where it is one row."""
    half = len(batch) // 2
    if isinstance(batch, GapBatch):
        return _gap_halves(batch)
    if half == 0:
        return ()
    if isinstance(batch, SampleBatch):
        return part(batch, slice(None, half)), part(batch, slice(half, None))
    return replace(batch, events=batch.events[:half]), replace(batch, events=batch.events[half:])


def _gap_halves(batch: GapBatch) -> Sequence[Batch]:
    if len(batch) > 1:
        half = len(batch) // 2
        # What is said later stays right: see the revision in section gap of write.sql.
        later = replace(batch, received_at=batch.received_at + half, gaps=batch.gaps[half:])
        return replace(batch, gaps=batch.gaps[:half]), later
    (gap,) = batch.gaps
    if gap.channel_ids is None or len(gap.channel_ids) == 1:
        return ()
    half = len(gap.channel_ids) // 2
    return [
        replace(batch, gaps=(replace(gap, channel_ids=some),))
        for some in (gap.channel_ids[:half], gap.channel_ids[half:])
    ]
