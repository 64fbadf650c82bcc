"""The backlog in the spools of a folder: read for the database, moved to the journal once committed.

What is to be written again is read from the journal like a low-priority spool file.

SQLite files are read and trimmed by one thread; only ``release`` and ``committed`` may be called from another one.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from core import metrics
from core.config.model import SpoolOptions
from core.errors import SpoolError
from ingest.journal.journal import Journal, JournalReport
from ingest.journal.reader import ReplayReader
from ingest.journal.replay import SUFFIX, is_request
from ingest.spool.format import SpooledBatch
from ingest.spool.reader import SpoolReader
from ingest.writer.restored.commit_mark import CommitMark

log = logging.getLogger(__name__)

BatchesByFile: TypeAlias = list[tuple[Path, list[SpooledBatch]]]  # batches by file, oldest first

_BACKFILL = ".backfill.sqlite"  # suffix of low-priority files
_LOW_PRIORITY_ROWS = 50_000  # read at a time


class Backlog:
    """The spool files of one folder, including new ones as they appear."""

    def __init__(self, folder: Path, max_rows: int, options: SpoolOptions) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._max_rows = max_rows
        self.journal = Journal(folder, options)
        self.mark = CommitMark(folder)
        self._files: dict[Path, SpoolReader | ReplayReader] = {}
        self._committed: deque[tuple[Path, Sequence[SpooledBatch]]] = deque()  # not yet in the journal
        self._kept: deque[tuple[Path, list[int]]] = deque()  # sequences to delete
        self._low_priority_busy = False  # a worker has low-priority batches
        self._errors: dict[Path, str] = {}  # last error of files that cannot be read or written

    def take(self) -> tuple[BatchesByFile, bool]:
        """The oldest batches of all files, at most ``max_rows`` rows or one batch; low-priority ones only if there is
        nothing else. And whether there may be more."""
        with os.scandir(self._folder) as entries:  # a fifth of what Path.glob costs
            names = sorted(entry.name for entry in entries)
        for name in names:
            if name.endswith(".sqlite") and (path := self._folder / name) not in self._files:
                self._files[path] = SpoolReader(path)
            elif name.endswith(SUFFIX) and (path := self._folder / name) not in self._files:
                self._files[path] = ReplayReader(path)
        for path in [path for path, file in self._files.items() if isinstance(file, ReplayReader) and file.done]:
            self._files.pop(path).close()
        batches_by_file: BatchesByFile = []
        room = self._max_rows
        for path, file in self._files.items():
            if is_low_priority(path) or room <= 0:
                continue
            if batches := self._read(file, room):
                batches_by_file.append((path, batches))
                room -= sum(len(b.batch) for b in batches)
        if batches_by_file:
            return batches_by_file, room <= 0 or any(map(self._has_more, self._files.values()))
        low_priority = self._take_low_priority()
        return low_priority, bool(low_priority)

    def _has_more(self, file: SpoolReader | ReplayReader) -> bool:
        """Return whether there is more to read, of the same files or with low priority."""
        try:
            return not self._low_priority_busy and file.has_unread() if is_low_priority(file.path) else file.has_more
        except SpoolError as error:
            self._failed(file.path, error)
            return False

    def _take_low_priority(self) -> BatchesByFile:
        """A few low-priority batches.

        For one worker at a time: live data then finds a free worker, or waits for few rows only.
        """
        if self._low_priority_busy:
            return []
        for path, file in self._files.items():
            if is_low_priority(path) and (batches := self._read(file, min(_LOW_PRIORITY_ROWS, self._max_rows))):
                self._low_priority_busy = True
                return [(path, batches)]
        return []

    def _read(self, file: SpoolReader | ReplayReader, rows: int) -> list[SpooledBatch]:
        """Read one file; nothing if it cannot be read: others continue."""
        try:
            return file.read(rows)
        except SpoolError as error:
            self._failed(file.path, error)
            return []

    def _failed(self, path: Path, error: Exception) -> None:
        """Log each error of a file once."""
        if self._errors.get(path) != str(error):
            log.error("%s", error)
        self._errors[path] = str(error)

    def release(self, paths: Iterable[Path]) -> bool:
        """A worker has committed its batches. Returns whether low priority became free."""
        if not any(is_low_priority(path) for path in paths):
            return False
        self._low_priority_busy = False
        return True

    def committed(self, batches: Iterable[tuple[Path, Sequence[SpooledBatch]]]) -> None:
        """Remember committed batches; :meth:`delete_committed` deletes them."""
        self._committed.extend(batches)

    def delete_committed(self) -> None:
        """Append committed batches to the journal, then delete them; retried later on disk errors, as replays are
        no-ops."""
        committed = [self._committed.popleft() for _ in range(len(self._committed))]
        # What comes from the journal stays there.
        self.journal.append([(path, of_file) for path, of_file in committed if not is_request(path)])
        self.mark.committed(committed)
        self._kept.extend((path, [spooled.sequence for spooled in of_file]) for path, of_file in committed)
        for _ in range(len(self._kept)):
            path, sequences = self._kept.popleft()
            try:
                self._files[path].delete(sequences)
            except SpoolError as error:
                self._failed(path, error)
                self._kept.append((path, sequences))
            else:
                self._errors.pop(path, None)

    def dead_letter(self, path: Path, sequence: int, why: str) -> None:
        """Move a batch that cannot be stored to a dead letter."""
        log.error("%s: batch %d cannot be written, moved to the folder damaged: %s", path.name, sequence, why)
        try:
            self._files[path].dead_letter(sequence, why)
        except (OSError, SpoolError):
            log.exception("%s: batch %d stays in the spool until the next start", path.name, sequence)

    def measure(self) -> tuple[int, int, JournalReport]:
        """Rows and bytes in all files, and what the journal has."""
        rows = used = replay_rows = 0
        for path, file in self._files.items():
            if isinstance(file, ReplayReader):
                replay_rows += file.rows
                continue
            try:
                _, file_rows, file_bytes = file.depth()
            except SpoolError as error:
                self._failed(path, error)
                continue
            metrics.spool_rows.labels(spool=path.stem).set(file_rows)
            metrics.spool_bytes.labels(spool=path.stem).set(file_bytes)
            rows += file_rows
            used += file_bytes
        metrics.replay_rows.set(replay_rows)
        return rows, used, replace(self.journal.report(), waiting_rows=replay_rows)

    def oldest(self) -> int | None:
        """Time at which the oldest batch of all files was received (µs)."""
        times = []
        for path, file in self._files.items():
            if isinstance(file, SpoolReader):
                try:
                    times.append(file.oldest())
                except SpoolError as error:
                    self._failed(path, error)
        return min((time for time in times if time is not None), default=None)

    def close(self) -> None:
        """Delete committed batches, and close the files."""
        self.delete_committed()
        for file in self._files.values():
            file.close()
        self.journal.close()
        self.mark.save()


def is_low_priority(path: Path) -> bool:
    """Return whether this file is read only if nothing else waits."""
    return path.name.endswith(_BACKFILL) or is_request(path)
