"""Pieces of a group: what the database refuses is divided until the rows that it refuses stand alone.

A group is divided into its batches, a batch into its rows. Each piece is a transaction of its own, so that what has
landed has landed, however long the rest takes. The facts of a divided batch, and its rows that were refused, go with
the last piece.

A batch of counts is not divided: nothing but its facts tells whether increments are in the table already, so all of it
goes in one transaction, which finds out by itself which rows are refused (see ``careful``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ingest.batch import Batch, CountBatch, EventBatch, GapBatch, SampleBatch
from ingest.spool.format import SpooledBatch
from ingest.writer import quarantine
from ingest.writer.group import Group, TimeLimits, assemble, part
from ingest.writer.quarantine import Quarantined


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
