"""CPU and memory of the appliance's processes, by what they do."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import psutil

# Beginning of a session's name, or a background process' type → part.
SESSIONS = {
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
_MIB = 1024**2


def cpu(processes: Mapping[str, int]) -> dict[str, float]:
    """Name → CPU seconds so far, of process ids; those that are gone have none."""
    used = {}
    for name, pid in processes.items():
        with suppress(psutil.NoSuchProcess):
            times = psutil.Process(pid).cpu_times()
            used[name] = times.user + times.system
    return used


def memory(processes: Mapping[str, int]) -> dict[str, float]:
    """Name → MiB, of process ids and their children; what they share counts once."""
    used = {}
    for name, pid in processes.items():
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(pid)
            total = 0
            for one in (parent, *parent.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    total += one.memory_full_info().pss
            used[name] = total / _MIB
    return used
