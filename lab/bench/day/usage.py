"""CPU and memory of the appliance's processes, by activity."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import psutil

from lab.bench.process_usage import memory_mib, process_tree

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
    families = {name: process_tree(pid) for name, pid in processes.items()}
    return {name: memory_mib(some) for name, some in families.items() if some}
