"""The files of the journal, in a folder of the spool folder: their names, their order, and dropping the oldest one.

Collectors drop them, too, because on a full disk the journal gives way to what is not yet in the database.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from core.timestamps import microseconds, utc

FOLDER = "journal"
_NAME = "%Y%m%dT%H%M%S.%fZ.journal"


def segment(spool: Path, begin: int) -> Path:
    """The segment in the spool folder ``spool`` whose first batch was committed at ``begin`` (µs)."""
    return spool / FOLDER / utc(begin).strftime(_NAME)


def segments(spool: Path) -> list[tuple[int, Path]]:
    """Time of the first commit (µs) and path of each segment; oldest first. None on disk errors."""
    files: list[tuple[int, Path]] = []
    with suppress(OSError):
        for path in (spool / FOLDER).iterdir():
            with suppress(ValueError):  # not a segment
                files.append((microseconds(datetime.strptime(path.name, _NAME).replace(tzinfo=UTC)), path))
    return sorted(files)


def drop_oldest(spool: Path) -> bool:
    """Drop the oldest segment to gain disk space. False: there is none, or the disk does not let it go."""
    with suppress(OSError):
        for _, path in segments(spool):
            with suppress(FileNotFoundError):  # another process was faster
                path.unlink()
                return True
    return False
