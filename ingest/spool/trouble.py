"""What an error of SQLite means for a spool file: the disk refuses, or the file is damaged."""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

from ingest.errors import SpoolCorrupt, SpoolError, SpoolFull

# https://www.sqlite.org/rescode.html; the lower byte of an extended code is its primary one
_FULL = 13
_BUSY, _LOCKED, _NOMEM, _READONLY, _IOERR, _CANTOPEN = 5, 6, 7, 8, 10, 14
_CORRUPT, _NOTADB = 11, 26
_UNREADABLE = (_IOERR | 1 << 8, _IOERR | 2 << 8)  # IOERR_READ, IOERR_SHORT_READ
_SHORT_SPACE = (errno.ENOSPC, errno.EDQUOT)
_UNDECODABLE = "Could not decode"  # Python's own, which has no code


def _code(error: BaseException) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) if isinstance(error, sqlite3.Error) else 0


def full(error: BaseException) -> bool:
    """No space left on the disk, or none within the quota."""
    if isinstance(error, OSError):
        return error.errno in _SHORT_SPACE
    return _code(error) & 0xFF == _FULL


def read_only(error: BaseException) -> bool:
    """The file was opened for reading only, or can't be written any more."""
    return _code(error) & 0xFF == _READONLY


def damaged(error: BaseException) -> bool:
    """The file is not what SQLite wrote, or the disk can't read it."""
    if isinstance(error, SpoolCorrupt):
        return True
    if isinstance(error, sqlite3.OperationalError) and str(error).startswith(_UNDECODABLE):
        return True
    return _code(error) & 0xFF in (_CORRUPT, _NOTADB) or _code(error) in _UNREADABLE


def strange(error: sqlite3.Error) -> bool:
    """Neither the disk nor another process explains it: what a look at an intact file never gives."""
    explained = (_BUSY, _LOCKED, _NOMEM, _READONLY, _IOERR, _CANTOPEN, _FULL)
    return damaged(error) or _code(error) & 0xFF not in explained


def said(path: Path, error: Exception) -> SpoolError:
    """``error`` as callers know it: SpoolFull where there is no space, SpoolError for all else."""
    if isinstance(error, SpoolError):
        return error
    if full(error):
        return SpoolFull(f"no disk space left for {path.name}")
    return SpoolError(f"{path.name}: {error}")
