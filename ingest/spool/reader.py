"""The writer's side of the spool: read waiting batches, delete those committed to the database."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from core.errors import SpoolFull
from core.timestamps import now_us
from ingest.spool import dead_letter
from ingest.spool.ballast import Ballast
from ingest.spool.connection import SpoolConnection
from ingest.spool.file import checkpoint, last_sequence, transaction, used_bytes
from ingest.spool.format import Record, SpooledBatch, decode
from ingest.spool.metadata import Mark, MarkFile
from schema.queries import load

log = logging.getLogger(__name__)


class SpoolReader:
    """Reads one spool file, starting after the last batch read.

    Deletes need no fsync: a batch that reappears after a crash is a replay, which the database recognises.
    A damaged file is repaired; every method raises SpoolError if that fails, and on disk errors.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._queries = load("spool")
        self._file = SpoolConnection(path, "NORMAL", create=False)
        self._file.reopened = self._reopened
        self._ballast = Ballast(path)
        self._head = MarkFile(path, "head")
        self.has_more = False  # whether the last read left batches behind
        self._last_read = 0  # the last sequence read
        self._in_flight: set[int] = set()  # read, and not yet deleted

    def read(self, max_rows: int) -> list[SpooledBatch]:
        """The oldest unread batches, at most ``max_rows`` rows, but at least one batch if there is any."""
        batches = self._file.run(lambda connection: self._fetch(connection, max_rows))
        for spooled in batches:
            self._last_read = spooled.sequence
            self._in_flight.add(spooled.sequence)
        return batches

    def _fetch(self, connection: sqlite3.Connection, max_rows: int) -> list[SpooledBatch]:
        batches: list[SpooledBatch] = []
        self.has_more = False
        rows = 0
        cursor = connection.execute(self._queries["select_batches"], (self._last_read,))
        try:
            for sequence, source_id, kind, n, received_at, first, last, crc32, body in cursor:
                if sequence in self._in_flight:
                    continue
                record = Record(source_id, kind, n, received_at, first, last, crc32, body)
                spooled = SpooledBatch(sequence, first, last, decode(record, sequence), self.path.stem)
                rows += n
                self.has_more = rows > max_rows
                if batches and self.has_more:
                    break
                batches.append(spooled)
                if rows >= max_rows:
                    self.has_more = True  # perhaps
                    break
        finally:
            cursor.close()
        return batches

    def has_unread(self) -> bool:
        """Return whether there are unread batches."""
        query = self._queries["has_batch_after"]
        return self._file.run(lambda connection: connection.execute(query, (self._last_read,)).fetchone()) is not None

    def delete(self, sequences: Iterable[int]) -> None:
        """Delete batches that the database has. After a disk error they stay, and can be deleted later."""
        deleted = list(sequences)
        try:
            self._file.run(lambda connection: self._delete_rows(connection, deleted))
        except SpoolFull:
            self._ballast.free()
            with suppress(SpoolFull):
                self._file.run(checkpoint)
            self._file.run(lambda connection: self._delete_rows(connection, deleted))
        self._in_flight.difference_update(deleted)

    def _delete_rows(self, connection: sqlite3.Connection, sequences: list[int]) -> None:
        with transaction(connection):
            deleted = [
                connection.execute(self._queries["delete_batch"], (sequence,)).fetchone() for sequence in sequences
            ]
            oldest = connection.execute(self._queries["select_oldest_batch"]).fetchone()
            last = last_sequence(connection)
        if oldest is not None:
            self._save_head(*oldest)
        else:
            self._save_head(last + 1, max((row[0] for row in deleted if row is not None), default=0))

    def _save_head(self, sequence: int, received_at: int) -> None:
        # The time of the oldest batch is not checked yet.
        if isinstance(received_at, int) and 0 < received_at <= now_us():
            self._head.write(Mark(sequence, received_at))

    def dead_letter(self, sequence: int, why: str) -> Path | None:
        """Move a batch that cannot be stored from the file to a dead letter. None: the file no longer has it.

        Raises OSError, too, on disk errors: the batch then stays.
        """
        query = self._queries["select_batch"]
        row = self._file.run(lambda connection: connection.execute(query, (sequence,)).fetchone())
        if row is None:
            return None
        kept = dead_letter.write(self.path, sequence, Record(*row), why)
        self.delete([sequence])
        return kept

    def depth(self) -> tuple[int, int, int]:
        """Batches, rows and bytes in the file."""

        def measure(connection: sqlite3.Connection) -> tuple[int, int, int]:
            batches, rows = connection.execute(self._queries["count_batches"]).fetchone()
            return batches, rows, used_bytes(connection)

        return self._file.run(measure)

    def oldest(self) -> int | None:
        """Time when the oldest batch was received (µs)."""
        query = self._queries["select_oldest_received_at"]
        row = self._file.run(lambda connection: connection.execute(query).fetchone())
        return None if row is None else int(row[0])

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._head.close()

    def _reopened(self, connection: sqlite3.Connection) -> None:
        """A repair may have restored batches before the last one read: start again."""
        self._last_read = 0
