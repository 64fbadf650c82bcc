"""Heartbeat of a state folder in the database: a copy of it that is started at the same time is refused.

A running state folder writes its identity every 10 s. The identity changes when the host restarts, so a conflict is
reported only if another one keeps writing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from core.errors import OperationError
from core.installation import Installation
from core.paths import State
from ops.registration.installation import installation_id
from schema.queries import load

_TIMEOUT = 30.0  # after which nobody is there
_POLL_SECONDS = 1.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def location(state: State) -> str:
    """Machine and state folder."""
    return f"{socket.gethostname()}:{state.root.resolve()}"


def _folder_id(state: State) -> str:
    status = state.root.stat()
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return f"{boot}:{status.st_dev}:{status.st_ino}"


async def record(connection: asyncpg.Connection[Any], state: State) -> None:
    """Write the heartbeat. Raises OperationError if another folder of this installation is running.

    The members of a redundant pair both do: the first one is what others see.
    """
    queries, identity = load("installation"), (location(state), _folder_id(state), _TIMEOUT)
    if not await connection.fetchval(queries["upsert_presence"], installation_id(state), *identity):
        other = await connection.fetchrow(queries["select_presence"], installation_id(state))
        if other is not None and not await connection.fetch(load("pair")["select_members"], installation_id(state)):
            raise OperationError(_conflict_message(state, other))


async def check(connection: asyncpg.Connection[Any], state: State, progress: Callable[[str], None]) -> None:
    """Raise OperationError, with nothing changed, if another folder of this installation is running."""
    if not await connection.fetchval(load("installation")["has_tables"]):
        return
    running = await _runs_elsewhere(
        connection, installation_id(state), _folder_id(state), "this installation", progress
    )
    if running is not None:
        raise OperationError(_conflict_message(state, running))


async def check_gone(connection: asyncpg.Connection[Any], other: Installation, progress: Callable[[str], None]) -> None:
    """Raise OperationError if an installation that is to be taken over is running."""
    running = await _runs_elsewhere(connection, other.id, "", f"installation {other.id}", progress)
    if running is not None:
        raise OperationError(
            f"{other} is running, and cannot be taken over: stop it with `plantlog down`; if its machine is dead, "
            f"try again in {_TIMEOUT:.0f} s"
        )


async def _runs_elsewhere(
    connection: asyncpg.Connection[Any], installation: UUID, folder: str, name: str, progress: Callable[[str], None]
) -> Any:
    """The presence of an installation in another folder, which it still updates; None: there is none."""
    queries = load("installation")
    first = other = await connection.fetchrow(queries["select_presence"], installation)
    while other is not None and other["folder"] != folder and other["age"] < _TIMEOUT:
        if first is None or other["seen_at"] != first["seen_at"]:
            return other
        if other is first:
            progress(f"{name} was active in {other['place']} {other['age']:.0f} s ago; checking whether it is")
        await asyncio.sleep(_POLL_SECONDS)
        other = await connection.fetchrow(queries["select_presence"], installation)
    return None


def _conflict_message(state: State, other: Any) -> str:
    return (
        f"this installation runs in {other['place']} (seen {other['age']:.0f} s ago), and {state.root} is a copy of "
        "its state folder. Stop the other one with `plantlog down`; or, for a second plant, "
        f"delete {state.installation} here; its sources and channels need names of their own"
    )
