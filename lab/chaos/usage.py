"""Memory and descriptors of every process over time: whether they grow with its age."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import psutil

from core.paths import State
from ops.appliance.supervisor import ACTIVE_STATES, Supervisor

_SAMPLE_SECONDS = 15.0
_WARM_UP_SECONDS = 300.0  # of a process: caches fill
_HOUR = 3600.0
_MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a process and its children at a moment."""

    pid: int
    age: float  # s since it was started
    memory: float  # MiB that are its own: the database's shared buffers are none of it
    descriptors: int


@dataclass(frozen=True, slots=True)
class Trend:
    """Trend of a quantity with the age of the processes of one name."""

    median: float
    slope: float  # per hour; nan: too few samples
    error: float  # standard error of the slope

    def __str__(self) -> str:
        return f"{self.median:,.1f}, {self.slope:+.2f} ± {self.error:.2f} an hour"


class UsageSampler:
    """Collects samples until it is cancelled."""

    def __init__(self, state: State) -> None:
        self._supervisor = Supervisor(state)
        self.samples: dict[str, list[Usage]] = {}  # by the name of the process

    async def run(self) -> None:
        """Sample until cancelled. A process that is just away is left out."""
        while True:
            await asyncio.to_thread(self._sample)
            await asyncio.sleep(_SAMPLE_SECONDS)

    def _sample(self) -> None:
        with suppress(OSError):
            for process in self._supervisor.processes():
                if process.pid and process.state in ACTIVE_STATES:
                    with suppress(psutil.NoSuchProcess):
                        self.samples.setdefault(process.name, []).append(_usage(process.pid))


def _usage(pid: int) -> Usage:
    process = psutil.Process(pid)
    age = time.time() - process.create_time()
    used = list(_used([process, *process.children(recursive=True)]))
    return Usage(pid, age, sum(memory for memory, _ in used) / _MIB, sum(descriptors for _, descriptors in used))


def _used(processes: Sequence[psutil.Process]) -> Iterator[tuple[int, int]]:
    """Bytes and descriptors of each."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            yield process.memory_full_info().uss, process.num_fds()


def trends(samples: Sequence[Usage]) -> Mapping[str, Trend]:
    """``memory`` (MiB) and ``descriptors`` by the hour of a process's life, without the first minutes of it."""
    warm = [sample for sample in samples if sample.age >= _WARM_UP_SECONDS]
    process = np.array([sample.pid for sample in warm])
    age = np.array([sample.age for sample in warm]) / _HOUR
    return {
        name: _trend(process, age, np.array([getattr(sample, name) for sample in warm], dtype=np.float64))
        for name in ("memory", "descriptors")
    }


def _trend(process: np.ndarray, age: np.ndarray, values: np.ndarray) -> Trend:
    """Least squares with one slope for all processes, each with a level of its own (the "within" estimator)."""
    if not values.size:
        return Trend(math.nan, math.nan, math.nan)
    _, which, count = np.unique(process, return_inverse=True, return_counts=True)
    x = age - (np.bincount(which, age) / count)[which]
    y = values - (np.bincount(which, values) / count)[which]
    freedom = values.size - count.size - 1
    spread = float(x @ x)
    median = float(np.median(values))
    if freedom < 1 or not spread:
        return Trend(median, math.nan, math.nan)
    slope = float(x @ y) / spread
    rest = y - slope * x
    return Trend(median, slope, math.sqrt(float(rest @ rest) / freedom / spread))
