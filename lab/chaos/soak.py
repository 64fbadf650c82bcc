"""Measurements of a soak while faults are injected: whether processes grow, and errors that no fault explains."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import psutil

from core.paths import State
from ops.appliance.supervisor import ACTIVE_STATES, Supervisor

_SAMPLE_SECONDS = 15.0
_WARM_UP_SECONDS = 300.0  # of a process: caches fill
_HOUR = 3600.0
_MIB = 1024**2
# plantlog's own processes, and PostgreSQL
_ERROR = re.compile(r"^(\S+ \S+) Z (?:(?:ERROR|CRITICAL) |\[\d+\] .*?(?:ERROR|FATAL|PANIC):)")
_AFTER_SECONDS = 90.0  # in which what failed is still about the fault


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


@dataclass(frozen=True, slots=True)
class SoakResult:
    """Trends by process and quantity (``memory`` in MiB, ``descriptors``), and lines of the logs."""

    trends: Mapping[str, Mapping[str, Trend]]
    errors: Sequence[str]

    def lines(self) -> Iterator[str]:
        """Lines for a log: the comparison that follows takes a while, and may fail."""
        for name, of_process in self.trends.items():
            yield f"{name}: memory {of_process['memory']} MiB, descriptors {of_process['descriptors']}"
        yield f"{len(self.errors):,} errors in the logs that are about no fault"


class Soak:
    """A soak that runs."""

    def __init__(self, state: State) -> None:
        self.sampler = UsageSampler(state)
        self._state = state
        self._since = time.time()
        self._faults: list[tuple[float, float]] = []  # begin and end, seconds since 1970

    @contextmanager
    def fault(self) -> Iterator[None]:
        """A fault lasts as long as the block."""
        begin = time.time()
        try:
            yield
        finally:
            self._faults.append((begin, time.time()))

    def result(self, until: float) -> SoakResult:
        """Results that were measured, and logged before ``until`` (seconds since 1970)."""
        samples = self.sampler.samples
        errors = unexplained(self._state.log, self._since, until, self._faults)
        return SoakResult({name: trends(samples[name]) for name in sorted(samples)}, errors)


@asynccontextmanager
async def soaking(state: State) -> AsyncIterator[Soak]:
    """Measure the appliance of ``state`` while the block runs."""
    soak = Soak(state)
    sampling = asyncio.create_task(soak.sampler.run())
    try:
        yield soak
    finally:
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling


def unexplained(folder: Path, since: float, until: float, faults: Sequence[tuple[float, float]]) -> list[str]:
    """Lines of errors between ``since`` and ``until``, outside all ``faults`` (begin and end), as ``file: line``.

    Times are in seconds since 1970.
    """
    return [
        f"{path.name}: {line}"
        for path in sorted(folder.glob("*.log*"))
        for at, line in _errors(path)
        if since <= at <= until and not any(begin - 1 <= at <= end + _AFTER_SECONDS for begin, end in faults)
    ]


def _errors(path: Path) -> Iterator[tuple[float, str]]:
    with path.open(errors="replace") as file:
        for line in file:
            if match := _ERROR.match(line):
                yield datetime.fromisoformat(f"{match[1]}+00:00").timestamp(), line.rstrip()
