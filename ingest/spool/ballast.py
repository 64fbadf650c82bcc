"""Disk space that is held for the moment when there is none.

Freed, it lets the collector put on record what is missing, and the writer delete what it has taken: both need a place
in SQLite's log, and the log needs a checkpoint.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

BYTES = 8 * 1024**2  # more than what stands in the log between two checkpoints, see ingest.spool.file
_LOOK_SECONDS = 0.25  # between two attempts to get it back


class Ballast:
    """The ballast of one spool file, ``<name>.ballast`` beside it; both processes may free it or bring it back."""

    def __init__(self, spool: Path) -> None:
        self._path = spool.with_name(spool.name + ".ballast")
        self._looked = float("-inf")

    def free(self) -> bool:
        """Give the space to whoever needs it now. False: there was none."""
        try:
            self._path.unlink()
        except OSError:
            return False
        return True

    def restore(self) -> bool:
        """Whether it is there; brings it back where the disk has twice as much room."""
        if self._path.exists():
            return True
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return False
        self._looked = now
        try:
            disk = os.statvfs(self._path.parent)
            if disk.f_bavail * disk.f_frsize < 2 * BYTES:
                return False
            self._allocate()
        except OSError:
            return False
        return True

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
