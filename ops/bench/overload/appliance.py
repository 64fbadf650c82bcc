"""The appliance of the measurement, with the simulator as its plant, and what is seen of it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from ingest import processes
from ingest.config.model import HealthOptions
from ingest.writer.clock import timestamp
from ops import health, ports
from ops.bench.backends import server_cpu
from ops.bench.overload.flood import GATEWAYS, LINES, Flood, source
from ops.chaos.appliance import appliance as running
from ops.chaos.plants import Ports, Simulated
from ops.overload.calm import Seen, look
from ops.paths import State
from ops.supervisor import Supervisor
from schema.queries import load
from simulator.export import export
from simulator.load import LoadPlant

_HOST = "127.0.0.1"
_PORTS = 24
_CONNECT_SECONDS = 60.0


class Plant(Simulated):
    """The simulator's load as ``up --channels`` has it, with gateways beside it."""

    def __init__(self, folder: Path, numbers: Ports, channels: int, hz: float, push: int) -> None:
        super().__init__(folder, numbers, channels, hz)
        self._numbers, self._load, self._push = numbers, LoadPlant(channels, hz), push
        self.tokens = [secrets.token_urlsafe(24) for _ in range(GATEWAYS)]

    def configure(self, config: Path) -> None:
        """Its sources, with the options that sources have by default."""
        numbers = self._numbers
        at = (numbers.opcua, numbers.modbus)
        export(self._load, config, _HOST, *at, secure=False, health_port=numbers.health, viewer_port=numbers.viewer)
        gateways = [f"\n[push]\nport = {self._push}\n"]
        for number, secret in enumerate(self.tokens):
            name = source(number)
            token = config / f"{name}.token"
            token.touch(mode=0o600)
            token.write_text(secret + "\n")
            gateways.append(
                f'\n[[source]]\nname = "{name}"\nkind = "push"\ntoken_file = "{token.name}"\nstale_after = "1d"\n'
                f'channel = "{name}/{{measurement}}.{{field}}"\nunknown = "create"\nmax_rate = 10000000\n'
                f"max_channels = {LINES}\n"
            )
        with (config / "plant.toml").open("a") as file:
            file.writelines(gateways)


class Appliance:
    """One that runs."""

    def __init__(self, state: State, plant: Plant, options: HealthOptions, push: int) -> None:
        self.state = state
        self.truth = plant.truth
        self.flood = Flood(f"http://{_HOST}:{push}", plant.tokens)
        self.owner = state.dsn_file("owner").read_text().strip()  # a reader's sessions step back, and end in time
        self._options = options
        self._pids = {p.name: p.pid for p in Supervisor(state).processes() if p.pid is not None}

    @property
    def postgres(self) -> int:
        """The server's process."""
        return self._pids["postgres"]

    def written(self) -> int:
        """Samples that the writer has written."""
        return int((health.ask("writer", self._options) or {"written": 0})["written"])

    def look(self) -> Seen:
        """What the processes say now, and the spools."""
        return look(self.state)

    def memory(self) -> dict[str, float]:
        """MiB that each process has resident, but the plant's and the database's."""
        names = {name: pid for name, pid in self._pids.items() if name not in ("simulator", "postgres")}
        return {name: _resident(pid) for name, pid in names.items()}

    def cpu(self) -> float:
        """Seconds that all processes have used but the plant's; those that are gone are their parent's."""
        _, server = server_cpu(psutil.Process(self.postgres))
        return server + sum(_cpu(pid) for name, pid in self._pids.items() if name not in ("simulator", "postgres"))

    async def fetch(self, section: str, *parameters: Any) -> list[asyncpg.Record]:
        """Rows of a section of ``bench.sql``."""
        connection = await asyncpg.connect(self.owner, timeout=_CONNECT_SECONDS)
        try:
            return list(await connection.fetch(load("bench")[section], *parameters))
        finally:
            connection.terminate()

    async def gaps_since(self, since: int) -> dict[str, tuple[int, int]]:
        """By reason: rows that were added to the table from then (µs) on, and how many gaps they are."""
        return {row["reason"]: (row["rows"], row["gaps"]) for row in await self.fetch("gaps_since", timestamp(since))}

    async def flooded(self, since: int) -> tuple[set[int], int]:
        """Of what gateways pushed from then (µs) on: the bodies that are stored, and how many samples."""
        (row,) = await self.fetch("flooded", timestamp(since))
        return {int(value) for value in row["bodies"]}, row["samples"]


def _cpu(pid: int) -> float:
    with suppress(psutil.NoSuchProcess):
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system
    return 0.0


def _resident(pid: int) -> float:
    with suppress(psutil.NoSuchProcess):
        return float(psutil.Process(pid).memory_info().rss / 1024**2)
    return 0.0


@asynccontextmanager
async def appliance(folder: Path, channels: int, hz: float) -> AsyncIterator[Appliance]:
    """One that reads the simulator inside the block."""
    first = ports.free_ports(_PORTS)
    numbers = Ports(first, first, first + 1, first + 1, control=first + 6, viewer=first + 7, health=first + 8)
    push = first + 8 + len(processes.PORTS)
    state, plant = State(folder / "state"), Plant(folder / "plant", numbers, channels, hz, push)
    plant.configure(folder / "config")
    await plant.start()
    try:
        async with running(state, folder / "config" / "plant.toml"):
            yield Appliance(state, plant, HealthOptions(port=numbers.health), push)
    finally:
        await plant.kill()
