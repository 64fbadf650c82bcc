"""The appliance under test: its control and its figures."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg

from core.errors import OperationError
from core.paths import CHECKOUT, State
from core.timestamps import microseconds, now_us
from lab.bench import usage
from lab.bench.data import HOUR
from lab.bench.day.clock import Clock
from lab.bench.day.hour import Snapshot
from lab.chaos.appliance import running_appliance
from ops.appliance.supervisor import Supervisor
from ops.maintenance.overload.measure import total_backlog
from schema.queries import load

_END_SECONDS = 30.0
_APPLICATION_NAME = "plantlog bench day"


class Appliance:
    """Appliance that runs, with a maintenance process that goes by generated time."""

    def __init__(
        self, state: State, owner: asyncpg.Connection[Any], clock: Clock, maintenance: asyncio.subprocess.Process
    ):
        self.state = state
        self.owner = owner
        self.clock = clock
        self._maintenance = maintenance
        self._generator: asyncio.subprocess.Process | None = None
        self._pids = {p.name: p.pid for p in Supervisor(state).processes() if p.pid} | {"maintenance": maintenance.pid}
        self._backends = usage.Backends(self._pids["postgres"], owner)
        self._sampled_at = time.monotonic()
        self._waited = self._worst_lag = 0.0

    @property
    def generator_ended(self) -> bool:
        """Return whether nothing more is generated."""
        return self._generator is None or self._generator.returncode is not None

    async def feed(self, channels: int, hz: float, start: int, until: int) -> None:
        """Begin to feed the generated samples."""
        row = await self.owner.fetchrow(load("day")["select_channel_ranges"])
        if row is None or row["last"] - row["first"] + 1 != channels:
            raise OperationError("the benchmark requires consecutive channel ids: use a separate state folder")
        await self.owner.execute(load("day")["create_pageinspect"])
        numbers = (row["source_id"], row["first"], channels, hz, start, until)
        spool = self.state.spool / "day.sqlite"
        self._generator = await _python("lab.bench.day.generator", _clock_file(self.state), spool, *numbers)

    async def set_lateness(self, until: int) -> None:
        """Wait no longer for data of before ``until`` (µs)."""
        await _set_lateness(self.owner, until)

    async def packed_until(self, channels: int) -> int | None:
        """Time (µs) before which all samples are packed; None: that is not known of each channel."""
        at = await self.owner.fetchval(load("day")["select_packed_until"], channels)
        return None if at is None else microseconds(at)

    async def sample(self) -> None:
        """Sample often: whose backends work, how long batches wait, and for what the generator does."""
        now = time.monotonic()
        if self.clock.generated >= self.clock.allowed:
            self._waited += now - self._sampled_at
        self._sampled_at = now
        self._worst_lag = max(self._worst_lag, total_backlog(self.state.spool).seconds)
        await self._backends.sample()

    async def snapshot(self, oldest: int) -> Snapshot:
        """Snapshot of all figures."""
        await self._backends.sample()
        own = {name: pid for name, pid in self._pids.items() if name != "postgres"}
        cpu = {f"{name} process": used for name, used in usage.cpu(own).items()}
        generator = {} if self._generator is None else {"generator": self._generator.pid}
        cpu |= usage.cpu(generator) | {
            f"postgres: {activity}": used for activity, used in self._backends.used().items()
        }
        worst, self._worst_lag = self._worst_lag, 0.0
        at, generated, spool = time.monotonic(), self.clock.generated, total_backlog(self.state.spool).bytes
        stored = await self._figures()
        disk = await asyncio.to_thread(usage.folder_bytes, self.state.root)
        memory = await asyncio.to_thread(usage.memory, self._pids)
        return Snapshot(at, generated, cpu, memory, disk, self._waited, worst, spool, oldest, stored)

    async def _figures(self) -> dict[str, Any]:
        while True:
            try:
                stored = await self.owner.fetchrow(load("day")["select_figures"])
            except asyncpg.UndefinedTableError:  # a chunk was dropped meanwhile
                continue
            assert stored is not None
            return dict(stored)

    async def stop_generator(self) -> None:
        """Stop the generator; the samples in hand go to the spool."""
        if self._generator is not None:
            await _end(self._generator)

    async def stop_maintenance(self) -> None:
        """Stop maintenance: no job runs any more."""
        await _end(self._maintenance)

    async def drain(self, seconds: float) -> None:
        """Wait until the database has all that is in the spool. Raises OperationError where that takes too long."""
        async with asyncio.timeout(seconds):
            while total_backlog(self.state.spool).seconds:
                await asyncio.sleep(0.1)


@asynccontextmanager
async def running(state: State, config: Path, start: int) -> AsyncIterator[Appliance]:
    """Run it inside the block; the day begins at ``start`` (µs)."""
    async with running_appliance(state, config):
        Supervisor(state).stop_programs("maintenance")  # ours takes its place
        clock = Clock(_clock_file(state), start)
        owner = await asyncpg.connect(state.dsn("owner"), server_settings={"application_name": _APPLICATION_NAME})
        await _set_lateness(owner, start - HOUR)  # before anything is done by the default
        maintenance = await _python("lab.bench.day.maintenance_process", state.root, _clock_file(state))
        try:
            yield Appliance(state, owner, clock, maintenance)
        finally:
            await _end(maintenance)
            owner.terminate()


async def _set_lateness(owner: asyncpg.Connection[Any], until: int) -> None:
    await owner.execute(load("day")["update_lateness"], f"{max(0.0, (now_us() - until) / 1e6):.3f}")


def _clock_file(state: State) -> Path:
    return state.run / "day.clock"


async def _python(module: str, *arguments: object) -> asyncio.subprocess.Process:
    command = [sys.executable, "-P", "-m", module, *map(str, arguments)]
    return await asyncio.create_subprocess_exec(*command, env={**os.environ, "PYTHONPATH": str(CHECKOUT)})


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
