"""The appliance in a folder of its own, with a plant, relays and a small disk, while the schedule is played."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from core.config import processes, token_file
from core.database import connected
from core.paths import State
from core.timestamps import now_us
from lab.chaos.appliance import plantlog, running_appliance
from lab.chaos.gateway import SOURCE, TEMPLATE, Gateway
from lab.chaos.inject import Targets, disk_problem, inject, mounted_disk
from lab.chaos.plants import NodeOpcua, PlantProcess, Ports, Simulated
from lab.chaos.report import Report
from lab.chaos.schedule import FAULTS, Fault, Step, play, schedule, soak_schedule
from lab.chaos.settling import await_idle, closed, rollups
from lab.chaos.soak import Soak, soaking
from lab.recovery import observe, wait_for_recovery
from ops import ports
from ops.appliance.supervisor import Supervisor
from schema.queries import load
from simulator.compare import compare
from simulator.relay import running_relays

_HOST = "127.0.0.1"
_PORTS = 9 + len(processes.PORTS)
_DISK_MEGABYTES = 96
_CALM_SECONDS = 60.0  # after all faults, until all must be as before
LONG_SECONDS = 120.0  # a run as long has to test what the writer closes
_WARM_UP_US = 3_000_000  # every channel has had its first sample
_DATABASE_CLIENTS = ("writer", "collector-push")  # what speaks to the database


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """The options of ``plantlog lab chaos``."""

    seed: int
    seconds: float
    server: str  # "simulator" or "node-opcua"
    channels: int
    hz: float
    folder: Path
    soak: bool = False  # a fault a minute, while every process is measured


@dataclass(frozen=True, slots=True)
class _Ports:
    """The ports of all that listens."""

    plant: Ports
    push_relay: int
    push: int
    database_relay: int


async def run(options: ChaosOptions, progress: Callable[[str], None]) -> Report:
    """Bring everything up, play the schedule, settle, compare, bring it down. Raises OperationError where it hangs."""
    state, folder = State(options.folder / "state"), options.folder
    port_plan = _choose_ports()
    plant = _plant(options, folder / "plant", port_plan.plant)
    async with AsyncExitStack() as stack:
        no_disk = disk_problem(folder)
        if no_disk is None:
            stack.enter_context(mounted_disk(folder / "spool.img", state.spool, _DISK_MEGABYTES))
        faults, left_out = _available_faults(plant, no_disk)
        plant_relays = {
            "opcua": (port_plan.plant.opcua_relay, port_plan.plant.opcua),
            "push": (port_plan.push_relay, port_plan.push),
        }
        if plant.has_modbus:
            plant_relays["modbus"] = (port_plan.plant.modbus_relay, port_plan.plant.modbus)
        relays = await stack.enter_async_context(running_relays(plant_relays))
        stack.push_async_callback(plant.kill)
        await plant.start()
        token = _configure(plant, folder / "config", port_plan)
        await _trust(plant, state)
        progress("plant is running; starting the appliance")
        await stack.enter_async_context(running_appliance(state, folder / "config" / "plant.toml"))
        owner = state.dsn("owner")
        database_relays = await stack.enter_async_context(
            running_relays({"database": (port_plan.database_relay, _port(owner))})
        )
        stack.push_async_callback(plantlog, state, "down")  # while the writer still reaches the database: it drains
        await _route_through_relay(state, port_plan.database_relay)
        targets = Targets(state, plant, {**relays, **database_relays}, owner)
        gateway = Gateway([f"http://{_HOST}:{port_plan.push_relay}"], token, plant.truth)
        pushing = asyncio.create_task(gateway.run())
        stack.push_async_callback(cancel, pushing)
        reader = state.dsn("reader")
        await await_idle(state, reader, gateway, now_us())
        start = now_us() + _WARM_UP_US
        steps = (soak_schedule if options.soak else schedule)(options.seed, options.seconds, faults)
        async with soaking(state) if options.soak else nullcontext() as soak:
            await play(steps, options.seconds, partial(_inject, targets=targets, soak=soak), progress)
        for relay in targets.relays.values():
            await relay.restore()
        end = now_us()
        progress("faults are over; waiting until pending data are stored")
        settled = await await_idle(state, reader, gateway, end + 1_000_000)
        during = await closed(reader)  # the database answers
        period = 1 / options.hz if isinstance(plant, Simulated) else None
        after = await wait_for_recovery(lambda: observe(state), time.monotonic(), period, _CALM_SECONDS)
        measured = None if soak is None else soak.result(until=time.time())  # what is logged later is about no fault
        for line in () if measured is None else measured.lines():
            progress(line)
        gaps, quarantined = await gaps_and_quarantine(reader)
        progress("waiting for the rollups")
        # What was published by ``end`` is stored: the comparisons need no plant.
        rollup_result = await rollups(reader, during, end, options.seconds >= LONG_SECONDS, plant.kill)
        progress("comparing the table with the ground truth")
        # In a thread with a loop of its own: this one runs the relays.
        compared = await asyncio.to_thread(asyncio.run, compare(plant.truth, reader, start, end))
        return Report(
            options.seed,
            options.seconds,
            options.server,
            compared,
            steps,
            gaps,
            quarantined,
            settled,
            gateway.refused,
            left_out,
            after.seconds,
            after.remaining,
            rollup_result,
            soak=measured,
        )


async def _inject(step: Step, targets: Targets, soak: Soak | None) -> None:
    with nullcontext() if soak is None else soak.fault():
        await inject(step, targets)


def _choose_ports() -> _Ports:
    first = ports.free_ports(_PORTS)
    plant = Ports(first, first + 1, first + 2, first + 3, control=first + 4, viewer=first + 5, health=first + 6)
    database_relays = first + 6 + len(processes.PORTS)
    return _Ports(plant, push_relay=database_relays, push=database_relays + 1, database_relay=database_relays + 2)


def _plant(options: ChaosOptions, folder: Path, port_plan: Ports) -> PlantProcess:
    if options.server == "node-opcua":
        return NodeOpcua(folder, port_plan)
    return Simulated(folder, port_plan, options.channels, options.hz)


def _available_faults(plant: PlantProcess, no_disk: str | None) -> tuple[list[Fault], list[str]]:
    """The faults that this plant and this machine can have, and which not, with the reason."""
    reasons: dict[Fault, str] = {}
    for fault in FAULTS:
        if fault.act == "fill" and no_disk is not None:
            reasons[fault] = no_disk
        elif "modbus" in (fault.on, fault.on.removeprefix("collector-")) or fault.on == "exception":
            if not plant.has_modbus:
                reasons[fault] = "the plant has no Modbus device"
        elif fault.act == "plant" and not isinstance(plant, Simulated):
            reasons[fault] = "the simulator injects it, and this is another server"
    return [f for f in FAULTS if f not in reasons], [f"{f.name}: {why}" for f, why in reasons.items()]


def _configure(plant: PlantProcess, config: Path, port_plan: _Ports) -> str:
    """Write the plant's configuration, with the gateway; its token."""
    plant.configure(config)
    token = secrets.token_urlsafe(24)
    token_file.write(config / "gateway.token", token)
    with (config / "plant.toml").open("a") as file:
        file.write(
            f'\n[writer]\ntime_out = "10s"\n\n[push]\nport = {port_plan.push}\n\n'
            f'[[source]]\nname = "{SOURCE}"\nkind = "push"\ntoken_file = "gateway.token"\n'
            f'channel = "{TEMPLATE}"\nunknown = "create"\n'
        )
    return token


async def _route_through_relay(state: State, port: int) -> None:
    """Whoever writes goes through the wire to the database from now on."""
    parts = urlsplit(state.dsn("ingest"))
    state.dsn_file("ingest").write_text(urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}")))
    for name in _DATABASE_CLIENTS:
        await asyncio.to_thread(Supervisor(state).stop_programs, name)
        await asyncio.to_thread(Supervisor(state).start_program, name)


async def _trust(plant: PlantProcess, state: State) -> None:
    """Trust the server, as an operator does."""
    if (certificate := await plant.certificate()) is not None:
        state.trusted.mkdir(parents=True, exist_ok=True)
        (state.trusted / "plant.der").write_bytes(certificate)


async def gaps_and_quarantine(dsn: str) -> tuple[list[dict[str, object]], int]:
    """The gaps on record, by reason, and the number of rows in quarantine."""
    async with connected(dsn, "plantlog chaos") as connection:
        gaps = [dict(row) for row in await connection.fetch(load("chaos")["select_gap_totals"])]
        return gaps, await connection.fetchval(load("chaos")["count_quarantined"])


async def cancel(task: asyncio.Task[None]) -> None:
    """Cancel, and wait until it has ended."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _port(dsn: str) -> int:
    port = urlsplit(dsn).port
    assert port is not None
    return port
