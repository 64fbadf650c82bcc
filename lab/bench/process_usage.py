"""CPU and memory usage of processes."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path

import psutil

_MIB = 1024**2


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process' first thread, to the ns; what ``cpu_times`` has counts in 10 ms.

    Raises OSError where the process is gone, or the kernel does not tell.
    """
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def used_seconds(who: int) -> float:
    """CPU seconds of this process (``resource.RUSAGE_SELF``), or of those that it started and that have ended
    (``RUSAGE_CHILDREN``)."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def process_tree(pid: int) -> list[psutil.Process]:
    """A process and all that come from it; none where it is gone."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []


def memory_mib(processes: list[psutil.Process]) -> float:
    """The proportional share: shared_buffers counted once, not once a backend."""
    total = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss / _MIB
    return total


def peak_mib(pid: int) -> float:
    """The most memory that a process had so far; 0 where it is gone. (What ``wait4`` says is its parent's, if that is
    more.)"""
    with suppress(OSError, IndexError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024
    return 0.0
