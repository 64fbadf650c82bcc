"""A spool file as SQLite sees it: examined, opened, brought to this version."""

from __future__ import annotations

import random
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

from ingest.batch import now_us
from ingest.errors import SpoolCorrupt, SpoolError
from ingest.spool import trouble
from ingest.spool.format import Record, seal
from ingest.spool.sidecar import read_mark
from schema.queries import load

VERSION = 2  # PRAGMA user_version; 0: files of before there were versions; 2: counts
PAGE_SIZE = 16384
LATEST_SEQUENCE = 2**53  # the year 2255: a higher one was never given

_NEWEST_VERSION = 1000  # no plantlog ever writes more: a larger one is damage
_BUSY_SECONDS = 10.0  # the other process holds the file for milliseconds
_CHECKPOINT_PAGES = 256  # 4 MiB: what a checkpoint may need of the ballast
_CHECKED_BYTES = 256 * 1024**2  # a larger file is not read through when it is opened
_CLOCK_GOES = 1_700_000_000_000_000  # µs, November 2023: a clock that shows less is dead
_MAGIC = b"SQLite format 3\0"


def connect(path: Path, synchronous: str, *, create: bool) -> sqlite3.Connection:
    """Open a spool file, make it where it is missing and ``create``, and bring an older one to this version.

    On a disk that can't be written it is opened for reading, if not ``create``. Raises sqlite3.Error, and SpoolError
    for a file that a newer plantlog has written.
    """
    connection = _open(path, "rwc" if create else "rw")
    try:
        try:
            _prepare(connection, path, synchronous)
        except sqlite3.OperationalError as error:
            if create or trouble.strange(error):
                raise
            connection.close()
            connection = read_only(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _open(path: Path, mode: str, more: str = "") -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}{more}"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _prepare(connection: sqlite3.Connection, path: Path, synchronous: str) -> None:
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    if _version(connection, path) < VERSION:
        _upgrade(connection, path)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if not 0 <= version <= _NEWEST_VERSION:
        raise SpoolCorrupt(f"{path.name} has version {version}, which none ever was")
    if version > VERSION:
        raise SpoolError(f"{path} has version {version}, this plantlog knows {VERSION}: it was written by a newer one")
    return version


def _upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """From any earlier version, or from nothing, to this one, in one transaction and without copying a batch."""
    queries = load("spool")
    connection.create_function("note_crc32", 2, note_crc32, deterministic=True)
    connection.create_function("first_sequence", 0, _first_sequence)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _version(connection, path) < VERSION:
            if connection.execute(queries["has_table"]).fetchone() is not None:
                # https://www.sqlite.org/lang_altertable.html, "Making Other Kinds Of Table Schema Changes"
                schema = connection.execute("PRAGMA schema_version").fetchone()[0]
                connection.execute("PRAGMA writable_schema = ON")
                connection.execute(queries["allow_kinds"])
                connection.execute(f"PRAGMA schema_version = {schema + 1}")
                connection.execute("PRAGMA writable_schema = OFF")
            if connection.execute(queries["has_note"]).fetchone() is not None:
                connection.execute(queries["note_crc"])
                connection.execute(queries["note_crc_fill"])
            for statement in queries["create"].split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def read_only(path: Path) -> sqlite3.Connection:
    """For a disk that can't be written: what is inside is still taken."""
    # Without a log everything is in the file itself; SQLite can't know that nobody writes, we do.
    logged = path.with_name(path.name + "-wal").exists()
    connection = _open(path, "ro", "" if logged else "&immutable=1")
    connection.execute("PRAGMA query_only = ON")
    return connection


def used_bytes(connection: sqlite3.Connection) -> int:
    """Bytes of the pages in use; pages that deletes have freed are room."""
    pages, free = (connection.execute(f"PRAGMA {p}").fetchone()[0] for p in ("page_count", "freelist_count"))
    return int(pages - free) * PAGE_SIZE


def free_bytes(connection: sqlite3.Connection) -> int:
    """Bytes of the pages that deletes have freed."""
    return int(connection.execute("PRAGMA freelist_count").fetchone()[0]) * PAGE_SIZE


def checkpoint(connection: sqlite3.Connection) -> None:
    """Empty the log, which can then be written from its beginning again. Raises sqlite3.Error on a full disk."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def last_sequence(connection: sqlite3.Connection) -> int:
    """The highest sequence ever given. Raises SpoolCorrupt where that can't be."""
    row = connection.execute(load("spool")["last"]).fetchone()
    if row is None or not isinstance(row[0], int) or not 0 < row[0] < LATEST_SEQUENCE:
        raise SpoolCorrupt(f"the last sequence is {row and row[0]!r}")
    return row[0]


def _first_sequence() -> int:
    """Of a new file: the clock, in µs. A dead clock shows the same at each start: chance then keeps files apart."""
    now = now_us()
    return now if now > _CLOCK_GOES else _CLOCK_GOES + random.randrange(2**50)


def insert(connection: sqlite3.Connection, sequence: int, r: Record) -> bool:
    """Write one row, sealed. False: the sequence is there already, and left as it is."""
    sealed = seal(sequence, r)
    columns = (sequence, r.source_id, r.kind, r.rows, r.received_at, r.first_time, r.last_time, sealed, r.body)
    return connection.execute(load("spool")["append"], columns).rowcount == 1


def note_crc32(name: str, value: str) -> int:
    """The checksum of a note."""
    return zlib.crc32(f"{name}\0{value}".encode())


def read_notes(connection: sqlite3.Connection) -> dict[str, str]:
    """All notes. Raises SpoolCorrupt where one is not what was written."""
    notes: dict[str, str] = {}
    for name, value, crc32 in connection.execute(load("spool")["notes"]).fetchall():
        if not isinstance(name, str) or not isinstance(value, str) or note_crc32(name, value) != crc32:
            raise SpoolCorrupt(f"the note {name!r} does not match its checksum")
        notes[name] = value
    return notes


def examine(path: Path) -> str | None:
    """What is wrong with a file before it is opened, without changing anything; None: nothing that can be seen.

    To be called only where this process has no connection to the file: closing it would drop that one's locks.
    """
    last = read_mark(path, "last")
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return None if last is None else "it is missing"
    except OSError as error:
        return str(error)
    if not header:
        return None if last is None else "it is empty"
    return _wrong_header(header) or _wrong_inside(path, last.sequence if last else 0)


def _wrong_header(header: bytes) -> str | None:
    """https://www.sqlite.org/fileformat2.html, section 1.3: what every header of ours has."""
    if len(header) < 100 or not header.startswith(_MAGIC):
        return "its header is destroyed"
    page_size, versions, fixed = header[16:18], header[18:20], header[20:24]
    legal = (
        int.from_bytes(page_size) == PAGE_SIZE
        and set(versions) <= {1, 2}
        and fixed == bytes((0, 64, 32, 32))
        and int.from_bytes(header[56:60]) in (0, 1)  # UTF-8; nothing is said of it before the first checkpoint
    )
    return None if legal else "its header is damaged"


def _wrong_inside(path: Path, last: int) -> str | None:
    try:
        with closing(_open(path, "ro")) as connection:
            if _version(connection, path) > 0:
                given = last_sequence(connection)
                if given < last:
                    return f"its end is missing: sequences up to {last} were given, the file knows {given}"
                read_notes(connection)
            if path.stat().st_size > _CHECKED_BYTES:
                return None
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            return None if found == "ok" else str(found)
    except (SpoolError, sqlite3.Error) as error:
        told_later = isinstance(error, SpoolError) and not isinstance(error, SpoolCorrupt)  # of a newer version
        explained = isinstance(error, sqlite3.Error) and not trouble.strange(error)
        return None if told_later or explained else str(error)


def identity(path: Path) -> tuple[int, int] | None:
    """Which file stands at ``path`` now; None: none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
