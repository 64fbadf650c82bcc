"""The writer's end of the journal: append what is committed, drop what is old."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core import metrics
from core.config.model import SpoolOptions
from core.files import sync
from core.timestamps import now_us
from ingest.journal.record import encode_record, headers
from ingest.journal.replay import has_requests
from ingest.spool.format import SpooledBatch
from ingest.spool.segments import drop_oldest, segment, segments

log = logging.getLogger(__name__)

_SEGMENT_BYTES = 64 * 1024**2  # of a segment; of a small journal a sixteenth of it
_SEGMENT_US = 3_600_000_000
_LEFT_FREE = 1 / 16  # of the disk; more than the least for which the alert PlantlogDiskNearlyFull is silent
_TRIM_SECONDS = 60.0  # between two looks for old segments
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class JournalReport:
    """Content of the journal."""

    bytes: int
    begin: int | None  # when its oldest batch was committed, µs; None: it is empty
    problem: str | None  # why batches that are committed now are not kept
    waiting_rows: int = 0  # that are to be written again


class Journal:
    """The journal in the spool folder ``spool``. Not thread-safe.

    Nothing here raises: a disk that is full or fails costs journal, but never holds up ingest.
    """

    def __init__(self, spool: Path, options: SpoolOptions) -> None:
        self._spool = spool
        self._options = options
        self._segment_bytes = min(_SEGMENT_BYTES, options.keep_bytes // 16)
        self._file: int | None = None  # the open segment
        self._path = spool
        self._begin = 0  # of the open segment, µs
        self._bytes = 0  # in the open segment
        # Of the last batches, µs: later ones have a later time, also where the clock was set.
        self._committed_at = 0
        for begin, path in segments(spool)[-1:]:
            self._committed_at = max([begin, *(header.committed_at for header in headers(path))])
        self._problem: str | None = None
        self._trim_at = float("-inf")

    def append(self, batches: Sequence[tuple[Path, Sequence[SpooledBatch]]], by_other: bool = False) -> None:
        """Append batches that were committed just now, durably, as far as the disk allows.

        ``by_other``: what they contain was, by the other member of a redundant pair.
        """
        if not self._options.keep or not batches:
            return
        self._committed_at = max(now_us(), self._committed_at + 1)
        try:
            records = [
                encode_record(path.stem, spooled, self._committed_at, by_other)
                for path, of_file in batches
                for spooled in of_file
            ]
            self._write(b"".join(records))
        except Exception as error:
            self._failed(error)
        else:
            if self._problem:
                log.info("journal: batches are kept again")
            self._problem = None

    def trim(self) -> None:
        """Drop what is too old or too much, and make room for the spool. To be called once a second."""
        with suppress(OSError):
            self._make_room()
            if (now := time.monotonic()) >= self._trim_at:
                self._trim_at = now + _TRIM_SECONDS
                self._drop_old()

    def report(self) -> JournalReport:
        """Report on the content of the journal; sets the metrics."""
        files = segments(self._spool)
        used, begin = _bytes(files), files[0][0] if files else None
        metrics.journal_bytes.set(used)
        metrics.journal_begin.set(begin / 1e6 if begin else float("nan"))
        return JournalReport(used, begin, self._problem)

    def close(self) -> None:
        """Close the open segment."""
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None

    def _failed(self, error: Exception) -> None:
        metrics.journal_failures.inc()
        reason = (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
        if self._problem != reason:
            log.error("journal: committed batches are not kept: %s", reason)
        self._problem = reason

    def _write(self, records: bytes) -> None:
        while True:
            self._make_room()
            try:
                if self._is_over(len(records)):
                    self._open()
                assert self._file is not None
                written = 0
                while written < len(records):
                    written += os.write(self._file, memoryview(records)[written:])
                os.fdatasync(self._file)
                self._bytes += written
                return
            except OSError as error:
                torn, empty = self._path, not self._bytes
                self.close()  # a later record is not to follow a torn one
                if empty:
                    with suppress(OSError):
                        torn.unlink()
                if error.errno not in _NO_SPACE or not drop_oldest(self._spool):
                    raise

    def _is_over(self, more: int) -> bool:
        """Return whether ``more`` bytes need a new segment."""
        return (
            self._file is None
            or not os.fstat(self._file).st_nlink  # a collector dropped it
            or self._committed_at >= self._begin + _SEGMENT_US
            or self._bytes + more > self._segment_bytes
        )

    def _open(self) -> None:
        self.close()
        self._drop_old(self._segment_bytes)
        before = segments(self._spool)
        self._begin = max(self._committed_at, before[-1][0] + 1 if before else 0)
        self._path, self._bytes = segment(self._spool, self._begin), 0
        self._path.parent.mkdir(exist_ok=True)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        sync(self._path.parent)

    def _make_room(self) -> None:
        """Drop segments until the disk has as much free space as is left to others."""
        while self._is_short_of_space():
            if not drop_oldest(self._spool):
                self.close()
                raise OSError(errno.EDQUOT, "the disk has too little free space")
            if self._file is not None and not os.fstat(self._file).st_nlink:
                self.close()  # only then its space is free

    def _is_short_of_space(self) -> bool:
        disk = shutil.disk_usage(self._spool)
        return disk.free < max(self._options.max_bytes, disk.total * _LEFT_FREE)

    def _drop_old(self, more: int = 0) -> None:
        """Drop segments whose batches are all too old, or which are too much with ``more`` bytes.

        What waits to be written again may get old.
        """
        files = segments(self._spool)
        oldest = now_us() - round(self._options.keep * 1e6)
        while len(files) > 1 and _bytes(files) + more > self._options.keep_bytes:
            files.pop(0)[1].unlink(missing_ok=True)
        if has_requests(self._spool):
            return
        while len(files) > 1 and files[1][0] <= oldest:
            files.pop(0)[1].unlink(missing_ok=True)
        if files and not self._options.keep:
            files[0][1].unlink(missing_ok=True)


def _bytes(files: Sequence[tuple[int, Path]]) -> int:
    total = 0
    for _, path in files:
        with suppress(OSError):
            total += path.stat().st_size
    return total
