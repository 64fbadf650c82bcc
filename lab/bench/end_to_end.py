"""The appliance under load: lag from source time to commit, CPU per sample and memory of every process.

Runs ``./plantlog up`` with the simulator's load mode in a state folder of its own, so it measures what a user runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from core.database import connected
from core.errors import OperationError
from core.paths import State
from lab.bench.usage import Backends, memory_mib, process_tree
from lab.chaos.appliance import plantlog
from schema.queries import load as queries

WARM_UP_SECONDS = 20.0  # connections, first chunk, caches
_SETTLE_SECONDS = 3.0  # batches of the last moment reach the table
_MEMORY_POINTS = 10
_POLL_SECONDS = 2.0  # between looks at PostgreSQL's processes


@dataclass(slots=True)
class ProcessUse:
    """One process of the appliance during a run."""

    cpu_seconds: float = 0.0
    cpu_us_per_sample: float | None = None  # of the samples that this process handled; None: it handles none
    rss_mib: list[float] = field(default_factory=list)  # at equal intervals; proportional share for PostgreSQL


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """One run. Lags are seconds; ``oldest`` is the worst-off sample of each batch, ``newest`` the best-off."""

    channels: int
    hz: float
    seconds: float
    rows: int
    rows_per_second: float
    oldest_p50: float
    oldest_p99: float
    newest_p50: float
    newest_p99: float
    rows_per_group: float  # of one transaction
    postgres: dict[str, float]  # CPU µs a stored sample, by whom it works for
    processes: dict[str, ProcessUse]


async def measure(
    channels: int,
    hz: float,
    seconds: float,
    state: Path,
    progress: Callable[[str], None],
    port: int | None = None,
    before_down: Callable[[], Awaitable[None]] | None = None,
    warm_up: float = WARM_UP_SECONDS,
) -> EndToEnd:
    """Bring the appliance up with a load of ``channels`` × ``hz``, watch it for ``seconds``, bring it down.

    ``port``: as of ``up``. ``before_down`` is called before it goes down. The first ``warm_up`` seconds do not count.
    """
    ports = () if port is None else ("--port", str(port))
    await plantlog(State(state), "up", "--channels", str(channels), "--hz", str(hz), *ports)
    try:
        time.sleep(warm_up)  # noqa: ASYNC251  (nothing else runs in this loop)
        async with _backends(state) as backends:
            before, started = await _sample_processes(state), datetime.now(UTC)
            await backends.sample()
            progress(f"{channels * hz:,.0f} samples/s: watching for {seconds:.0f} s")
            rss: dict[str, list[float]] = {name: [] for name in before}
            for _ in range(_MEMORY_POINTS):
                await _sample_for(backends, seconds / _MEMORY_POINTS)
                for name, process in before.items():
                    rss[name].append(memory_mib([member for pid in process.pids for member in process_tree(pid)]))
            await backends.sample()
            ended, after = datetime.now(UTC), await _sample_processes(state)
        time.sleep(_SETTLE_SECONDS)  # noqa: ASYNC251
        lag = await _lag(state, started, ended)
        if before_down is not None:
            await before_down()
    finally:
        await plantlog(State(state), "down")
    elapsed = (ended - started).total_seconds()
    return EndToEnd(
        channels,
        hz,
        elapsed,
        lag["rows"],
        lag["rows"] / elapsed,
        lag["oldest_p50"],
        lag["oldest_p99"],
        lag["newest_p50"],
        lag["newest_p99"],
        lag["rows"] / lag["groups"],
        {kind: cpu / lag["rows"] * 1e6 for kind, cpu in backends.used().items()},
        {name: _use(before.get(name), after[name], rss.get(name, [])) for name in after},
    )


@dataclass(slots=True)
class _ProcessSample:
    pids: list[int] = field(default_factory=list)
    cpu_seconds: float = 0.0
    samples: int | None = None


@asynccontextmanager
async def _backends(state: Path) -> AsyncIterator[Backends]:
    postmaster = (state / "postgres" / "cluster" / "data" / "postmaster.pid").read_text().split()[0]
    async with connected(State(state).dsn("owner"), "plantlog bench") as connection:
        yield Backends(int(postmaster), connection)


async def _sample_for(backends: Backends, seconds: float) -> None:
    """Look at the backends until so many seconds are over: those of maintenance come and go."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(_POLL_SECONDS, left))  # noqa: ASYNC251
        await backends.sample()


async def _sample_processes(state: Path) -> dict[str, _ProcessSample]:
    """CPU of every process of the appliance in ``state``, by its name in the supervisor. PostgreSQL pays for asking."""
    status: dict[str, Any] = json.loads(await plantlog(State(state), "status", "--json"))
    processes: dict[str, _ProcessSample] = {}
    for process in status["processes"]:
        if not process.get("pid"):
            continue
        sample = processes.setdefault(process["name"], _ProcessSample(samples=process.get("samples")))
        sample.pids.append(process["pid"])
        for member in process_tree(process["pid"]):
            with suppress(psutil.NoSuchProcess):
                times = member.cpu_times()
                sample.cpu_seconds += times.user + times.system
    return processes


def _use(before: _ProcessSample | None, after: _ProcessSample, rss_mib: list[float]) -> ProcessUse:
    cpu = after.cpu_seconds - (before.cpu_seconds if before else 0.0)
    handled = after.samples - before.samples if before and after.samples and before.samples is not None else None
    return ProcessUse(cpu, cpu / handled * 1e6 if handled else None, rss_mib)


async def _lag(state: Path, started: datetime, ended: datetime) -> asyncpg.Record:
    async with connected(State(state).dsn("reader"), "plantlog bench") as connection:
        row: asyncpg.Record | None = await connection.fetchrow(queries("bench")["select_lag"], started, ended)
    if row is None or not row["rows"]:
        raise OperationError("no samples were written: see `plantlog logs`")
    return row
