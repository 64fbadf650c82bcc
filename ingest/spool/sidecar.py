"""What must be known of a spool file when the file itself can't be read any more, and the lock around its repair.

Beside ``opcua.sqlite`` stand ``.lock``, ``.sources``, ``.readers`` and ``.last`` (the collectors') and ``.head`` (the
writer's).
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from ingest.errors import SpoolError


class Lock:
    """Shared: a look at the file that stands at the path. Exclusive: another file is put there, or a collector commits.

    Collectors take turns, as SQLite would have the one that comes second try again after a sleep.
    """

    def __init__(self, spool: Path) -> None:
        self._path = spool.with_name(spool.name + ".lock")
        self._descriptor: int | None = None

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Nobody replaces the file inside the block. Where the disk has no place for a lock there is no repair."""
        held = self._take(fcntl.LOCK_SH)
        try:
            yield
        finally:
            self._give(held)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Nobody commits inside the block. Raises SpoolError where the disk has no place for a lock."""
        held = self._take(fcntl.LOCK_EX)
        if held is None:
            raise SpoolError(f"{self._path} can't be made")
        try:
            yield
        finally:
            self._give(held)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Nobody else commits or replaces the file inside the block. Where the disk has no place for a lock all may."""
        held = self._take(fcntl.LOCK_EX)
        try:
            yield
        finally:
            self._give(held)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _take(self, how: int) -> int | None:
        try:
            if self._descriptor is None:
                flags = os.O_CLOEXEC | (0 if self._path.exists() else os.O_CREAT)
                self._descriptor = os.open(self._path, os.O_RDONLY | flags, 0o644)
        except OSError:
            return None
        fcntl.flock(self._descriptor, how)
        return self._descriptor

    def _give(self, held: int | None) -> None:
        if held is not None:
            fcntl.flock(held, fcntl.LOCK_UN)


class Readers:
    """Which process reads a source: a lock on the byte of ``.readers`` whose place is the source's id.

    It is there while the process lives, however that ends, so that no two ever read one source.
    """

    def __init__(self, spool: Path) -> None:
        self._path = spool.with_name(spool.name + ".readers")
        self._descriptor: int | None = None

    def take(self, source_id: int) -> bool:
        """Whether the source is ours now. Where the disk has no place for locks it is."""
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

    def give(self, source_id: int) -> None:
        """Another process may read it."""
        if self._descriptor is not None:
            self._lock(fcntl.F_UNLCK, source_id)

    def close(self) -> None:
        """Give all of them."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _lock(self, kind: int, source_id: int) -> None:
        # struct flock, fcntl(2): of this open file, not of all that the process has
        assert self._descriptor is not None
        fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, source_id, 1, 0))


MarkKind: TypeAlias = Literal[
    "last",  # the batch that was appended last: none was given a higher sequence
    "head",  # every batch before this one is in the database, or kept aside
]


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the row of batches."""

    sequence: int
    received_at: int  # µs


class MarkFile:
    """A mark of one spool file, written in place and not made durable: an older one is as true, only less exact."""

    def __init__(self, spool: Path, kind: MarkKind) -> None:
        self._path = spool.with_name(f"{spool.name}.{kind}")
        self._descriptor: int | None = None

    def write(self, mark: Mark) -> None:
        """Replace the mark; where the disk refuses, the older one stays."""
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
    """None: there is none, or it is damaged."""
    try:
        text, crc32 = spool.with_name(f"{spool.name}.{kind}").read_text().rstrip().rsplit(" ", 1)
        sequence, received_at = text.split()
        return Mark(int(sequence), int(received_at)) if int(crc32, 16) == zlib.crc32(text.encode()) else None
    except (OSError, ValueError):
        return None


def read_sources(spool: Path) -> dict[int, int]:
    """Source id → when its first batch was received (µs), of all sources that a spool file ever had."""
    try:
        said = json.loads(spool.with_name(spool.name + ".sources").read_text())
        return {int(source): int(since) for source, since in said.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def write_sources(spool: Path, sources: Mapping[int, int]) -> None:
    """Durable when this returns. Raises OSError where the disk refuses."""
    partial = spool.with_name(spool.name + ".sources.partial")
    with partial.open("w") as file:
        json.dump(sources, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(spool.with_name(spool.name + ".sources"))
