"""The questions of ``plantlog ask``, each put to the database and to the archive over the same samples."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from ops.forensics import portions
from ops.forensics.archived import Asked, over_archive
from ops.paths import State
from ops.sql.limits import Limits
from schema.forensics import duckdb_forms, questions
from schema.queries import load

NAMES = tuple(duckdb_forms())
_HOURS = timedelta(hours=22)  # of a day of samples: some questions learn from hours before
_BEFORE = timedelta(hours=2)


def _arguments(name: str, day: datetime, target: str) -> str:
    """As JSON. ``target``: the channel that correlation is about."""
    since, until = day + _BEFORE, day + _BEFORE + _HOURS
    if name == "what_changed":  # it reads as long before
        since = until - _HOURS / 2
    found = {"since": since.isoformat(), "until": until.isoformat()}
    if any(one.name == "target" for one in questions()[name].parameters):
        found["target"] = target
    return json.dumps(found)


def samples(channels: int) -> int:
    """How many samples at 1 Hz a question reads, without what it learns from before."""
    return channels * int(_HOURS.total_seconds())


async def of_database(connection: asyncpg.Connection[Any], name: str, day: datetime, target: str) -> int:
    """Ask the database; the number of rows."""
    call = await connection.fetchval(load("ask")["format_call"], name, _arguments(name, day, target))
    return len(await connection.fetch(call))


async def prepared(connection: asyncpg.Connection[Any], day: datetime, target: str) -> list[Asked]:
    """The questions as the archive is asked them, once retention has dropped the samples."""
    found = [await over_archive(connection, questions()[name], _arguments(name, day, target), None) for name in NAMES]
    return [one for one in found if one is not None]


def of_archive(state: State, asked: Asked, limits: Limits) -> int:
    """Ask the archive; the number of rows. Raises OperationError."""
    _, rows = portions.answer(state, asked, limits)
    return len(rows)
