"""The appliance under test, with the simulator as plant, and its figures."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from core.config import processes, token_file
from core.config.model import HealthOptions
from core.database import connected
from core.paths import State
from core.timestamps import timestamp
from lab.bench import usage
from lab.bench.overload.cost import Reading
from lab.bench.overload.flood import GATEWAYS, LINES, Flood, source
from lab.chaos.appliance import running_appliance as running
from lab.chaos.plants import Ports, Simulated
from lab.recovery import Observation, observe
from ops import health, ports
from ops.appliance.supervisor import Supervisor
from schema.queries import load
from simulator.export import export
from simulator.plants import LoadPlant

_HOST = "127.0.0.1"
_PORTS = 24
_CONNECT_SECONDS = 60.0


class OverloadPlant(Simulated):
    """The simulator's load as ``up --channels`` has it, with gateways beside it."""

    def __init__(self, folder: Path, plant_ports: Ports, channels: int, hz: float, push: int) -> None:
        super().__init__(folder, plant_ports, channels, hz)
        self._numbers, self._load, self._push = plant_ports, LoadPlant(channels, hz), push
        self.tokens = [secrets.token_urlsafe(24) for _ in range(GATEWAYS)]

    def configure(self, config: Path) -> None:
        """Configure the sources, with the options that sources have by default."""
        plant_ports = self._numbers
        at = (plant_ports.opcua, plant_ports.modbus)
        export(
            self._load, config, _HOST, *at, secure=False, health_port=plant_ports.health, viewer_port=plant_ports.viewer
        )
        gateways = [f"\n[push]\nport = {self._push}\n"]
        for number, secret in enumerate(self.tokens):
            name = source(number)
            token = config / f"{name}.token"
            token_file.write(token, secret)
            gateways.append(
                f'\n[[source]]\nname = "{name}"\nkind = "push"\ntoken_file = "{token.name}"\nstale_after = "1d"\n'
                f'channel = "{name}/{{measurement}}.{{field}}"\nunknown = "create"\nmax_rate = 10000000\n'
                f"max_channels = {LINES}\n"
            )
        with (config / "plant.toml").open("a") as file:
            file.writelines(gateways)


class Appliance:
    """Appliance that runs."""

    def __init__(
        self,
        state: State,
        plant: OverloadPlant,
        options: HealthOptions,
        push: int,
        dsn: str,
        owner: asyncpg.Connection[Any],
    ) -> None:
        """``dsn``: of the owner, as is the connection; a reader's sessions step back, and end in time."""
        self.state = state
        self.truth = plant.truth
        self.flood = Flood(f"http://{_HOST}:{push}", plant.tokens)
        self.dsn = dsn
        self._options = options
        self._connection = owner
        pids = {p.name: p.pid for p in Supervisor(state).processes() if p.pid is not None}
        self.postgres = pids["postgres"]  # the server's process
        self._own = {name: pid for name, pid in pids.items() if name not in ("simulator", "postgres")}
        self._backends = usage.Backends(self.postgres, owner)

    def written(self) -> int:
        """Samples that the writer has written."""
        return int((health.fetch("writer", self._options, self.state.root) or {"written": 0})["written"])

    def observe(self) -> Observation:
        """Observe the processes and the spools."""
        return observe(self.state)

    def memory(self) -> dict[str, float]:
        """MiB that each process has resident, but the plant's and the database's."""
        return {name: _resident(pid) for name, pid in self._own.items()}

    async def read(self) -> Reading:
        """Read what was written, and the CPU of all processes but the plant's."""
        at, written = time.time(), await asyncio.to_thread(self.written)
        await self._backends.sample()
        server = {f"postgres: {part}": used for part, used in self._backends.used().items()}
        return Reading(at, written, usage.cpu(self._own) | server)

    async def fetch(self, section: str, *parameters: Any) -> list[asyncpg.Record]:
        """Rows of a section of ``bench.sql``."""
        return list(await self._connection.fetch(load("bench")[section], *parameters))

    async def gaps_since(self, since: int) -> dict[str, tuple[int, int]]:
        """Gaps by reason: rows that were added to the table from then (µs) on, and how many gaps they are."""
        return {
            row["reason"]: (row["rows"], row["gaps"]) for row in await self.fetch("count_gaps_since", timestamp(since))
        }

    async def flooded(self, since: int) -> tuple[set[int], int]:
        """Count what gateways pushed from then (µs) on: the bodies that are stored, and how many samples."""
        (row,) = await self.fetch("select_flood_totals", timestamp(since))
        return {int(value) for value in row["bodies"]}, row["samples"]


def _resident(pid: int) -> float:
    with suppress(psutil.NoSuchProcess):
        return float(psutil.Process(pid).memory_info().rss / 1024**2)
    return 0.0


@asynccontextmanager
async def running_appliance(folder: Path, channels: int, hz: float) -> AsyncIterator[Appliance]:
    """Appliance that reads the simulator inside the block."""
    first = ports.free_ports(_PORTS)
    plant_ports = Ports(first, first, first + 1, first + 1, control=first + 6, viewer=first + 7, health=first + 8)
    push = first + 8 + len(processes.PORTS)
    state, plant = State(folder / "state"), OverloadPlant(folder / "plant", plant_ports, channels, hz, push)
    plant.configure(folder / "config")
    await plant.start()
    try:
        async with running(state, folder / "config" / "plant.toml"):
            dsn = state.dsn("owner")
            async with connected(dsn, "plantlog bench overload", seconds=_CONNECT_SECONDS) as owner:
                yield Appliance(state, plant, HealthOptions(port=plant_ports.health), push, dsn, owner)
    finally:
        await plant.kill()
