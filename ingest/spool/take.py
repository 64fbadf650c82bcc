"""The writer's side of the spool: take what is waiting, delete what is committed in the database."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from ingest.errors import SpoolCorrupt
from ingest.spool import aside
from ingest.spool.append import connect, used_bytes
from ingest.spool.format import Record, SpooledBatch, decode
from schema.queries import load

log = logging.getLogger(__name__)


class SpoolFile:
    """One spool file, read from behind the last batch that was taken.

    Deletes need no fsync: a batch that comes back after a crash is a replay, which the database knows to be one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = connect(path, "NORMAL")
        queries = load("spool")
        self._take, self._one, self._delete = queries["take"], queries["one"], queries["delete"]
        self._depth = queries["depth"]
        self._taken = 0  # the last sequence taken

    def take(self, max_rows: int) -> list[SpooledBatch]:
        """The oldest batches not yet taken, at most about ``max_rows`` rows, at least one batch if there is any."""
        batches: list[SpooledBatch] = []
        rows = 0
        cursor = self._connection.execute(self._take, (self._taken,))
        for sequence, source_id, kind, n, received_at, first, last, crc32, body in cursor:
            record = Record(source_id, kind, n, received_at, first, last, crc32, body)
            self._taken = sequence
            try:
                batches.append(SpooledBatch(sequence, first, last, decode(record)))
            except SpoolCorrupt:
                # It stays in the file: nothing is deleted that did not reach the database.
                log.exception("%s: batch %d left in place", self.path.name, sequence)
                continue
            rows += n
            if rows >= max_rows:
                break
        cursor.close()
        return batches

    def delete(self, sequences: Iterable[int]) -> None:
        """Forget batches that the database has."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany(self._delete, [(sequence,) for sequence in sequences])
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def set_aside(self, sequence: int, why: str) -> Path | None:
        """Move a batch that no table takes out of the file, whole. None: it is not there any more.

        Raises OSError or sqlite3.Error where the disk refuses: it then stays.
        """
        row = self._connection.execute(self._one, (sequence,)).fetchone()
        if row is None:
            return None
        kept = aside.keep(self.path, sequence, Record(*row), why)
        self.delete([sequence])
        return kept

    def depth(self) -> tuple[int, int, int]:
        """Batches, rows and bytes that the file holds."""
        batches, rows = self._connection.execute(self._depth).fetchone()
        return batches, rows, used_bytes(self._connection)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
