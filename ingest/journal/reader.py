"""The writer's reader of a request: batches of the journal as if they were in a low-priority spool file."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from core.errors import SpoolCorrupt
from ingest.journal.record import Header, Segment
from ingest.journal.replay import BY_OTHER, Request, load, selected
from ingest.spool import dead_letter
from ingest.spool.format import SpooledBatch, encode
from ingest.spool.segments import segments

log = logging.getLogger(__name__)


class ReplayReader:
    """Reads what the request at ``path`` asks for, and removes the request once it is written.

    A writer that was killed continues with the segment that it was at.
    """

    has_more = False  # as of a spool file; of low-priority ones :meth:`has_unread` tells

    def __init__(self, path: Path) -> None:
        self.path = path
        self._by_other = path.name.endswith(BY_OTHER)
        try:
            self._request = load(path)
        except (OSError, ValueError) as error:
            log.error("%s", error)
            self._request = Request(0, -1, 0)
        self._name = self._request.segment  # of the segment that ``_next`` is in
        self._records = self._all()
        self._next = next(self._records, None)
        self._in_flight: dict[int, list[tuple[str, SpooledBatch]]] = {}  # by sequence: spool and batch
        self._rows = 0  # read since the request was saved

    def _all(self) -> Generator[tuple[Segment, int, Header]]:
        request = self._request
        for _, path in selected(segments(self.path.parent), request.since, request.until):
            if path.name < request.segment:
                continue
            self._name = path.name
            with suppress(OSError), closing(Segment(path)) as segment:  # dropped meanwhile, or unreadable
                for at, header in segment.headers():
                    is_requested = header.by_other or not self._by_other
                    if is_requested and request.since <= header.committed_at <= request.until:
                        yield segment, at, header

    @property
    def rows(self) -> int:
        """Rows that wait; an estimate after a restart."""
        return max(0, self._request.rows - self._rows)

    @property
    def done(self) -> bool:
        """Return whether everything is written."""
        return self._next is None and not self._in_flight

    def has_unread(self) -> bool:
        """Return whether there are unread batches."""
        return self._next is not None

    def read(self, max_rows: int) -> list[SpooledBatch]:
        """The next batches, at most ``max_rows`` rows, but at least one batch if there is any."""
        batches: list[SpooledBatch] = []
        rows = 0
        while self._next is not None and (not batches or rows + self._next[2].rows <= max_rows):
            segment, at, header = self._next
            try:
                spooled = segment.read(at, header)
            except (OSError, SpoolCorrupt) as error:
                log.error("journal: %s: %s", self._name, error)
            else:
                batches.append(spooled)
                rows += header.rows
                self._in_flight.setdefault(spooled.sequence, []).append((header.spool, spooled))
            self._next = next(self._records, None)
        self._rows += rows
        if not batches:
            self.delete(())
        return batches

    def delete(self, sequences: Iterable[int]) -> None:
        """Delete batches that are written. A failure is logged, and they are read again after a start."""
        for sequence in sequences:
            if not self._in_flight[sequence][1:]:
                del self._in_flight[sequence]
            else:
                self._in_flight[sequence].pop()
        try:
            if self.done:
                self.path.unlink(missing_ok=True)
            elif not self._in_flight and self._name != self._request.segment:
                self._request = replace(self._request, rows=self.rows, segment=self._name)
                self._rows = 0
                self._request.save(self.path)
        except OSError as error:
            log.warning("%s: %s", self.path.name, error)

    def dead_letter(self, sequence: int, why: str) -> None:
        """Move a batch that the database does not take again to a dead letter. Raises OSError."""
        for spool, spooled in self._in_flight.get(sequence, ()):
            dead_letter.write(self.path.with_name(f"{spool}.sqlite"), sequence, encode(spooled.batch), why)
        self.delete([sequence])

    def close(self) -> None:
        """Close the segment."""
        self._records.close()
