"""The appliance of the measurement: what is told to it, and what is seen of it."""

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

from ingest.batch import now_us
from ingest.errors import OperationError
from ops.bench.backends import Backends
from ops.bench.choose.data import HOUR
from ops.bench.day import parts
from ops.bench.day.clock import Clock
from ops.bench.day.hour import Look
from ops.chaos.appliance import appliance
from ops.overload.measure import waiting
from ops.paths import CHECKOUT, State
from ops.supervisor import Supervisor
from schema.queries import load

_END_SECONDS = 30.0
_NAME = "plantlog bench day"


class Appliance:
    """One that runs, with a maintenance process that goes by generated time."""

    def __init__(self, state: State, owner: asyncpg.Connection[Any], clock: Clock, keeper: asyncio.subprocess.Process):
        self.state = state
        self.owner = owner
        self.clock = clock
        self._keeper = keeper
        self._feeder: asyncio.subprocess.Process | None = None
        self._pids = {p.name: p.pid for p in Supervisor(state).processes() if p.pid} | {"maintenance": keeper.pid}
        self._backends = Backends(self._pids["postgres"], owner, parts.SESSIONS, load("day")["sessions"])
        self._levels = False  # whether the server can tell them
        self._glanced = time.monotonic()
        self._waited = self._worst_lag = 0.0

    @property
    def feeder_ended(self) -> bool:
        """Whether nothing more is generated."""
        return self._feeder is None or self._feeder.returncode is not None

    async def feed(self, channels: int, hz: float, start: int, until: int) -> None:
        """Begin."""
        row = await self.owner.fetchrow(load("day")["channels"])
        if row is None or row["last"] - row["first"] + 1 != channels:
            raise OperationError("the benchmark needs channel ids in a row: use a state folder of its own")
        await self.owner.execute(load("day")["depth_of"])
        numbers = (row["source_id"], row["first"], channels, hz, start, until)
        spool = self.state.spool / "day.sqlite"
        self._feeder = await _python("ops.bench.day.feed", _clock_file(self.state), spool, *numbers)

    async def late(self, until: int) -> None:
        """Data of before ``until`` (µs) are no longer waited for."""
        await _late(self.owner, until)

    async def packed_until(self, channels: int) -> int | None:
        """All samples before (µs) are packed; None: that is not known of each channel."""
        at = await self.owner.fetchval(load("day")["packed_until"], channels)
        return None if at is None else round(at.timestamp() * 1e6)

    async def glance(self) -> None:
        """What has to be seen often: whose backends work, how long batches wait, and for what the generator does."""
        now = time.monotonic()
        if self.clock.generated >= self.clock.allowed:
            self._waited += now - self._glanced
        self._glanced = now
        self._worst_lag = max(self._worst_lag, waiting(self.state.spool).seconds)
        await self._backends.look()

    async def look(self, oldest: int) -> Look:
        """All of it."""
        await self._backends.look()
        own = {name: pid for name, pid in self._pids.items() if name != "postgres"}
        cpu = {f"{name} process": used for name, used in parts.cpu(own).items()}
        feeder = {} if self._feeder is None else {"generator": self._feeder.pid}
        cpu |= parts.cpu(feeder) | {f"postgres: {part}": used for part, used in self._backends.used().items()}
        worst, self._worst_lag = self._worst_lag, 0.0
        at, generated, spool = time.monotonic(), self.clock.generated, waiting(self.state.spool).bytes
        stored = await self.owner.fetchrow(load("day")["figures"])
        assert stored is not None
        disk = await asyncio.to_thread(_size, self.state.root)
        memory = await asyncio.to_thread(parts.memory, self._pids)
        return Look(at, generated, cpu, memory, disk, self._waited, worst, spool, oldest, dict(stored))

    async def stop_feeding(self) -> None:
        """What is in hand goes to the spool."""
        if self._feeder is not None:
            await _end(self._feeder)

    async def stop_keeping(self) -> None:
        """No job runs any more."""
        await _end(self._keeper)

    async def drain(self, seconds: float) -> None:
        """The database has all that is in the spool. Raises OperationError where that takes too long."""
        async with asyncio.timeout(seconds):
            while waiting(self.state.spool).seconds:
                await asyncio.sleep(0.1)


@asynccontextmanager
async def running(state: State, config: Path, start: int) -> AsyncIterator[Appliance]:
    """It runs inside the block; the day begins at ``start`` (µs)."""
    async with appliance(state, config):
        Supervisor(state).stop_program("maintenance")  # ours takes its place
        clock = Clock(_clock_file(state), start)
        owner = await asyncpg.connect(
            state.dsn_file("owner").read_text().strip(), server_settings={"application_name": _NAME}
        )
        await _late(owner, start - HOUR)  # before anything is done by the default
        keeper = await _python("ops.bench.day.keeping", state.root, _clock_file(state))
        try:
            yield Appliance(state, owner, clock, keeper)
        finally:
            await _end(keeper)
            owner.terminate()


async def _late(owner: asyncpg.Connection[Any], until: int) -> None:
    await owner.execute(load("day")["late"], f"{max(0.0, (now_us() - until) / 1e6):.3f}")


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


def _size(folder: Path) -> int:
    """Bytes on disk."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += (Path(root) / name).lstat().st_blocks * 512
    return total
