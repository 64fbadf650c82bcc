"""Secret and certificate files named in options: their digests, which belong to the configuration; permissions."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel


def named_files(*tables: BaseModel | None) -> Iterator[Path]:
    """The files that the options of these tables name, in the order of their fields."""
    for table in tables:
        for value in table.__dict__.values() if table is not None else ():
            if isinstance(value, Path):
                yield value


def digest(path: Path) -> str | None:
    """SHA-256 of a file's content; None where it can't be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def digests(*tables: BaseModel | None) -> dict[Path, str | None]:
    """Digests by path of the files that the options of these tables name."""
    return {path: digest(path) for path in named_files(*tables)}


def loose_permissions(file: Path) -> str | None:
    """The file's permissions (such as ``0644``) if others can read or write it; None: safe, or not accessible."""
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except (OSError, ValueError):
        return None
    return f"{mode:04o}" if mode & (stat.S_IROTH | stat.S_IWOTH) else None
