"""Injection and removal of each fault; and a small disk for the spool, a mounted file that can be filled up."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from core.database import connected
from core.errors import OperationError
from core.paths import State
from lab.chaos.plants import PlantProcess
from lab.chaos.schedule import FaultAction, Step
from lab.chaos.stress import busy
from ops.appliance.supervisor import ACTIVE_STATES, Supervisor
from ops.postgres.bootstrap import wait_until_ready
from schema.queries import load
from simulator.relay import Relay

_RESTART_SECONDS = 120.0  # within which the supervisor brings back a process that was killed, however busy the machine
_POLL_SECONDS = 0.05
_MODBUS_DEVICE = "load1"
_FILL = "fill"  # the file that takes the room
_TRY_MEGABYTES = 4
_BLOCK = bytes(1024**2)


@dataclass(frozen=True, slots=True)
class Targets:
    """Targets of the faults."""

    state: State
    plant: PlantProcess
    relays: Mapping[str, Relay]
    owner_dsn: str  # not through a wire


async def inject(step: Step, targets: Targets) -> None:
    """Do a step, and undo it when its time is over or on cancellation."""
    async with _ACTIONS[step.fault.act](step, targets):
        await asyncio.sleep(step.seconds)


@asynccontextmanager
async def _kill(step: Step, targets: Targets) -> AsyncIterator[None]:
    """The supervisor starts it again."""
    os.kill(await _pid(step.fault.on, targets), signal.SIGKILL)
    yield


@asynccontextmanager
async def _suspend(step: Step, targets: Targets) -> AsyncIterator[None]:
    pid = targets.plant.pid if step.fault.on == "plant" else await _pid(step.fault.on, targets)
    parent = psutil.Process(pid)
    suspended = [parent, *parent.children(recursive=True)]  # the database's backends are processes of their own
    try:
        for process in suspended:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        yield
    finally:
        for process in suspended:
            with suppress(psutil.NoSuchProcess):
                process.resume()


@asynccontextmanager
async def _restart(step: Step, targets: Targets) -> AsyncIterator[None]:
    if step.fault.on == "plant":
        await targets.plant.kill()
        try:
            yield
        finally:
            await targets.plant.start()
        return
    await asyncio.to_thread(Supervisor(targets.state).stop_programs, step.fault.on)
    try:
        yield
    finally:
        await asyncio.to_thread(Supervisor(targets.state).start_program, step.fault.on)


@asynccontextmanager
async def interrupted(relays: Sequence[Relay], act: FaultAction) -> AsyncIterator[None]:
    """``cut``: connections are cut and refused inside the block; ``silence``: the network is black-holed."""
    for relay in relays:
        if act == "cut":
            relay.refuse()
        else:
            relay.silence(True)
    try:
        yield
    finally:
        for relay in relays:
            await relay.restore()


@asynccontextmanager
async def _interrupt(step: Step, targets: Targets) -> AsyncIterator[None]:
    async with interrupted([targets.relays[step.fault.on]], step.fault.act):
        yield


@asynccontextmanager
async def _garble(step: Step, targets: Targets) -> AsyncIterator[None]:
    targets.relays[step.fault.on].garble()
    yield


@asynccontextmanager
async def _simulator_fault(step: Step, targets: Targets) -> AsyncIterator[None]:
    target = _MODBUS_DEVICE if step.fault.on == "exception" else "opcua"
    value = step.value if step.fault.values != (0.0, 0.0) or step.fault.on == "lose_messages" else None
    await targets.plant.fail(step.fault.on, target, max(step.seconds, 0.2), value)
    yield


@asynccontextmanager
async def _owner(targets: Targets) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection to a database that the fault before this one may have stopped: its start is waited for."""
    await wait_until_ready(targets.owner_dsn, _RESTART_SECONDS)
    async with connected(targets.owner_dsn, "plantlog chaos") as connection:
        yield connection


@asynccontextmanager
async def _lock(step: Step, targets: Targets) -> AsyncIterator[None]:
    async with _owner(targets) as connection, connection.transaction():
        await connection.execute(load("chaos")["lock_samples"])
        yield


@asynccontextmanager
async def _terminate(step: Step, targets: Targets) -> AsyncIterator[None]:
    async with _owner(targets) as connection:
        await connection.fetch(load("chaos")["terminate_sessions"])
    yield


@asynccontextmanager
async def _fill(step: Step, targets: Targets) -> AsyncIterator[None]:
    await asyncio.to_thread(fill_disk, targets.state.spool)
    try:
        yield
    finally:
        free_disk(targets.state.spool)


@asynccontextmanager
async def _busy(step: Step, targets: Targets) -> AsyncIterator[None]:
    async with busy(int(step.value)):
        yield


_ACTIONS: Mapping[FaultAction, Callable[[Step, Targets], AbstractAsyncContextManager[None]]] = {
    "kill": _kill,
    "suspend": _suspend,
    "restart": _restart,
    "cut": _interrupt,
    "silence": _interrupt,
    "garble": _garble,
    "plant": _simulator_fault,
    "lock": _lock,
    "terminate": _terminate,
    "fill": _fill,
    "busy": _busy,
}


async def _pid(name: str, targets: Targets) -> int:
    """Process id of a supervised process, waited for where it is just coming back."""
    for _ in range(int(_RESTART_SECONDS / _POLL_SECONDS)):
        for process in await asyncio.to_thread(Supervisor(targets.state).processes):
            if process.name == name and process.pid and process.state in ACTIVE_STATES:
                return process.pid
        await asyncio.sleep(_POLL_SECONDS)
    raise OperationError(f"{name} was not restarted within {_RESTART_SECONDS:.0f} s: see {targets.state.log}")


def disk_problem(folder: Path) -> str | None:
    """Reason why there can be none, tried in ``folder``; None: there can."""
    if os.geteuid() != 0:
        return "only root may mount"
    missing = [name for name in ("mkfs.ext4", "mount", "umount") if shutil.which(name) is None]
    if missing:
        return f"{missing[0]} is not installed"
    image, at = folder / "try.img", folder / "try"
    try:
        with mounted_disk(image, at, _TRY_MEGABYTES):
            return None
    except OperationError as error:  # a container may have no loop devices
        return str(error)
    finally:
        image.unlink(missing_ok=True)
        with suppress(OSError):
            at.rmdir()


@contextmanager
def mounted_disk(image: Path, at: Path, megabytes: int) -> Iterator[None]:
    """A disk of that size mounted at ``at`` inside the block. Raises OperationError where that fails."""
    at.mkdir(parents=True, exist_ok=True)
    with image.open("wb") as file:
        file.truncate(megabytes * 1024**2)
    _run_command("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
    _run_command("mount", "-o", "loop", str(image), str(at))
    try:
        shutil.rmtree(at / "lost+found", ignore_errors=True)
        yield
    finally:
        _run_command("umount", "-l", str(at))


def fill_disk(at: Path) -> None:
    """Take all the room that is left."""
    # A disk so full that not even the file can be made is what was wanted.
    with suppress(OSError), (at / _FILL).open("wb", buffering=0) as file:
        size = len(_BLOCK)
        while size:
            try:
                file.write(_BLOCK[:size])
            except OSError:
                size //= 2


def free_disk(at: Path) -> None:
    """Give the room back."""
    (at / _FILL).unlink(missing_ok=True)


def _run_command(*command: str) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise OperationError(f"{' '.join(command)}: {run.stderr.strip()}")
