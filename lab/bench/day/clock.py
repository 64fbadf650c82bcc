"""Shared memory clock of the benchmark's processes: generated time, and the time up to which it may go."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_TIMES = struct.Struct("=qq")  # µs: generated, allowed


class Clock:
    """A file of two times (µs since 1970); each has one process that sets it."""

    def __init__(self, path: Path, generated: int | None = None) -> None:
        """``generated``: the file is made, with this time for both."""
        if generated is not None:
            path.write_bytes(_TIMES.pack(generated, generated))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _TIMES.size)
        self._times = memoryview(self._map).cast("q")

    @property
    def generated(self) -> int:
        """Time before which all samples are in the spool."""
        return int(self._times[0])

    @generated.setter
    def generated(self, time: int) -> None:
        self._times[0] = time

    @property
    def allowed(self) -> int:
        """Time of the first sample that must not be generated yet."""
        return int(self._times[1])

    @allowed.setter
    def allowed(self, time: int) -> None:
        self._times[1] = time
