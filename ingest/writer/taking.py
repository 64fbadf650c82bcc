"""What waits in the spools of a folder: taken for the database, and deleted when the database has it.

SQLite's files are read and trimmed by one thread; only ``done`` and ``committed`` may be called by another one.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from ingest import metrics
from ingest.errors import SpoolError
from ingest.spool.format import SpooledBatch
from ingest.spool.take import SpoolFile

log = logging.getLogger(__name__)

Taken: TypeAlias = list[tuple[Path, list[SpooledBatch]]]  # batches of each file, oldest first

_BACKFILL = ".backfill.sqlite"  # ends the names of files that are taken when nothing else waits
_LOW_ROWS = 50_000  # of them at a time


class Spools:
    """The spool files of one folder, new ones as they appear."""

    def __init__(self, folder: Path, max_rows: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._max_rows = max_rows
        self._files: dict[Path, SpoolFile] = {}
        self._committed: deque[tuple[Path, list[int]]] = deque()  # sequences that are not yet deleted
        self._low_at_work = False  # a worker has batches of the low-priority lane
        self._wrong: dict[Path, str] = {}  # what was said of files that can't be read or written

    def take(self) -> tuple[Taken, bool]:
        """The oldest batches of all files, at most ``max_rows`` rows or one batch; of the low-priority lane if there is
        nothing else. And whether there may be more to take at once."""
        with os.scandir(self._folder) as entries:  # a fifth of what Path.glob costs
            names = sorted(entry.name for entry in entries)
        for name in names:
            if name.endswith(".sqlite") and (path := self._folder / name) not in self._files:
                self._files[path] = SpoolFile(path)
        taken: Taken = []
        room = self._max_rows
        for path, file in self._files.items():
            if is_low(path) or room <= 0:
                continue
            if batches := self._take_of(file, room):
                taken.append((path, batches))
                room -= sum(len(b.batch) for b in batches)
        if taken:
            return taken, room <= 0 or any(map(self._waits, self._files.values()))
        low = self._take_low()
        return low, bool(low)

    def _waits(self, file: SpoolFile) -> bool:
        """Whether it has more of what was taken just now, or something of the low-priority lane for a worker."""
        try:
            return not self._low_at_work and file.waits() if is_low(file.path) else file.left
        except SpoolError as error:
            self._failed(file.path, error)
            return False

    def _take_low(self) -> Taken:
        """A little of the low-priority lane.

        One worker at a time: live data that comes then finds another one, or waits for these few rows.
        """
        if self._low_at_work:
            return []
        for path, file in self._files.items():
            if is_low(path) and (batches := self._take_of(file, min(_LOW_ROWS, self._max_rows))):
                self._low_at_work = True
                return [(path, batches)]
        return []

    def _take_of(self, file: SpoolFile, rows: int) -> list[SpooledBatch]:
        """Nothing where the file can't be read: the others go on."""
        try:
            return file.take(rows)
        except SpoolError as error:
            self._failed(file.path, error)
            return []

    def _failed(self, path: Path, error: Exception) -> None:
        """Say it once for each thing that is wrong."""
        if self._wrong.get(path) != str(error):
            log.error("%s", error)
        self._wrong[path] = str(error)

    def done(self, paths: Iterable[Path]) -> bool:
        """A worker has written all that it had of these files; whether the low-priority lane is free again by that."""
        if not any(is_low(path) for path in paths):
            return False
        self._low_at_work = False
        return True

    def committed(self, batches: Iterable[tuple[Path, Sequence[SpooledBatch]]]) -> None:
        """The database has these: :meth:`delete_committed` forgets them."""
        self._committed.extend((path, [spooled.sequence for spooled in of_file]) for path, of_file in batches)

    def delete_committed(self) -> None:
        """What a disk does not let go now is deleted later; a replay of it would be a no-op."""
        for _ in range(len(self._committed)):
            path, sequences = self._committed.popleft()
            try:
                self._files[path].delete(sequences)
            except SpoolError as error:
                self._failed(path, error)
                self._committed.append((path, sequences))
            else:
                self._wrong.pop(path, None)

    def set_aside(self, path: Path, sequence: int, why: str) -> None:
        """Keep a batch that no table takes on our disk, out of the way of the others."""
        log.error("%s: the facts of batch %d are refused, kept aside: %s", path.name, sequence, why)
        try:
            self._files[path].set_aside(sequence, why)
        except (OSError, SpoolError):
            log.exception("%s: batch %d stays until the next start", path.name, sequence)

    def measure(self) -> tuple[int, int]:
        """Rows and bytes in all files."""
        rows = used = 0
        for path, file in self._files.items():
            try:
                _, file_rows, file_bytes = file.depth()
            except SpoolError as error:
                self._failed(path, error)
                continue
            metrics.spool_rows.labels(spool=path.stem).set(file_rows)
            metrics.spool_bytes.labels(spool=path.stem).set(file_bytes)
            rows += file_rows
            used += file_bytes
        return rows, used

    def close(self) -> None:
        """Delete what is committed, and close the files."""
        self.delete_committed()
        for file in self._files.values():
            file.close()


def is_low(path: Path) -> bool:
    """Whether the writer takes of this file when nothing else waits."""
    return path.name.endswith(_BACKFILL)
