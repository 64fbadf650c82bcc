"""One state folder of an installation runs at a time: a copy that is started beside it is refused.

A folder that runs says so in the database every 10 s, and which it is. After its host was started again it is another,
so what counts is whether somebody else goes on saying so.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg

from ingest.errors import OperationError
from ops.installation import own
from ops.paths import State
from schema.queries import load

_SILENT_SECONDS = 30.0  # after which nobody is there
_LOOK_SECONDS = 1.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def _place(state: State) -> str:
    return f"{socket.gethostname()}:{state.root.resolve()}"


def _folder(state: State) -> str:
    found = state.root.stat()
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return f"{boot}:{found.st_dev}:{found.st_ino}"


async def say(connection: asyncpg.Connection[Any], state: State) -> None:
    """Put on record that we run. Raises OperationError where another folder of this installation does."""
    queries, said = load("installation"), (_place(state), _folder(state), _SILENT_SECONDS)
    if not await connection.fetchval(queries["say_present"], own(state), *said):
        other = await connection.fetchrow(queries["present"], own(state))
        if other is not None:
            raise OperationError(_refusal(state, other))


async def check(connection: asyncpg.Connection[Any], state: State, tell: Callable[[str], None]) -> None:
    """Raise OperationError, with nothing changed, where another folder of this installation runs."""
    queries = load("installation")
    if not await connection.fetchval(queries["presence_is_kept"]):
        return
    first = other = await connection.fetchrow(queries["present"], own(state))
    while other is not None and other["folder"] != _folder(state) and other["age"] < _SILENT_SECONDS:
        if first is None or other["seen_at"] != first["seen_at"]:
            raise OperationError(_refusal(state, other))
        if other is first:
            tell(
                f"this installation was seen in {other['place']} {other['age']:.0f} s ago: waiting for whether it runs"
            )
        await asyncio.sleep(_LOOK_SECONDS)
        other = await connection.fetchrow(queries["present"], own(state))


def _refusal(state: State, other: Any) -> str:
    return (
        f"this installation runs in {other['place']} (seen {other['age']:.0f} s ago), and {state.root} is a copy of "
        "its state folder: both would write as one. Stop the other with `plantlog down`; or, for a second plant, "
        f"remove {state.installation} here, and give it a database of its own"
    )
