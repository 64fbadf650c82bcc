"""A connection to a spool file: checked on opening, reopened after the file was replaced, repaired if damaged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from core.errors import SpoolCorrupt, SpoolError
from core.timestamps import now_us
from ingest.spool.file import (
    connect,
    find_damage,
    identity,
    is_damage,
    is_disk_full,
    is_read_only,
    is_unexplained,
    last_sequence,
    read_notes,
    to_spool_error,
)
from ingest.spool.metadata import Mark, MarkFile, SpoolLock, read_mark
from ingest.spool.repair import finish_repair, repair
from ingest.spool.segments import drop_oldest
from schema.queries import load

_REPAIRS = 2  # attempts; after that, the file is not the cause

Result = TypeVar("Result")


class SpoolConnection:
    """One process's connection to a spool file. Not thread-safe."""

    def __init__(self, path: Path, synchronous: str, *, create: bool) -> None:
        self.path = path
        self.lock = SpoolLock(path)
        self.reopened: Callable[[sqlite3.Connection], None] = lambda connection: None
        self._synchronous = synchronous
        self._create = create
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def run(self, work: Callable[[sqlite3.Connection], Result], *, locked: bool = False) -> Result:
        """Run ``work`` on the file at the path; if it turns out to be damaged, repair it and run ``work`` again.

        ``work`` may run several times: it must leave nothing behind when it fails. ``locked``: nobody replaces the file
        meanwhile, nor does another process do ``locked`` work. Raises SpoolFull if the disk is full, SpoolError
        on other disk errors.
        """
        repairs = 0
        may_reopen = True
        while True:
            try:
                if not locked:
                    return work(self._connected())
                with self.lock.commit():
                    if self._connection is not None and identity(self.path) == self._identity:
                        return work(self._connection)
                self._connected()
            except (SpoolError, sqlite3.Error, OSError) as error:
                if is_disk_full(error) and drop_oldest(self.path.parent):
                    continue  # the journal gives way
                why = self._damage_after(error)
                if may_reopen and is_read_only(error):
                    may_reopen = False  # the disk may have been read-only when the file was opened, but not any more
                    continue
                if why is None or repairs == _REPAIRS:
                    raise to_spool_error(self.path, error) from error
                repairs += 1
                repair(self.path, self._identity, why)

    def close(self) -> None:
        """Close the file."""
        self._disconnect()
        self.lock.close()

    def _damage_after(self, error: Exception) -> str | None:
        """Classify ``error``: how the file is damaged (the connection is then closed). None: it is not."""
        if is_damage(error):
            self._disconnect()
            return str(error)
        if isinstance(error, sqlite3.Error) and is_unexplained(error):
            self._disconnect()
            with self.lock.shared():
                return find_damage(self.path) if identity(self.path) == self._identity else None
        if isinstance(error, sqlite3.Error) and not is_disk_full(error):
            self._disconnect()  # the disk may be writable later
        return None

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None and identity(self.path) == self._identity:
            return self._connection
        self._disconnect()
        self._connection = self._open()
        self.reopened(self._connection)
        return self._connection

    def _open(self) -> sqlite3.Connection:
        finish_repair(self.path)
        why: str | None = None
        for _ in range(1 + _REPAIRS):
            with self.lock.commit() if self._create else self.lock.shared():  # only one of several processes creates it
                self._identity = identity(self.path)
                why = find_damage(self.path)
                if why is None:
                    try:
                        connection = connect(self.path, self._synchronous, create=self._create)
                        try:
                            self._check(connection)
                        except BaseException:
                            connection.close()
                            raise
                    except (sqlite3.Error, SpoolCorrupt) as error:
                        if not is_damage(error):
                            raise
                        why = str(error)
                    else:
                        self._identity = identity(self.path)
                        return connection
            repair(self.path, self._identity, why)
        raise SpoolError(f"{self.path.name} is damaged again after repair: {why}")

    def _check(self, connection: sqlite3.Connection) -> None:
        """Check that everything used later is readable; create a missing head mark: nothing was in the database yet."""
        last = last_sequence(connection)
        read_notes(connection)
        oldest = connection.execute(load("spool")["select_oldest_batch"]).fetchone()
        if read_mark(self.path, "head") is None:
            mark = MarkFile(self.path, "head")
            mark.write(Mark(*oldest) if oldest is not None else Mark(last + 1, now_us()))
            mark.close()

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
