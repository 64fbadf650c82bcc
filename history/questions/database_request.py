"""A question about the samples of an appliance, by its database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg

from core.database import connected, database_errors
from core.errors import OperationError
from core.installation import chosen
from core.paths import State
from core.patterns import no_match
from core.timestamps import HOUR_US, microseconds, timestamp
from history.questions.request import Request, first_read, named_channels
from history.questions.values import Cast, cast_query, parse_values
from schema.queries import load
from schema.question_files import Question

_LIVE_RATE = 1.0  # samples a second of a channel, where nothing tells
_HOURS = 8  # that tell the rate, where no archived day does


async def request_of(
    state: State, question: Question, arguments: Mapping[str, str], patterns: Sequence[str] | None, installation: str
) -> Request:
    """A request about an appliance. ``installation``: as of :func:`core.installation.chosen`; the others as of
    :func:`prepare`. Raises OperationError, DatabaseError."""
    with database_errors():
        try:
            async with connected(state.dsn("reader"), "plantlog ask") as connection:
                number = await chosen(connection, installation)
                return await prepare(connection, question, arguments, patterns, number)
        except asyncpg.DataError as error:
            raise OperationError(f"{question.name}: {error}") from error


async def prepare(
    connection: asyncpg.Connection[Any],
    question: Question,
    arguments: Mapping[str, str],
    patterns: Sequence[str] | None,
    installation: UUID | None,
    *,
    strict: bool = True,
) -> Request:
    """A request; the session gets the setting plant.installation.

    ``arguments``: parameters as their types are written, which the database parses; the others have their defaults.
    ``patterns``: of channels; None: all. ``installation``: None: all. ``strict``: whether it is an error if no channel
    matches, or if samples that the question reads are nowhere any more.

    Raises OperationError for that, and for a value that is not legal; asyncpg.DataError for an impossible pattern.
    """
    queries = load("ask")
    await connection.execute(queries["set_installation"], installation)
    named = named_channels(question, arguments, patterns)
    rows = await connection.fetch(queries["select_unmatched_patterns"], list(named))
    if strict and (unmatched := [row["pattern"] for row in rows]):
        raise no_match(", ".join({named[one]: None for one in unmatched}), unmatched)
    values = {**await parse_values(cast_by_postgresql(connection), question, arguments), "channels": patterns}
    first, until = first_read(question, values), values["until"]
    lost = await connection.fetch(queries["select_lost_days"], first, until, patterns) if strict else []
    if lost:
        raise OperationError(
            f"{question.name}: retention dropped samples of {_days(lost)}, which are not archived: ask for a time "
            f"after that (it reads from {first.isoformat()} on), or for other channels by --channel"
        )
    archived = await connection.fetch(queries["select_archived_days"], first, until)
    n = max(1, await connection.fetchval(queries["count_channels"]))
    rate = max((row["samples"] / 86400 / n for row in archived), default=0.0)
    if not rate:
        some = [microseconds(first + (until - first) * number / _HOURS) for number in range(_HOURS)]
        hours = [timestamp(time - time % HOUR_US) for time in some]
        rate = await connection.fetchval(queries["select_packed_rate"], hours) or _LIVE_RATE
    channels = await connection.fetch(queries["select_portions"], patterns)
    names = [(row["name"], row["unit_path"]) for row in channels]
    return Request(question, values, first, names, rate, installation, bool(archived))


def cast_by_postgresql(connection: asyncpg.Connection[Any]) -> Cast:
    """A cast by a database."""

    async def cast(kind: str, text: str) -> Any:
        if not await connection.fetchval(load("ask")["is_valid"], text, kind):
            raise ValueError(text)
        return await connection.fetchval(cast_query(kind), text)

    return cast


def _days(rows: Sequence[asyncpg.Record]) -> str:
    days = [row["day"] for row in rows]
    return str(days[0]) if len(days) == 1 else f"{len(days)} days from {days[0]} to {days[-1]}"
