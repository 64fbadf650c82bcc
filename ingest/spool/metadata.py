"""Files beside a spool file: locks, and what a repair needs to know when the file itself is unreadable.

Beside ``opcua.sqlite`` there are ``.lock``, ``.sources``, ``.readers`` and ``.last`` (of the collectors), and ``.head``
(of the writer).
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from core.errors import SpoolError
from core.files import write_atomically


class SpoolLock:
    """The lock of a spool file. Shared: opening it. Exclusive: replacing it, or committing as a collector.

    Collectors queue here because SQLite itself would make the second one sleep and retry.
    """

    def __init__(self, spool: Path) -> None:
        self._path = spool.with_name(spool.name + ".lock")
        self._descriptor: int | None = None

    def shared(self) -> AbstractContextManager[None]:
        """The file is not replaced inside the block. If the disk cannot hold a lock file, there are no repairs."""
        return self._held(fcntl.LOCK_SH)

    def exclusive(self) -> AbstractContextManager[None]:
        """Nobody commits inside the block. Raises SpoolError if the disk cannot hold a lock file."""
        return self._held(fcntl.LOCK_EX, is_needed=True)

    def commit(self) -> AbstractContextManager[None]:
        """Nobody else commits or replaces the file inside; not enforced if the disk cannot hold a lock file."""
        return self._held(fcntl.LOCK_EX)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @contextmanager
    def _held(self, how: int, *, is_needed: bool = False) -> Iterator[None]:
        try:
            if self._descriptor is None:
                flags = os.O_CLOEXEC | (0 if self._path.exists() else os.O_CREAT)
                self._descriptor = os.open(self._path, os.O_RDONLY | flags, 0o644)
        except OSError:
            if is_needed:
                raise SpoolError(f"cannot create {self._path}") from None
            yield
            return
        descriptor = self._descriptor
        fcntl.flock(descriptor, how)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)


class SourceLocks:
    """Locks of the processes that read sources: each on the byte of ``.readers`` at the offset of the source's id.

    The kernel releases it when the process ends, however it does, so that no two processes ever read one source.
    """

    def __init__(self, spool: Path) -> None:
        self._path = spool.with_name(spool.name + ".readers")
        self._descriptor: int | None = None

    def acquire(self, source_id: int) -> bool:
        """Lock the source. Returns whether that worked; always, if the disk cannot hold a lock file."""
        try:
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return True
        try:
            self._lock(fcntl.F_WRLCK, source_id)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def release(self, source_id: int) -> None:
        """Unlock one source: another process may read it."""
        if self._descriptor is not None:
            self._lock(fcntl.F_UNLCK, source_id)

    def close(self) -> None:
        """Unlock all sources."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _lock(self, kind: int, source_id: int) -> None:
        # struct flock, fcntl(2): an open file description lock
        assert self._descriptor is not None
        fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, source_id, 1, 0))


MarkKind: TypeAlias = Literal[
    "last",  # the last batch appended: no higher sequence was assigned
    "head",  # every batch before this one is in the database, or a dead letter
]


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in the sequence of batches."""

    sequence: int
    received_at: int  # µs


class MarkFile:
    """A position saved beside a spool file, in place and without fsync: an older one is valid too, only less exact."""

    def __init__(self, spool: Path, kind: MarkKind) -> None:
        self._path = spool.with_name(f"{spool.name}.{kind}")
        self._descriptor: int | None = None

    def write(self, mark: Mark) -> None:
        """Replace the mark; on disk errors the older one stays."""
        text = f"{mark.sequence:020d} {mark.received_at:020d}"
        with suppress(OSError):
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            os.pwrite(self._descriptor, f"{text} {zlib.crc32(text.encode()):08x}\n".encode(), 0)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_mark(spool: Path, kind: MarkKind) -> Mark | None:
    """The mark; None: there is none, or it is damaged."""
    try:
        text, crc32 = spool.with_name(f"{spool.name}.{kind}").read_text().rstrip().rsplit(" ", 1)
        sequence, received_at = text.split()
        return Mark(int(sequence), int(received_at)) if int(crc32, 16) == zlib.crc32(text.encode()) else None
    except (OSError, ValueError):
        return None


def read_sources(spool: Path) -> dict[int, int]:
    """Source id → time of its first batch (µs), of all sources a spool file ever had."""
    try:
        content = json.loads(spool.with_name(spool.name + ".sources").read_text())
        return {int(source): int(since) for source, since in content.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def write_sources(spool: Path, sources: Mapping[int, int]) -> None:
    """Write the sources durably. Raises OSError on disk errors."""
    write_atomically(spool.with_name(spool.name + ".sources"), json.dumps(sources))
