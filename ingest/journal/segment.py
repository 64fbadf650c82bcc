"""Reads a segment of the journal. A damaged record, or a torn one at the end, is skipped; it never stops the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from ingest.journal.record import MAGIC, MAX_HEADER_BYTES, Header, decode_body, decode_header
from ingest.spool.format import SpooledBatch

_SEARCH_BYTES = 1024**2  # read at a time to find the next record after damage


class Segment:
    """An open segment. Raises OSError where it is gone or the disk cannot read it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def headers(self) -> Iterator[tuple[int, Header]]:
        """Offset and header of each complete record, in order."""
        at = 0
        while True:
            data = os.pread(self._file, MAX_HEADER_BYTES, at)
            header = decode_header(data)
            end = at + header.size + header.body_bytes if header is not None else 0
            if header is not None and end <= os.fstat(self._file).st_size:
                yield at, header
                at = end
            elif (found := self._find(at + 1)) is not None:
                at = found
            else:
                return

    def read(self, at: int, header: Header) -> SpooledBatch:
        """The batch of a record. Raises SpoolCorrupt."""
        return decode_body(header, os.pread(self._file, header.body_bytes, at + header.size))

    def _find(self, at: int) -> int | None:
        """The next offset from ``at`` on at which a record may begin."""
        while data := os.pread(self._file, _SEARCH_BYTES, at):
            if (place := data.find(MAGIC)) >= 0:
                return at + place
            at += max(1, len(data) - len(MAGIC) + 1)
        return None


def headers(path: Path) -> Iterator[Header]:
    """The headers of a segment, in order; those that can be read, if it is dropped meanwhile."""
    with suppress(OSError), closing(Segment(path)) as segment:
        for _, header in segment.headers():
            yield header
