"""Peer × fault: the whole appliance reads servers that are not ours while they, it and the network between fail.

``python -m tests.matrix`` prints the table with the lengths that a plant knows; the test of it is shorter. Each fault
is done to all peers at once; each peer's own truth is then held against the table.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from core.config.processes import is_collector
from core.paths import State
from core.timestamps import now_us
from lab.chaos.settling import await_idle
from simulator.compare import compare
from simulator.compare_samples import Comparison
from simulator.relay import Relay, running_relays
from tests.e2e.appliance import Appliance, running
from tests.peers import FIRST_REGISTER, KINDS, Peer, opcua_tags
from tests.ports import free_port, free_ports

# Channels a peer, and one more that plantlog is told of later. None of the Uncertain ones: node-opcua flags no queue
# that overflows on one of them (an assertion of its own fails), so that a full one may be a gap without a loss.
COUNT = 34
MILLISECONDS = 200  # between two values of a channel
QUEUE = 25  # values: 5 s
_BEHIND = 2.0  # s that still count when all is as before: what is wrong may come late
UNITS = 2  # of the libmodbus device
PEERS: Mapping[str, tuple[str, ...]] = {
    "milo": (str(MILLISECONDS),),
    "open62541": (str(MILLISECONDS),),
    "node-opcua": (str(MILLISECONDS),),
    "simulator": (str(MILLISECONDS),),
    "libmodbus": (f"units={UNITS}",),
    "modbus-serial": (),
    "simulator-plc": (str(MILLISECONDS),),
}
BURSTS = {"milo", "open62541", "node-opcua"}


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds."""

    away: float  # of a server that was killed, of a wire that is cut
    stopped: float  # longer than a queue holds
    silent: float  # likewise, and shorter than it takes to be noticed


SHORT = Durations(3, 8, 8)
FULL = Durations(30, 75, 13)


@dataclass(frozen=True, slots=True)
class FaultScene:
    """Appliance and peers that suffer the faults."""

    appliance: Appliance
    peers: Mapping[str, Peer]
    relays: Mapping[str, Relay]
    config: Path
    lengths: Durations


async def _kill_collector(scene: FaultScene) -> None:
    for process in scene.appliance.supervisor.processes():
        if is_collector(process.name) and process.pid:
            os.kill(process.pid, signal.SIGKILL)


async def _kill_server(scene: FaultScene) -> None:
    await asyncio.gather(*(peer.kill() for peer in scene.peers.values()))
    await asyncio.sleep(scene.lengths.away)
    await asyncio.gather(*(peer.start() for peer in scene.peers.values()))


async def _cut(scene: FaultScene) -> None:
    for wire in scene.relays.values():
        wire.refuse()
    await asyncio.sleep(scene.lengths.away)
    for wire in scene.relays.values():
        await wire.accept()


async def _stop(scene: FaultScene) -> None:
    names = [process.name for process in scene.appliance.supervisor.processes() if is_collector(process.name)]
    await asyncio.to_thread(scene.appliance.supervisor.stop_programs, *names)
    await asyncio.sleep(scene.lengths.stopped)
    for name in names:
        await asyncio.to_thread(scene.appliance.supervisor.start_program, name)


async def _add_tag(scene: FaultScene) -> None:
    configure(scene.config, dict.fromkeys(scene.peers, 0), COUNT + 1)
    await asyncio.to_thread(scene.appliance.plantlog, "up")


async def _overflow(scene: FaultScene) -> None:
    """Nobody fetches what the queues hold; and more values at once than they hold."""
    for name in BURSTS & scene.peers.keys():
        await scene.peers[name].tell(f"burst {2 * QUEUE}")
    for wire in scene.relays.values():
        wire.silence(True)
    await asyncio.sleep(scene.lengths.silent)
    for wire in scene.relays.values():
        wire.silence(False)


FAULTS: Mapping[str, Callable[[FaultScene], Awaitable[None]]] = {
    "kill collector": _kill_collector,
    "kill server": _kill_server,
    "cut": _cut,
    "stop": _stop,
    "add tag": _add_tag,
    "overflow": _overflow,
}


@dataclass(frozen=True, slots=True)
class Cell:
    """Cost of a fault to a peer's channels."""

    peer: str
    fault: str
    found: Comparison

    @property
    def wrong(self) -> bool:
        """Return whether a value is missing without a gap, or is there otherwise than once and as it was published."""
        c = self.found
        return bool(c.missing_silent or c.altered or c.duplicated or c.invented)


def configure(config: Path, ports: Mapping[str, int], count: int, health: int | None = None) -> None:
    """A source for each peer at the port of its wire, with its first ``count`` channels."""
    (config / "tags").mkdir(parents=True, exist_ok=True)
    path = config / "plant.toml"
    if health is not None:
        head = f'[plant]\nname = "matrix"\n[health]\nport = {health}\n[viewer]\nport = {health + 7}\n'
        path.write_text(head + "".join(_source(name, port) for name, port in ports.items()))
    for name in ports:
        (config / "tags" / f"{name}.csv").write_text("\n".join(_tags(name, count)) + "\n")


def _source(name: str, port: int) -> str:
    common = f'\n[[source]]\nname = "{name}"\ntags = "tags/{name}.csv"\n'
    if not KINDS[name].node:
        return common + f'kind = "modbus"\naddress = "tcp://127.0.0.1:{port}"\npoll_interval = "{MILLISECONDS}ms"\n'
    # Sampled much faster than it changes, or a value is replaced before it is seen.
    return common + (
        f'kind = "opcua"\naddress = "opc.tcp://127.0.0.1:{port}"\naccept = ["wrong-host"]\nkeep_alive = "10s"\n'
        f'publishing_interval = "500ms"\nsampling_interval = "20ms"\nqueue_size = {QUEUE}\n'
    )


def _tags(name: str, count: int) -> list[str]:
    if KINDS[name].node:
        return ["name,address,kind", *(f"{name}/{t.name},{t.address},{t.kind}" for t in opcua_tags(name, count))]
    units = UNITS if name == "libmodbus" else 1
    return [
        "name,address,type,unit_id",
        *(
            f"{name}/unit{unit}/c{i},holding:{FIRST_REGISTER + 2 * i},float32,{unit}"
            for i in range(count)
            for unit in range(1, units + 1)
        ),
    ]


@asynccontextmanager
async def scene(folder: Path, lengths: Durations, names: Sequence[str] = tuple(PEERS)) -> AsyncIterator[FaultScene]:
    """Peers, relays and the appliance, all connected, inside the block."""
    peers = {name: Peer(name, folder / name, COUNT + 1, *PEERS[name]) for name in names}
    ports = {name: free_port() for name in peers}
    health = free_ports(8)
    state, config = State(folder / "state"), folder / "config"
    async with AsyncExitStack() as stack:
        for peer in peers.values():
            stack.push_async_callback(peer.kill)
        await asyncio.gather(*(peer.start() for peer in peers.values()))
        relays = await stack.enter_async_context(
            running_relays({n: (ports[n], peer.port) for n, peer in peers.items()})
        )
        configure(config, ports, COUNT, health)
        state.claim()
        for name, peer in peers.items():
            if KINDS[name].node:
                (state.trusted / f"{name}.der").write_bytes(await peer.certificate())
        up = running(state.root, "--config", str(config / "plant.toml"))
        appliance = await asyncio.to_thread(up.__enter__)
        stack.push_async_callback(asyncio.to_thread, up.__exit__, None, None, None)
        yield FaultScene(appliance, peers, relays, config, lengths)


async def cells(scene: FaultScene, fault: str) -> list[Cell]:
    """Do one fault, and hold each peer's truth against the table from before it to behind it."""
    state = State(scene.appliance.root)
    reader = state.dsn("reader")
    start = now_us()
    await await_idle(state, reader, None, start)
    await FAULTS[fault](scene)
    await await_idle(state, reader, None, now_us())
    await asyncio.sleep(_BEHIND)
    end = now_us()
    await await_idle(state, reader, None, end)
    return [
        Cell(name, fault, (await compare(peer.truth, reader, start, end, name))["all"])
        for name, peer in scene.peers.items()
        if fault != "overflow" or KINDS[name].node
    ]


def table(outcome: list[Cell]) -> Table:
    """Table to be printed."""
    shown = Table("peer", "fault")
    for column in ("published", "stored", "missing, gap", "missing, no gap", "altered", "doubled", "invented"):
        shown.add_column(column, justify="right")
    for cell in sorted(outcome, key=lambda cell: list(PEERS).index(cell.peer)):
        c = cell.found
        numbers = (
            *(c.published, c.stored, c.missing_recorded, c.missing_silent),
            *(c.altered, c.duplicated, c.invented),
        )
        shown.add_row(cell.peer, cell.fault, *(f"{n:,}" for n in numbers))
    return shown


async def _main(lengths: Durations, names: Sequence[str], faults: Sequence[str]) -> int:
    console = Console(width=120)
    folder = Path(tempfile.mkdtemp(prefix="plantlog-matrix-", dir="/var/tmp"))
    outcome: list[Cell] = []
    try:
        async with scene(folder, lengths, names) as stage:
            for fault in faults:
                began = time.monotonic()
                outcome += await cells(stage, fault)
                console.print(f"{fault}: {time.monotonic() - began:.0f} s")
    finally:
        console.print(table(outcome))
    for cell in outcome:
        for example in cell.found.examples:
            console.print(cell.peer, cell.fault, example, highlight=False, soft_wrap=True)
    if any(cell.wrong for cell in outcome):
        console.print(f"what the peers published is kept in {folder}", highlight=False)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--short", action="store_true", help="with the lengths of the test")
    parser.add_argument("--peer", action="append", choices=PEERS, help="only this one; may be repeated")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this one; may be repeated")
    options = parser.parse_args()
    lengths = SHORT if options.short else FULL
    raise SystemExit(asyncio.run(_main(lengths, options.peer or list(PEERS), options.fault or list(FAULTS))))
