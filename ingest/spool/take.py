"""The writer's side of the spool: take what is waiting, delete what is committed in the database."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ingest.batch import now_us
from ingest.errors import SpoolFull
from ingest.spool import aside
from ingest.spool.ballast import Ballast
from ingest.spool.file import checkpoint, last_sequence, used_bytes
from ingest.spool.format import Record, SpooledBatch, decode
from ingest.spool.sidecar import Mark, MarkFile
from ingest.spool.whole import WholeFile
from schema.queries import load

log = logging.getLogger(__name__)


class SpoolFile:
    """One spool file, read from behind the last batch that was taken.

    Deletes need no fsync: a batch that comes back after a crash is a replay, which the database knows to be one.
    A damaged file is repaired; every method raises SpoolError where that can't be done, or the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._queries = load("spool")
        self._file = WholeFile(path, "NORMAL", create=False)
        self._file.reopened = self._reopened
        self._ballast = Ballast(path)
        self._head = MarkFile(path, "head")
        self.left = False  # whether a batch did not fit into what was taken last
        self._taken = 0  # the last sequence taken
        self._out: set[int] = set()  # taken, and not yet deleted

    def take(self, max_rows: int) -> list[SpooledBatch]:
        """The oldest batches not yet taken, at most ``max_rows`` rows, but one batch if there is any."""
        batches = self._file.run(lambda connection: self._read(connection, max_rows))
        for spooled in batches:
            self._taken = spooled.sequence
            self._out.add(spooled.sequence)
        return batches

    def _read(self, connection: sqlite3.Connection, max_rows: int) -> list[SpooledBatch]:
        batches: list[SpooledBatch] = []
        self.left = False
        rows = 0
        cursor = connection.execute(self._queries["take"], (self._taken,))
        try:
            for sequence, source_id, kind, n, received_at, first, last, crc32, body in cursor:
                if sequence in self._out:
                    continue
                record = Record(source_id, kind, n, received_at, first, last, crc32, body)
                spooled = SpooledBatch(sequence, first, last, decode(record, sequence))
                rows += n
                self.left = rows > max_rows
                if batches and self.left:
                    break
                batches.append(spooled)
                if rows >= max_rows:
                    self.left = True  # perhaps
                    break
        finally:
            cursor.close()
        return batches

    def waits(self) -> bool:
        """Whether there is a batch behind the last that was taken."""
        query = self._queries["waits"]
        return self._file.run(lambda connection: connection.execute(query, (self._taken,)).fetchone()) is not None

    def delete(self, sequences: Iterable[int]) -> None:
        """Forget batches that the database has. Where the disk refuses they stay, and may be deleted later."""
        gone = list(sequences)
        try:
            self._file.run(lambda connection: self._forget(connection, gone))
        except SpoolFull:
            self._ballast.free()
            with suppress(SpoolFull):
                self._file.run(checkpoint)
            self._file.run(lambda connection: self._forget(connection, gone))
        self._out.difference_update(gone)

    def _forget(self, connection: sqlite3.Connection, sequences: list[int]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            deleted = [connection.execute(self._queries["delete"], (sequence,)).fetchone() for sequence in sequences]
            oldest = connection.execute(self._queries["oldest"]).fetchone()
            last = last_sequence(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if oldest is not None:
            self._mark(*oldest)
        else:
            self._mark(last + 1, max((row[0] for row in deleted if row is not None), default=0))

    def _mark(self, sequence: int, received_at: int) -> None:
        # Nobody has looked at the time of the oldest batch yet.
        if isinstance(received_at, int) and 0 < received_at <= now_us():
            self._head.write(Mark(sequence, received_at))

    def set_aside(self, sequence: int, why: str) -> Path | None:
        """Move a batch that no table takes out of the file, whole. None: it is not there any more.

        Raises OSError too where the disk refuses: it then stays.
        """
        query = self._queries["one"]
        row = self._file.run(lambda connection: connection.execute(query, (sequence,)).fetchone())
        if row is None:
            return None
        kept = aside.keep(self.path, sequence, Record(*row), why)
        self.delete([sequence])
        return kept

    def depth(self) -> tuple[int, int, int]:
        """Batches, rows and bytes that the file holds."""

        def measure(connection: sqlite3.Connection) -> tuple[int, int, int]:
            batches, rows = connection.execute(self._queries["depth"]).fetchone()
            return batches, rows, used_bytes(connection)

        return self._file.run(measure)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._head.close()

    def _reopened(self, connection: sqlite3.Connection) -> None:
        """What a repair brought back may stand before what was taken last."""
        self._taken = 0
