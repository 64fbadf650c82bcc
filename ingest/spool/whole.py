"""A spool file that is looked at before it is opened, and opened again when another one stands in its place."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ingest.batch import now_us
from ingest.errors import SpoolCorrupt, SpoolError
from ingest.spool import trouble
from ingest.spool.file import connect, examine, identity, last_sequence, read_notes
from ingest.spool.repair import complete, repair
from ingest.spool.sidecar import Lock, Mark, MarkFile, read_mark
from schema.queries import load

_REPAIRS = 2  # of one file, behind which it is not the file that is wrong

Result = TypeVar("Result")


class WholeFile:
    """One process' connection to a spool file. To be used by one thread at a time."""

    def __init__(self, path: Path, synchronous: str, *, create: bool) -> None:
        self.path = path
        self.lock = Lock(path)
        self.reopened: Callable[[sqlite3.Connection], None] = lambda connection: None
        self._synchronous = synchronous
        self._create = create
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None

    def run(self, work: Callable[[sqlite3.Connection], Result], *, locked: bool = False) -> Result:
        """What ``work`` makes of the file that stands at the path; where it turns out to be damaged, of a repaired one.

        ``work`` may be called again: it must leave nothing behind where it fails. ``locked``: nobody replaces the file
        meanwhile, nor does another process do ``locked`` work. Raises SpoolFull where the disk has no space, SpoolError
        where it refuses for other reasons.
        """
        repairs = 0
        again = True
        while True:
            try:
                if not locked:
                    return work(self._current())
                with self.lock.turn():
                    if self._connection is not None and identity(self.path) == self._identity:
                        return work(self._connection)
                self._current()
            except (SpoolError, sqlite3.Error, OSError) as error:
                why = self._damage(error)
                if again and trouble.read_only(error):
                    again = False  # the disk may have been read-only when the file was opened, and no longer be
                    continue
                if why is None or repairs == _REPAIRS:
                    raise trouble.said(self.path, error) from error
                repairs += 1
                repair(self.path, self._identity, why)

    def close(self) -> None:
        """Close the file."""
        self._drop()
        self.lock.close()

    def _damage(self, error: Exception) -> str | None:
        """How the file is damaged, after ``error``; the connection is then closed. None: it is not."""
        if trouble.damaged(error):
            self._drop()
            return str(error)
        if isinstance(error, sqlite3.Error) and trouble.strange(error):
            self._drop()
            with self.lock.shared():
                return examine(self.path) if identity(self.path) == self._identity else None
        if isinstance(error, sqlite3.Error) and not trouble.full(error):
            self._drop()  # a disk that could not be written may be later
        return None

    def _current(self) -> sqlite3.Connection:
        if self._connection is not None and identity(self.path) == self._identity:
            return self._connection
        self._drop()
        self._connection = self._open()
        self.reopened(self._connection)
        return self._connection

    def _open(self) -> sqlite3.Connection:
        complete(self.path)
        why: str | None = None
        for _ in range(1 + _REPAIRS):
            with self.lock.turn() if self._create else self.lock.shared():  # one of several may make it
                self._identity = identity(self.path)
                why = examine(self.path)
                if why is None:
                    try:
                        connection = connect(self.path, self._synchronous, create=self._create)
                        try:
                            self._begin(connection)
                        except BaseException:
                            connection.close()
                            raise
                    except (sqlite3.Error, SpoolCorrupt) as error:
                        if not trouble.damaged(error):
                            raise
                        why = str(error)
                    else:
                        self._identity = identity(self.path)
                        return connection
            repair(self.path, self._identity, why)
        raise SpoolError(f"{self.path.name} is damaged again and again: {why}")

    def _begin(self, connection: sqlite3.Connection) -> None:
        """A look at all that is used later, and the mark of a file that had none: nothing of it was written yet."""
        last = last_sequence(connection)
        read_notes(connection)
        oldest = connection.execute(load("spool")["oldest"]).fetchone()
        if read_mark(self.path, "head") is None:
            mark = MarkFile(self.path, "head")
            mark.write(Mark(*oldest) if oldest is not None else Mark(last + 1, now_us()))
            mark.close()

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
