"""Files beside a spool file: locks, and what a repair needs to know when the file itself is unreadable.

Beside ``opcua.sqlite`` there are ``.lock``, ``.sources``, ``.readers`` and ``.last`` (of the collectors), and ``.head``
(of the writer). The socket ``writer.wake`` of the folder tells the writer of new batches.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from core.errors import SpoolError
from core.files import write_atomically


class _OpenFile:
    """A file beside a spool file, opened when it is first used."""

    def __init__(self, spool: Path, suffix: str, flags: int, mode: int) -> None:
        self._path = spool.with_name(spool.name + suffix)
        self._flags = flags | os.O_CLOEXEC
        self._mode = mode
        self._open_descriptor: int | None = None

    def _descriptor(self) -> int:
        """Descriptor of the file, opened at the first use. Raises OSError."""
        if self._open_descriptor is None:
            flags = self._flags & ~os.O_CREAT if self._path.exists() else self._flags
            self._open_descriptor = os.open(self._path, flags, self._mode)
        return self._open_descriptor

    def close(self) -> None:
        """Close it, which releases its locks."""
        if self._open_descriptor is not None:
            os.close(self._open_descriptor)
            self._open_descriptor = None


class SpoolLock(_OpenFile):
    """The lock of a spool file. Shared: opening it. Exclusive: replacing it, or committing as a collector.

    Collectors queue here because SQLite itself would make the second one sleep and retry.
    """

    def __init__(self, spool: Path) -> None:
        super().__init__(spool, ".lock", os.O_RDONLY | os.O_CREAT, 0o644)

    def shared(self) -> AbstractContextManager[None]:
        """The file is not replaced inside the block. If the disk cannot hold a lock file, there are no repairs."""
        return self._locked(fcntl.LOCK_SH)

    def exclusive(self) -> AbstractContextManager[None]:
        """Nobody commits inside the block. Raises SpoolError if the disk cannot hold a lock file."""
        return self._locked(fcntl.LOCK_EX, is_needed=True)

    def commit(self) -> AbstractContextManager[None]:
        """Nobody else commits or replaces the file inside; not enforced if the disk cannot hold a lock file."""
        return self._locked(fcntl.LOCK_EX)

    @contextmanager
    def _locked(self, how: int, *, is_needed: bool = False) -> Iterator[None]:
        try:
            descriptor = self._descriptor()
        except OSError:
            if is_needed:
                raise SpoolError(f"cannot create {self._path}") from None
            yield
            return
        fcntl.flock(descriptor, how)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)


class SourceLocks(_OpenFile):
    """Locks of the processes that read sources: each on the byte of ``.readers`` at the offset of the source's id.

    The kernel releases it when the process ends, however it does, so that no two processes ever read one source.
    """

    def __init__(self, spool: Path) -> None:
        super().__init__(spool, ".readers", os.O_RDWR | os.O_CREAT, 0o600)

    def acquire(self, source_id: int) -> bool:
        """Lock the source. Returns whether that worked; always, if the disk cannot hold a lock file."""
        try:
            self._descriptor()
        except OSError:
            return True
        try:
            self._lock(fcntl.F_WRLCK, source_id)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def release(self, source_id: int) -> None:
        """Unlock one source: another process may read it."""
        if self._open_descriptor is not None:
            self._lock(fcntl.F_UNLCK, source_id)

    def _lock(self, kind: int, source_id: int) -> None:
        # struct flock, fcntl(2): an open file description lock
        fcntl.fcntl(self._descriptor(), fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, source_id, 1, 0))


MarkKind: TypeAlias = Literal[
    "last",  # the last batch appended: no higher sequence was assigned
    "head",  # every batch before this one is in the database, or a dead letter
]


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in the sequence of batches."""

    sequence: int
    received_at: int  # µs


class MarkFile(_OpenFile):
    """A position saved beside a spool file, in place and without fsync: an older one is valid too, only less exact."""

    def __init__(self, spool: Path, kind: MarkKind) -> None:
        super().__init__(spool, f".{kind}", os.O_WRONLY | os.O_CREAT, 0o644)

    def write(self, mark: Mark) -> None:
        """Replace the mark; on disk errors the older one stays."""
        text = f"{mark.sequence:020d} {mark.received_at:020d}"
        with suppress(OSError):
            os.pwrite(self._descriptor(), f"{text} {zlib.crc32(text.encode()):08x}\n".encode(), 0)


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


_SOCKET = "writer.wake"


def _address(folder_fd: int) -> str:
    # Unix socket addresses are limited to 107 characters, folder names are not: go through the open folder.
    return f"/proc/self/fd/{folder_fd}/{_SOCKET}"


class Waker:
    """The collectors' end of the socket that wakes the writer.

    Datagrams: if nobody listens or the queue is full, nothing is lost, because the writer checks the spools when it
    starts and before it waits.
    """

    def __init__(self, folder: Path) -> None:
        self._folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def wake(self) -> None:
        """Wake the writer, if it is running."""
        with suppress(OSError):
            self._socket.sendto(b"1", _address(self._folder_fd))

    def close(self) -> None:
        """Close the file descriptors."""
        self._socket.close()
        os.close(self._folder_fd)


class WakeUpListener:
    """The writer's end: sets ``event`` whenever a collector wakes it."""

    def __init__(self, folder: Path, event: asyncio.Event) -> None:
        self._folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        (folder / _SOCKET).unlink(missing_ok=True)  # of a writer that was killed
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(_address(self._folder_fd))
        self._event = event
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._read)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while self._socket.recv(64):
                pass
        self._event.set()

    def close(self) -> None:
        """Stop listening."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        os.close(self._folder_fd)
