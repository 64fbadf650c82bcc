"""The appliance in a folder of its own, with a plant, wires and a small disk, while the schedule is played."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from ingest import processes
from ingest.batch import now_us
from ops import ports
from ops.chaos import disk
from ops.chaos.act import Scene, act
from ops.chaos.appliance import appliance
from ops.chaos.gateway import SOURCE, TEMPLATE, Gateway
from ops.chaos.plants import NodeOpcua, PlantProcess, Ports, Simulated
from ops.chaos.report import Report
from ops.chaos.rollups import closed, rollups
from ops.chaos.schedule import FAULTS, Fault, Step, schedule
from ops.chaos.settle import settle
from ops.chaos.wires import whole, wired
from ops.overload.calm import as_before, look
from ops.paths import State
from ops.supervisor import Supervisor
from schema.queries import load
from simulator.compare import compare

_HOST = "127.0.0.1"
_PORTS = 9 + len(processes.PORTS)
_DISK_MEGABYTES = 96
_CALM_SECONDS = 60.0  # after all faults, until all must be as before
_WARM_UP_US = 3_000_000  # every channel has had its first sample
_BEHIND = ("writer", "collector-push")  # what speaks to the database


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of ``plantlog chaos``."""

    seed: int
    seconds: float
    server: str  # "simulator" or "node-opcua"
    channels: int
    hz: float
    folder: Path


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The ports of all that listens."""

    plant: Ports
    push_wire: int
    push: int
    database_wire: int


async def run(asked: Asked, say: Callable[[str], None]) -> Report:
    """Bring everything up, play the schedule, settle, compare, bring it down. Raises OperationError where it hangs."""
    state, work = State(asked.folder / "state"), asked.folder
    numbers = _numbers()
    plant = _plant(asked, work / "plant", numbers.plant)
    async with AsyncExitStack() as stack:
        why_no_disk = disk.possible(work)
        if why_no_disk is None:
            stack.enter_context(disk.mounted(work / "spool.img", state.spool, _DISK_MEGABYTES))
        faults, left_out = _possible(plant, why_no_disk)
        plant_wires = {
            "opcua": (numbers.plant.opcua_wire, numbers.plant.opcua),
            "push": (numbers.push_wire, numbers.push),
        }
        if plant.has_modbus:
            plant_wires["modbus"] = (numbers.plant.modbus_wire, numbers.plant.modbus)
        wires = await stack.enter_async_context(wired(plant_wires))
        stack.push_async_callback(plant.kill)
        await plant.start()
        token = _configure(plant, work / "config", numbers)
        await _trust(plant, state)
        say("the plant serves; bringing the appliance up")
        await stack.enter_async_context(appliance(state, work / "config" / "plant.toml"))
        owner = state.dsn_file("owner").read_text().strip()
        behind = await stack.enter_async_context(wired({"database": (numbers.database_wire, _port(owner))}))
        await _behind_the_wire(state, numbers.database_wire)
        scene = Scene(state, plant, {**wires, **behind}, owner)
        gateway = Gateway(f"http://{_HOST}:{numbers.push_wire}", token, plant.truth)
        pushing = asyncio.create_task(gateway.run())
        stack.push_async_callback(_ended, pushing)
        reader = state.dsn_file("reader").read_text().strip()
        await settle(state, reader, gateway, now_us())
        start = now_us() + _WARM_UP_US
        steps = schedule(asked.seed, asked.seconds, faults)
        await _play(steps, asked.seconds, scene, say)
        for relay in scene.wires.values():
            await whole(relay)
        end = now_us()
        during = await closed(reader)
        say("the faults are over; waiting until what they held up has landed")
        settled = await settle(state, reader, gateway, end + 1_000_000)
        period = 1 / asked.hz if isinstance(plant, Simulated) else None
        after = await as_before(lambda: look(state), time.monotonic(), period, _CALM_SECONDS)
        compared = await compare(plant.truth, reader, start, end)
        gaps, quarantined = await _on_record(reader)
        say("waiting until the rollups are made")
        of_rollups = await rollups(reader, during, end)
        return Report(
            asked.seed,
            asked.seconds,
            asked.server,
            compared,
            steps,
            gaps,
            quarantined,
            settled,
            gateway.refused,
            left_out,
            after.seconds,
            after.left,
            of_rollups,
        )


def _numbers() -> _Numbers:
    first = ports.free_ports(_PORTS)
    plant = Ports(first, first + 1, first + 2, first + 3, control=first + 4, viewer=first + 5, health=first + 6)
    behind = first + 6 + len(processes.PORTS)
    return _Numbers(plant, push_wire=behind, push=behind + 1, database_wire=behind + 2)


def _plant(asked: Asked, folder: Path, numbers: Ports) -> PlantProcess:
    if asked.server == "node-opcua":
        return NodeOpcua(folder, numbers)
    return Simulated(folder, numbers, asked.channels, asked.hz)


def _possible(plant: PlantProcess, why_no_disk: str | None) -> tuple[list[Fault], list[str]]:
    """The faults that this plant and this machine can have, and which not, with the reason."""
    reasons: dict[Fault, str] = {}
    for fault in FAULTS:
        if fault.act == "fill" and why_no_disk is not None:
            reasons[fault] = why_no_disk
        elif "modbus" in (fault.on, fault.on.removeprefix("collector-")) or fault.on == "exception":
            if not plant.has_modbus:
                reasons[fault] = "the plant has no Modbus device"
        elif fault.act == "plant" and not isinstance(plant, Simulated):
            reasons[fault] = "the server is not ours to tell"
    return [f for f in FAULTS if f not in reasons], [f"{f.name}: {why}" for f, why in reasons.items()]


def _configure(plant: PlantProcess, config: Path, numbers: _Numbers) -> str:
    """Write the plant's configuration, with the gateway; its token."""
    plant.configure(config)
    token = secrets.token_urlsafe(24)
    (config / "gateway.token").touch(mode=0o600)
    (config / "gateway.token").write_text(token + "\n")
    with (config / "plant.toml").open("a") as file:
        file.write(
            f'\n[writer]\ntime_out = "10s"\n\n[push]\nport = {numbers.push}\n\n'
            f'[[source]]\nname = "{SOURCE}"\nkind = "push"\ntoken_file = "gateway.token"\n'
            f'channel = "{TEMPLATE}"\nunknown = "create"\n'
        )
    return token


async def _behind_the_wire(state: State, port: int) -> None:
    """Whoever writes goes through the wire to the database from now on."""
    path = state.dsn_file("ingest")
    parts = urlsplit(path.read_text().strip())
    path.write_text(urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}")))
    for name in _BEHIND:
        await asyncio.to_thread(Supervisor(state).stop_program, name)
        await asyncio.to_thread(Supervisor(state).start_program, name)


async def _trust(plant: PlantProcess, state: State) -> None:
    """Trust the server, as an operator does."""
    if (certificate := await plant.certificate()) is not None:
        state.trusted.mkdir(parents=True, exist_ok=True)
        (state.trusted / "plant.der").write_bytes(certificate)


async def _play(steps: Sequence[Step], seconds: float, scene: Scene, say: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()

    async def at_its_time(step: Step) -> None:
        await asyncio.sleep(max(0.0, started + step.at - loop.time()))
        async with lanes[step.fault.lane]:  # what took longer than planned holds up the next one, not the other lanes
            value = f" ({step.value:+.0f})" if step.value else ""
            length = f", {step.seconds:.1f} s" if step.seconds else ""
            say(f"{loop.time() - started:7.1f} s  {step.fault.name}{value}{length}")
            await act(step, scene)

    lanes = {step.fault.lane: asyncio.Lock() for step in steps}
    async with asyncio.TaskGroup() as group:
        for step in steps:
            group.create_task(at_its_time(step))
        group.create_task(asyncio.sleep(seconds))


async def _on_record(dsn: str) -> tuple[list[dict[str, object]], int]:
    connection = await asyncpg.connect(dsn)
    try:
        gaps = [dict(row) for row in await connection.fetch(load("chaos")["gaps"])]
        return gaps, await connection.fetchval(load("chaos")["quarantined"])
    finally:
        await connection.close()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _port(dsn: str) -> int:
    port = urlsplit(dsn).port
    assert port is not None
    return port
