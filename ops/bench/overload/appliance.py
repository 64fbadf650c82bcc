"""The appliance of the measurement, with the simulator as its plant, and what is seen of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from ingest.config.model import HealthOptions
from ingest.writer.clock import timestamp
from ops import health, ports
from ops.bench.overload.strains import CHANNELS, SOURCE, TEMPLATE, Flood
from ops.chaos.appliance import appliance as running
from ops.chaos.plants import Ports, Simulated
from ops.overload.measure import waiting
from ops.paths import State
from ops.supervisor import Supervisor
from schema.queries import load
from simulator.export import export
from simulator.load import LoadPlant

_HOST = "127.0.0.1"
_PORTS = 24
_CONNECT_SECONDS = 60.0


class Plant(Simulated):
    """The simulator's load as ``up --channels`` has it, with a gateway beside it."""

    def __init__(self, folder: Path, numbers: Ports, channels: int, hz: float, push: int) -> None:
        super().__init__(folder, numbers, channels, hz)
        self._numbers, self._load, self._push = numbers, LoadPlant(channels, hz), push
        self.token = secrets.token_urlsafe(24)

    def configure(self, config: Path) -> None:
        """Its sources, with the options that sources have by default."""
        numbers = self._numbers
        at = (numbers.opcua, numbers.modbus)
        export(self._load, config, _HOST, *at, secure=False, health_port=numbers.health, viewer_port=numbers.viewer)
        token = config / "flood.token"
        token.touch(mode=0o600)
        token.write_text(self.token + "\n")
        with (config / "plant.toml").open("a") as file:
            file.write(
                f'\n[push]\nport = {self._push}\n\n[[source]]\nname = "{SOURCE}"\nkind = "push"\n'
                f'token_file = "flood.token"\nchannel = "{TEMPLATE}"\nunknown = "create"\nmax_rate = 10000000\n'
                f"max_channels = {CHANNELS}\n"
            )


@dataclass(slots=True)
class Seen:
    """A look at the appliance."""

    at: float  # monotonic
    written: int  # samples, since the writer's start
    samples: int  # of the sources that are polled or subscribed to, since the start
    missed: int
    lag: float  # s that the oldest batch waits
    pace: float  # s between two polls of the source whose polls are furthest apart; 0: as configured
    age: float  # s since the newest sample of the source whose newest is oldest
    connected: bool
    spool_bytes: int
    overloaded: bool


class Appliance:
    """One that runs."""

    def __init__(self, state: State, plant: Plant, options: HealthOptions, push: int) -> None:
        self.state = state
        self.truth = plant.truth
        self.flood = Flood(f"http://{_HOST}:{push}", plant.token)
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
        """What the processes say now, and the spools. Who does not answer has nothing, which is not as before."""
        said = [health.ask(f"collector-{kind}", self._options) for kind in ("opcua", "modbus")]
        sources = [source for report in said if report for source in report["sources"]]
        now = time.time()
        late = [now - source["due_at"] / 1e6 for source in sources if source.get("due_at")]
        maintenance = health.ask("maintenance", self._options) or {}
        wait = waiting(self.state.spool)
        return Seen(
            time.monotonic(),
            self.written(),
            sum(source["samples"] for source in sources),
            sum(source["missed"] for source in sources),
            wait.seconds,
            max(
                [*(source.get("pace_seconds", 0.0) for source in sources), *(one for one in late if one > 1.0)],
                default=0.0,
            ),
            max((now - source["last_sample_at"] / 1e6 for source in sources), default=0.0),
            all(said) and all(source["state"] in ("connected", "degraded") for source in sources),
            wait.bytes,
            (maintenance.get("overload") or {"since": None})["since"] is not None,
        )

    def cpu(self) -> float:
        """Seconds that all processes have used but the plant's; those that are gone are their parent's."""
        server = psutil.Process(self.postgres)
        own = server.cpu_times()
        ended = own.children_user + own.children_system
        pids = [pid for name, pid in self._pids.items() if name != "simulator"]
        return ended + sum(_cpu(pid) for pid in (*pids, *(child.pid for child in server.children())))

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

    async def flooded(self) -> int:
        """Samples of the flood that are stored."""
        return int((await self.fetch("flooded"))[0][0])


def _cpu(pid: int) -> float:
    with suppress(psutil.NoSuchProcess):
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system
    return 0.0


@asynccontextmanager
async def appliance(folder: Path, channels: int, hz: float) -> AsyncIterator[Appliance]:
    """One that reads the simulator inside the block."""
    first = ports.free_ports(_PORTS)
    numbers = Ports(first, first, first + 1, first + 1, control=first + 6, viewer=first + 7, health=first + 8)
    push = first + 8 + len(health.PORTS)
    state, plant = State(folder / "state"), Plant(folder / "plant", numbers, channels, hz, push)
    plant.configure(folder / "config")
    await plant.start()
    try:
        async with running(state, folder / "config" / "plant.toml"):
            yield Appliance(state, plant, HealthOptions(port=numbers.health), push)
    finally:
        await plant.kill()
