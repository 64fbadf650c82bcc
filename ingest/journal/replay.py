"""Write a part of the journal again, and see what it has. Any process may call this."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ingest.journal.record import Header
from ingest.journal.request import SUFFIX, Request
from ingest.journal.segment import Segment
from ingest.spool.segments import segments
from ingest.timestamps import now_us, utc


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What the writer will write again. Times are µs; None: there is nothing."""

    batches: int
    rows: int
    first: int | None  # when the first of these batches was committed
    last: int | None
    begin: int | None  # of the journal: it does not have what was committed before


class JournalKey(NamedTuple):
    """A batch of the journal. Times are µs."""

    source_id: int
    sequence: int  # the key in ``plant.ingest_batch``
    first_time: int
    last_time: int
    received_at: int
    committed_at: int


def replay(spool_folder: Path, since_us: int | None = None, until_us: int | None = None) -> ReplayReport:
    """Have the writer write again what was committed from ``since_us`` to ``until_us``; None: all.

    The writer does so when nothing else waits, now or after its next start. What the database has is a no-op.
    Raises OSError.
    """
    since, until = since_us or 0, until_us if until_us is not None else now_us()
    found = segments(spool_folder)
    batches = rows = 0
    first = last = None
    for header in (header for _, path in selected(found, since, until) for header in _headers(path)):
        if since <= header.committed_at <= until:
            batches += 1
            rows += header.rows
            first, last = min(first or header.committed_at, header.committed_at), max(last or 0, header.committed_at)
    if batches:
        name = f"{utc(now_us()):%Y%m%dT%H%M%S.%fZ}{SUFFIX}"
        Request(since, until, rows).save(spool_folder / name)
    return ReplayReport(batches, rows, first, last, found[0][0] if found else None)


def keys(spool_folder: Path) -> Iterator[JournalKey]:
    """The batches of the journal, newest first. A batch may be there twice."""
    for _, path in reversed(segments(spool_folder)):
        for h in reversed(list(_headers(path))):
            yield JournalKey(h.source_id, h.key, h.first_time, h.last_time, h.received_at, h.committed_at)


def selected(found: list[tuple[int, Path]], since: int, until: int) -> list[tuple[int, Path]]:
    """The segments that may have batches committed from ``since`` to ``until``."""
    ends = [*(begin for begin, _ in found[1:]), until]
    return [one for one, end in zip(found, ends, strict=False) if one[0] <= until and end >= since]


def _headers(path: Path) -> Iterator[Header]:
    with suppress(OSError), closing(Segment(path)) as segment:  # dropped meanwhile, or unreadable
        for _, header in segment.headers():
            yield header
