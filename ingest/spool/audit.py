"""The audit trail: what people do becomes events of the type ``user_action``.

A record is durable in a spool of its own before it counts, so that the database may be away. The writer writes it
like any other batch, and the day's seal covers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from core.batch import NO_SOURCE, Event, EventBatch
from core.errors import OperationError, SpoolError
from core.installation import installation_of
from core.timestamps import iso, now_us
from core.users.directory import AUDIT_SPOOL
from ingest.spool.append import Spool

Outcome: TypeAlias = Literal[
    "begun",  # it is durable that the action begins; what became of it follows
    "done",
    "failed",
    "refused",  # the role does not allow it, or the password is wrong
]
_MAX_BYTES = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class Person:
    """Person or process that acts."""

    user: str | None  # None: a name that is not known, which may be a password
    role: str | None  # None: no user, or root
    account: str | None  # of the operating system; None: it is not known
    host: str  # the machine, or the address that a request came from


@dataclass(frozen=True, slots=True)
class Action:
    """Action of somebody, without secrets."""

    name: str  # a command of plantlog such as ``alarms ack``, or of the viewer
    arguments: Mapping[str, str]
    outcome: Outcome
    error: str = ""
    began_at: int | None = None  # µs


def record(state: Path, person: Person, action: Action) -> None:
    """Return once it is on disk, however the database is. Not to be called in an event loop.

    Raises OperationError where it can't be made durable.
    """
    try:
        asyncio.run(_append(state / "spool" / AUDIT_SPOOL, _event(person, action, installation_of(state))))
    except (SpoolError, OSError) as error:
        raise OperationError(f"the action can't be recorded in the audit trail: {error}") from error


async def _append(path: Path, event: Event) -> None:
    spool = Spool(path, _MAX_BYTES)
    try:
        await spool.append(EventBatch(NO_SOURCE, event.time, (event,)))
    finally:
        await spool.close()


def _event(person: Person, action: Action, installation: object) -> Event:
    who = person.user or "an unknown user"
    command = " ".join((action.name, *(f"{name}={value}" for name, value in action.arguments.items())))
    outcome = "" if action.outcome == "done" else f": {action.outcome}"
    because = f": {action.error}" if action.error else ""
    detail = {
        "user": person.user,
        "role": person.role,
        "account": person.account,
        "host": person.host,
        "action": action.name,
        "arguments": dict(action.arguments),
        "outcome": action.outcome,
        **({"error": action.error} if action.error else {}),
        **({"began_at": iso(action.began_at)} if action.began_at is not None else {}),
        **({"installation": str(installation)} if installation is not None else {}),
    }
    return Event("user_action", now_us(), text=f"{who}: {command}{outcome}{because}", detail=detail)
