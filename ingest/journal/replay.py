"""Write a part of the journal again, and see what it has. Any process may call this.

Requests are files in the spool folder, which the writer removes when it has written what they are for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from core.files import write_atomically
from core.timestamps import LATEST_US, now_us, utc
from ingest.journal.record import headers
from ingest.spool.segments import segments


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """Batches that the writer will write again. Times are µs; None: there is nothing."""

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


def replay(
    spool_folder: Path, since_us: int | None = None, until_us: int | None = None, by_other: bool = False
) -> ReplayReport:
    """Have the writer write again what was committed from ``since_us`` to ``until_us``; None: all, also what was
    committed before the clock was set back.

    ``by_other``: only what the other member of a redundant pair wrote.

    The writer does so when nothing else waits, now or after its next start. What the database has is a no-op.
    Raises OSError.
    """
    since, until = since_us or 0, until_us if until_us is not None else LATEST_US
    files = segments(spool_folder)
    batches = rows = 0
    first = last = None
    for header in (header for _, path in selected(files, since, until) for header in headers(path)):
        if since <= header.committed_at <= until and (header.by_other or not by_other):
            batches += 1
            rows += header.rows
            first, last = min(first or header.committed_at, header.committed_at), max(last or 0, header.committed_at)
    if last is not None:
        name = f"{utc(now_us()):%Y%m%dT%H%M%S.%fZ}{BY_OTHER if by_other else SUFFIX}"
        Request(since, last, rows).save(spool_folder / name)
    return ReplayReport(batches, rows, first, last, files[0][0] if files else None)


def keys(spool_folder: Path) -> Iterator[JournalKey]:
    """The batches of the journal that this appliance itself wrote, newest first. A batch may be there twice."""
    for _, path in reversed(segments(spool_folder)):
        for h in reversed([header for header in headers(path) if not header.by_other]):
            yield JournalKey(h.source_id, h.key, h.first_time, h.last_time, h.received_at, h.committed_at)


def selected(files: list[tuple[int, Path]], since: int, until: int) -> list[tuple[int, Path]]:
    """The segments that may have batches committed from ``since`` to ``until``."""
    ends = [*(begin for begin, _ in files[1:]), until]
    return [segment for segment, end in zip(files, ends, strict=False) if segment[0] <= until and end >= since]


SUFFIX = ".replay"
BY_OTHER = f".by-other{SUFFIX}"  # only what the other member of a redundant pair wrote


@dataclass(frozen=True, slots=True)
class Request:
    """Request for batches committed from ``since`` to ``until`` (µs), from a segment on."""

    since: int
    until: int
    rows: int  # that they have
    segment: str = ""  # name of the first segment that is not done yet

    def save(self, path: Path) -> None:
        """Write it durably. Raises OSError."""
        write_atomically(path, json.dumps(asdict(self)))


def load(path: Path) -> Request:
    """Raises OSError, and ValueError if it is not a request."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return Request(int(fields["since"]), int(fields["until"]), int(fields["rows"]), str(fields["segment"]))
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path.name} is not a request for a replay: {error!r}") from error


def is_request(path: Path) -> bool:
    """Return whether a file is a request, by its name."""
    return path.name.endswith(SUFFIX)


def has_requests(spool: Path, own_only: bool = False) -> bool:
    """Return whether batches of the journal wait to be written again; ``own_only``: those that this appliance wrote."""
    with os.scandir(spool) as entries:
        names = [entry.name for entry in entries if entry.name.endswith(SUFFIX)]
    return any(not (own_only and name.endswith(BY_OTHER)) for name in names)
