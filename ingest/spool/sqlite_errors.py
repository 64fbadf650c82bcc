"""Classifies SQLite errors: full disk, read-only disk, damaged file."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from core.errors import SpoolCorrupt, SpoolError, SpoolFull

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
