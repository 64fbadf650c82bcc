"""How each fault is done, and undone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import asyncpg
import psutil

from ingest.errors import OperationError
from ops.bench.overload.strains import busy
from ops.chaos import disk
from ops.chaos.plants import PlantProcess
from ops.chaos.schedule import Act, Step
from ops.chaos.wires import whole
from ops.paths import State
from ops.postgres.bootstrap import until_it_answers
from ops.supervisor import STARTED, Supervisor
from schema.queries import load
from simulator.relay import Relay

_START_SECONDS = 120.0  # within which the supervisor brings back a process that was killed, however busy the machine
_LOOK_SECONDS = 0.05
_MODBUS_DEVICE = "load1"


@dataclass(frozen=True, slots=True)
class Scene:
    """All that faults are done to."""

    state: State
    plant: PlantProcess
    wires: Mapping[str, Relay]
    owner_dsn: str  # not through a wire


async def act(step: Step, scene: Scene) -> None:
    """Do a step, and undo it when its time is over or on cancellation."""
    async with _ACTS[step.fault.act](step, scene):
        await asyncio.sleep(step.seconds)


@asynccontextmanager
async def _kill(step: Step, scene: Scene) -> AsyncIterator[None]:
    """The supervisor starts it again."""
    os.kill(await _pid(step.fault.on, scene), signal.SIGKILL)
    yield


@asynccontextmanager
async def _suspend(step: Step, scene: Scene) -> AsyncIterator[None]:
    pid = scene.plant.pid if step.fault.on == "plant" else await _pid(step.fault.on, scene)
    parent = psutil.Process(pid)
    stopped = [parent, *parent.children(recursive=True)]  # the database's backends are processes of their own
    try:
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        yield
    finally:
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.resume()


@asynccontextmanager
async def _restart(step: Step, scene: Scene) -> AsyncIterator[None]:
    if step.fault.on == "plant":
        await scene.plant.kill()
        try:
            yield
        finally:
            await scene.plant.start()
        return
    await asyncio.to_thread(Supervisor(scene.state).stop_program, step.fault.on)
    try:
        yield
    finally:
        await asyncio.to_thread(Supervisor(scene.state).start_program, step.fault.on)


@asynccontextmanager
async def _cut(step: Step, scene: Scene) -> AsyncIterator[None]:
    relay = scene.wires[step.fault.on]
    relay.refuse()
    try:
        yield
    finally:
        await whole(relay)


@asynccontextmanager
async def _silence(step: Step, scene: Scene) -> AsyncIterator[None]:
    relay = scene.wires[step.fault.on]
    relay.silence(True)
    try:
        yield
    finally:
        await whole(relay)


@asynccontextmanager
async def _garble(step: Step, scene: Scene) -> AsyncIterator[None]:
    scene.wires[step.fault.on].garble()
    yield


@asynccontextmanager
async def _plant(step: Step, scene: Scene) -> AsyncIterator[None]:
    target = _MODBUS_DEVICE if step.fault.on == "exception" else "opcua"
    value = step.value if step.fault.values != (0.0, 0.0) or step.fault.on == "lose_messages" else None
    await scene.plant.fail(step.fault.on, target, max(step.seconds, 0.2), value)
    yield


async def _owner(scene: Scene) -> asyncpg.Connection[Any]:
    """A connection to a database that the fault before this one may have stopped: its start is waited for."""
    await until_it_answers(scene.owner_dsn, _START_SECONDS)
    return await asyncpg.connect(scene.owner_dsn)


@asynccontextmanager
async def _lock(step: Step, scene: Scene) -> AsyncIterator[None]:
    connection = await _owner(scene)
    try:
        async with connection.transaction():
            await connection.execute(load("chaos")["lock"])
            yield
    finally:
        connection.terminate()


@asynccontextmanager
async def _terminate(step: Step, scene: Scene) -> AsyncIterator[None]:
    connection = await _owner(scene)
    try:
        await connection.fetch(load("chaos")["terminate"])
    finally:
        connection.terminate()
    yield


@asynccontextmanager
async def _fill(step: Step, scene: Scene) -> AsyncIterator[None]:
    await asyncio.to_thread(disk.fill, scene.state.spool)
    try:
        yield
    finally:
        disk.free(scene.state.spool)


@asynccontextmanager
async def _busy(step: Step, scene: Scene) -> AsyncIterator[None]:
    async with busy(int(step.value)):
        yield


_ACTS: Mapping[Act, Callable[[Step, Scene], AbstractAsyncContextManager[None]]] = {
    "kill": _kill,
    "suspend": _suspend,
    "restart": _restart,
    "cut": _cut,
    "silence": _silence,
    "garble": _garble,
    "plant": _plant,
    "lock": _lock,
    "terminate": _terminate,
    "fill": _fill,
    "busy": _busy,
}


async def _pid(name: str, scene: Scene) -> int:
    """Of a supervised process, waited for where it is just coming back."""
    for _ in range(int(_START_SECONDS / _LOOK_SECONDS)):
        for process in await asyncio.to_thread(Supervisor(scene.state).processes):
            if process.name == name and process.pid and process.state in STARTED:
                return process.pid
        await asyncio.sleep(_LOOK_SECONDS)
    raise OperationError(f"{name} did not come back within {_START_SECONDS:.0f} s: see {scene.state.log}")
