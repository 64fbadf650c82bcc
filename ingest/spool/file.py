"""The SQLite side of a spool file: check, open, and tell what its errors mean."""

from __future__ import annotations

import errno
import random
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from core.errors import SpoolCorrupt, SpoolError, SpoolFull
from core.timestamps import now_us
from ingest.spool.format import Record, row_checksum
from ingest.spool.member import read_member
from ingest.spool.metadata import read_mark
from schema.queries import load

VERSION = 2  # PRAGMA user_version; 0: a new file
PAGE_SIZE = 16384
MEMBER_STEP = 2**53  # µs of the year 2255: each member of a redundant pair has sequences of its own
LATEST_SEQUENCE = 2 * MEMBER_STEP  # no higher sequence is ever assigned

_NEWEST_VERSION = 1000  # larger version numbers are damage
_BUSY_TIMEOUT = 10.0  # other processes lock the file for milliseconds only
_CHECKPOINT_PAGES = 256  # 4 MiB: space a checkpoint may need from the ballast
_CHECKED_BYTES = 256 * 1024**2  # larger files are not checked in full on opening
_EARLIEST_CLOCK = 1_700_000_000_000_000  # µs, November 2023: an earlier clock is not set
_MAGIC = b"SQLite format 3\0"


def connect(path: Path, synchronous: str, *, create: bool) -> sqlite3.Connection:
    """Open a spool file; create it if missing and ``create``.

    On a read-only disk it is opened for reading, unless ``create``. Raises sqlite3.Error, and SpoolError
    for a file of another version of plantlog.
    """
    connection = _open(path, "rwc" if create else "rw")
    try:
        try:
            _prepare(connection, path, synchronous)
        except sqlite3.OperationalError as error:
            if create or is_unexplained(error):
                raise
            connection.close()
            connection = read_only(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _open(path: Path, mode: str, more: str = "") -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}{more}"
    return sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)


def _prepare(connection: sqlite3.Connection, path: Path, synchronous: str) -> None:
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
    if _version(connection, path) == 0:
        _create_tables(connection, path)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if not 0 <= version <= _NEWEST_VERSION:
        raise SpoolCorrupt(f"{path.name} has an invalid version: {version}")
    if version not in (0, VERSION):
        age = "newer" if version > VERSION else "older"
        raise SpoolError(f"{path} has version {version}, {age} than {VERSION}: it was written by another plantlog")
    return version


def _create_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables of a new file in one transaction."""
    connection.create_function("first_sequence", 0, lambda: _first_sequence(path))
    with transaction(connection):
        if _version(connection, path) == 0:  # another process may have been faster
            for statement in load("spool")["create_tables"].split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")


def read_only(path: Path) -> sqlite3.Connection:
    """Open on a read-only disk: batches inside can still be read."""
    # Without a WAL everything is in the file itself; SQLite cannot know that nobody writes, but we do.
    logged = path.with_name(path.name + "-wal").exists()
    connection = _open(path, "ro", "" if logged else "&immutable=1")
    connection.execute("PRAGMA query_only = ON")
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what the block changes, or nothing of it if it fails."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def used_bytes(connection: sqlite3.Connection) -> int:
    """Bytes of the pages in use, without those freed by deletes."""
    pages, free = (connection.execute(f"PRAGMA {p}").fetchone()[0] for p in ("page_count", "freelist_count"))
    return int(pages - free) * PAGE_SIZE


def free_bytes(connection: sqlite3.Connection) -> int:
    """Bytes of the pages freed by deletes."""
    return int(connection.execute("PRAGMA freelist_count").fetchone()[0]) * PAGE_SIZE


def checkpoint(connection: sqlite3.Connection) -> None:
    """Checkpoint and reset the WAL. Raises sqlite3.Error on a full disk."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()


def last_sequence(connection: sqlite3.Connection) -> int:
    """The highest sequence ever assigned. Raises SpoolCorrupt if it is impossible."""
    row = connection.execute(load("spool")["select_last_sequence"]).fetchone()
    if row is None or not isinstance(row[0], int) or not 0 < row[0] < LATEST_SEQUENCE:
        raise SpoolCorrupt(f"invalid last sequence: {row and row[0]!r}")
    return row[0]


def _first_sequence(path: Path) -> int:
    """First sequence of a new file: the time in µs; random if the clock is not set, so that files never collide."""
    now = now_us()
    first = now if now > _EARLIEST_CLOCK else _EARLIEST_CLOCK + random.randrange(2**50)
    return first + (member(path) - 1) * MEMBER_STEP


def member(path: Path) -> int:
    """Member of a redundant pair that a spool file belongs to; 1 if there is no pair."""
    for folder in (path.parent, *path.parents[2:3]):  # a repair makes a file two folders further down
        if (number := read_member(folder)) is not None:
            return number
    return 1


def insert(connection: sqlite3.Connection, sequence: int, r: Record) -> bool:
    """Insert one row with its checksum. False: the sequence exists already; nothing was changed."""
    checksum = row_checksum(sequence, r)
    columns = (sequence, r.source_id, r.kind, r.rows, r.received_at, r.first_time, r.last_time, checksum, r.body)
    return connection.execute(load("spool")["insert_batch"], columns).rowcount == 1


def note_crc32(name: str, value: str) -> int:
    """The checksum of a note."""
    return zlib.crc32(f"{name}\0{value}".encode())


def read_notes(connection: sqlite3.Connection) -> dict[str, str]:
    """All notes. Raises SpoolCorrupt if the checksum of one is wrong."""
    notes: dict[str, str] = {}
    for name, value, crc32 in connection.execute(load("spool")["select_notes"]).fetchall():
        if not isinstance(name, str) or not isinstance(value, str) or note_crc32(name, value) != crc32:
            raise SpoolCorrupt(f"the note {name!r} does not match its checksum")
        notes[name] = value
    return notes


def write_notes(connection: sqlite3.Connection, notes: Mapping[str, str]) -> None:
    """Write notes, in place of those of the same names. Raises sqlite3.Error."""
    rows = [(name, value, note_crc32(name, value)) for name, value in notes.items()]
    connection.executemany(load("spool")["upsert_note"], rows)


def find_damage(path: Path) -> str | None:
    """Check a file before it is opened, without changing anything. Returns what is wrong, None: nothing found.

    Call only while this process has no connection to the file: closing it would release that connection's locks.
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
    """Fault of a header; None: it is one of ours. https://www.sqlite.org/fileformat2.html, section 1.3."""
    if len(header) < 100 or not header.startswith(_MAGIC):
        return "its header is destroyed"
    page_size, versions, fixed = header[16:18], header[18:20], header[20:24]
    legal = (
        int.from_bytes(page_size) == PAGE_SIZE
        and set(versions) <= {1, 2}
        and fixed == bytes((0, 64, 32, 32))
        and int.from_bytes(header[56:60]) in (0, 1)  # UTF-8; not set before the first checkpoint
    )
    return None if legal else "its header is damaged"


def _wrong_inside(path: Path, last: int) -> str | None:
    try:
        with closing(_open(path, "ro")) as connection:
            if _version(connection, path) > 0:
                actual = last_sequence(connection)
                if actual < last:
                    return f"it is truncated: the last sequence should be at least {last}, but is {actual}"
                read_notes(connection)
            if path.stat().st_size > _CHECKED_BYTES:
                return None
            verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            return None if verdict == "ok" else str(verdict)
    except (SpoolError, sqlite3.Error) as error:
        reported_later = isinstance(error, SpoolError) and not isinstance(error, SpoolCorrupt)  # of a newer version
        explained = isinstance(error, sqlite3.Error) and not is_unexplained(error)
        return None if reported_later or explained else str(error)


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file at ``path``; None: there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


# https://www.sqlite.org/rescode.html; the lower byte of an extended code is its primary one
_FULL = 13
_BUSY, _LOCKED, _NOMEM, _READONLY, _IOERR, _CANTOPEN = 5, 6, 7, 8, 10, 14
_CORRUPT, _NOTADB = 11, 26
_UNREADABLE = (_IOERR | 1 << 8, _IOERR | 2 << 8)  # IOERR_READ, IOERR_SHORT_READ
_SHORT_SPACE = (errno.ENOSPC, errno.EDQUOT)
_UNDECODABLE = "Could not decode"  # raised by Python, without a code


def _code(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) if isinstance(error, sqlite3.Error) else 0


def is_disk_full(error: BaseException) -> bool:
    """The disk is full, or the quota is used up."""
    if isinstance(error, OSError):
        return error.errno in _SHORT_SPACE
    return _code(error) & 0xFF == _FULL


def is_read_only(error: BaseException) -> bool:
    """The file was opened read-only, or the disk has become so."""
    return _code(error) & 0xFF == _READONLY


def is_damage(error: BaseException) -> bool:
    """The file is damaged, or the disk cannot read it."""
    if isinstance(error, SpoolCorrupt):
        return True
    if isinstance(error, sqlite3.OperationalError) and str(error).startswith(_UNDECODABLE):
        return True
    return _code(error) & 0xFF in (_CORRUPT, _NOTADB) or _code(error) in _UNREADABLE


def is_unexplained(error: sqlite3.Error) -> bool:
    """Explained neither by the disk nor by other processes: an intact file never causes it."""
    explained = (_BUSY, _LOCKED, _NOMEM, _READONLY, _IOERR, _CANTOPEN, _FULL)
    return is_damage(error) or _code(error) & 0xFF not in explained


def to_spool_error(path: Path, error: Exception) -> SpoolError:
    """``error`` for callers: SpoolFull if the disk is full, SpoolError otherwise."""
    if isinstance(error, SpoolError):
        return error
    if is_disk_full(error):
        return SpoolFull(f"no disk space left for {path.name}")
    return SpoolError(f"{path.name}: {error}")
