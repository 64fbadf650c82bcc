"""Disk space held in reserve for when the disk is full.

Once freed, the collector can record what is missing, and the writer can delete what it has stored: both need space in
SQLite's WAL, and the WAL needs a checkpoint.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from ingest.spool.segments import drop_oldest

BYTES = 8 * 1024**2  # more than the WAL holds between two checkpoints, see ingest.spool.file
_CHECK_SECONDS = 0.25  # between two attempts to allocate it again


class Ballast:
    """The ballast of one spool file: ``<name>.ballast`` beside it. Both processes may free or restore it."""

    def __init__(self, spool: Path) -> None:
        self._path = spool.with_name(spool.name + ".ballast")
        self._checked = float("-inf")

    def free(self) -> bool:
        """Free the space. False: there was none."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True

    def restore(self) -> bool:
        """Return whether it exists; allocates it again once the disk has twice that much free space.

        The journal is dropped for that.
        """
        while (short := self.disk_free() < 2 * BYTES) and drop_oldest(self._path.parent):
            pass
        if self._path.exists():
            return True
        now = time.monotonic()
        if now - self._checked < _CHECK_SECONDS:
            return False
        self._checked = now
        try:
            if not short:
                self._allocate()
        except OSError:
            return False
        return not short

    def disk_free(self) -> int:
        """Free bytes on its disk, beside its own; none on a disk that does not answer."""
        try:
            disk = os.statvfs(self._path.parent)
        except OSError:
            return 0
        return disk.f_bavail * disk.f_frsize

    def _allocate(self) -> None:
        partial = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(descriptor, 0, BYTES)
        except OSError:
            partial.unlink()
            raise
        finally:
            os.close(descriptor)
        partial.replace(self._path)
