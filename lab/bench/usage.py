"""CPU, memory and disk usage: of processes, and of PostgreSQL's backends by activity."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from schema.queries import load as queries

_MIB = 1024**2
# Beginning of a session's name, or a background process' type → activity, the first that fits.
_ACTIVITIES = {
    "plantlog writer: rollups": "minutes",
    "plantlog writer": "ingest",
    "plantlog maintenance: compress": "packing",
    "plantlog maintenance: rollups": "rollups",
    "plantlog maintenance: seal": "sealing",
    "plantlog seal": "sealing",
    "plantlog maintenance: retain": "retention",
    "plantlog maintenance": "other jobs",
    "autovacuum": "autovacuum",
    "checkpointer": "checkpointer",
    "background writer": "checkpointer",
    "walwriter": "checkpointer",
}
_OTHER = "rest"  # readers, and who came and went between two looks


def cpu(processes: Mapping[str, int]) -> dict[str, float]:
    """Name → CPU seconds so far, of process ids; those that are gone have none."""
    used = {}
    for name, pid in processes.items():
        with suppress(psutil.NoSuchProcess):
            times = psutil.Process(pid).cpu_times()
            used[name] = times.user + times.system
    return used


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


def memory(processes: Mapping[str, int]) -> dict[str, float]:
    """Name → MiB, of process ids and their children; what they share counts once."""
    families = {name: process_tree(pid) for name, pid in processes.items()}
    return {name: memory_mib(family) for name, family in families.items() if family}


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


def folder_bytes(*folders: Path) -> int:
    """Bytes on disk of the files below: holes do not count, nor do files that are deleted meanwhile."""
    total = 0
    for folder in folders:
        for root, _, names in os.walk(folder):
            for name in names:
                with suppress(OSError):
                    total += (Path(root) / name).lstat().st_blocks * 512
    return total


class Backends:
    """Usage of the processes of one server since the first look. A backend that ends is known by the look before."""

    def __init__(self, postmaster: int, connection: asyncpg.Connection[Any]) -> None:
        """``connection``: of a login that sees whose sessions there are."""
        self._postmaster = psutil.Process(postmaster)
        self._connection = connection
        self._first: dict[int, float] | None = None
        self._backends: dict[int, tuple[str, float]] = {}  # pid → activity, CPU seconds
        self._total = (0.0, 0.0)  # CPU seconds at the first look and at the last

    async def sample(self) -> None:
        """Note what each process has used so far."""
        names = {row["pid"]: row["name"] for row in await self._connection.fetch(queries("bench")["select_sessions"])}
        used = {pid: seconds for child in self._postmaster.children() for pid, seconds in _cpu(child)}
        postmaster = self._postmaster.cpu_times()
        total = (
            postmaster.user
            + postmaster.system
            + postmaster.children_user
            + postmaster.children_system
            + sum(used.values())
        )
        if self._first is None:
            self._first, self._total = used, (total, total)
        self._total = self._total[0], total
        for pid, seconds in used.items():
            before = self._backends.get(pid, (_OTHER, 0.0))[0]  # it may have ended since it was asked for
            self._backends[pid] = _activity(names[pid]) if pid in names else before, seconds

    def used(self) -> dict[str, float]:
        """CPU seconds of each activity between the first look and the last."""
        first = self._first or {}
        activities = dict.fromkeys((*_ACTIVITIES.values(), _OTHER), 0.0)
        for pid, (activity, seconds) in self._backends.items():
            activities[activity] += seconds - first.get(pid, 0.0)
        named = sum(seconds for activity, seconds in activities.items() if activity != _OTHER)
        activities[_OTHER] = max(0.0, self._total[1] - self._total[0] - named)
        return activities


def _activity(name: str) -> str:
    return next((activity for begin, activity in _ACTIVITIES.items() if name.startswith(begin)), _OTHER)


def _cpu(process: psutil.Process) -> list[tuple[int, float]]:
    """The id and CPU seconds of a process, to the ns where the kernel tells; nothing where it is gone."""
    with suppress(OSError, ValueError, IndexError):  # cpu_times counts in 10 ms
        return [(process.pid, int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e9)]
    return [(process.pid, seconds) for seconds in cpu({"": process.pid}).values()]
