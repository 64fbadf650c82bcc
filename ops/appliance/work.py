"""Whether processes work: what they use of CPU and I/O."""

from __future__ import annotations

from contextlib import suppress

import psutil

_CPU_SECONDS = 0.5  # less is no work, an idle process has some
_BYTES = 1024**2  # read and written: likewise


class WorkMeter:
    """Meter of the work of processes, from the CPU that they have used."""

    def __init__(self) -> None:
        self._used: dict[int, tuple[float, int]] = {}  # pid → CPU s and bytes

    def has_worked(self, pid: int) -> bool:
        """Whether a process has worked since this was last true, or was not asked before."""
        with suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            times, done = process.cpu_times(), process.io_counters()
            used = (times.user + times.system, done.read_chars + done.write_chars)
            before = self._used.setdefault(pid, (-_CPU_SECONDS, 0))
            if used[0] - before[0] >= _CPU_SECONDS or used[1] - before[1] >= _BYTES:
                self._used[pid] = used
                return True
        return False
