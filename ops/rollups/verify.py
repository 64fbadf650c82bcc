"""``plantlog verify rollups``: make the rollups anew, without writing them, and compare them to the bit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from ingest.errors import DatabaseError
from ops.paths import State
from ops.spool.kept_out import dsn
from schema.queries import load

_CONNECT_SECONDS = 10.0
_CHANNELS = 100  # at a time
_HOUR = timedelta(hours=1)
_DAY = timedelta(hours=24)
_KEY = ("channel_id", "bucket", "state")
_CARRIED = ("area", "known")  # columns that depend on what was before the bucket


@dataclass(frozen=True, slots=True)
class Difference:
    """One column of one bucket that is not what its samples give; None: there is no such row, or it is NULL there."""

    relation: str  # samples_1m, samples_1h, states_1m, states_1h
    channel: str
    bucket: datetime
    state: float | None  # of states_1m and states_1h
    column: str  # "row": the row is missing, or should not be there
    found: Any
    expected: Any


@dataclass(frozen=True, slots=True)
class Verified:
    """What was compared, and every difference."""

    days: int
    channels: int
    differences: list[Difference]


def verify_rollups(state: State, since: datetime | None = None, until: datetime | None = None) -> Verified:
    """Compare the rollups of all days (UTC) from that of ``since`` up to ``until``; None: no bound.

    What is waiting to be made anew, and what is older than the oldest sample, is not compared.
    Raises DatabaseError where the database does not answer.
    """
    try:
        return asyncio.run(verify_at(dsn(state, "reader"), since, until))
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise DatabaseError(f"the database does not answer: {str(error) or type(error).__name__}") from error


async def verify_at(where: str, since: datetime | None = None, until: datetime | None = None) -> Verified:
    """The same, of the database at a DSN."""
    # The reader's statement_timeout is for people at a chart.
    settings = {"jit": "off", "timezone": "UTC", "statement_timeout": "0", "application_name": "plantlog verify"}
    connection = await asyncpg.connect(where, timeout=_CONNECT_SECONDS, server_settings=settings)
    try:
        return await verify(connection, since, until)
    finally:
        connection.terminate()


async def verify(
    connection: asyncpg.Connection[Any],
    since: datetime | None = None,
    until: datetime | None = None,
    some: Sequence[asyncpg.Record] | None = None,
) -> Verified:
    """The same on a connection that may read. ``some``: of these channels alone, as section ``channels`` gives them."""
    queries = load("rollups")
    days = [row["day"] for row in await connection.fetch(queries["days"], since, until)]
    channels = some if some is not None else await connection.fetch(queries["channels"])
    differences: list[Difference] = []
    for day in days:
        for first in range(0, len(channels), _CHANNELS):
            part = channels[first : first + _CHANNELS]
            ids, discrete = [c["id"] for c in part], [c["id"] for c in part if c["discrete"]]
            differences += await _day(connection, day, ids, discrete)
    return Verified(len(days), len(channels), differences)


async def _day(
    connection: asyncpg.Connection[Any], day: datetime, channels: Sequence[int], discrete: Sequence[int]
) -> list[Difference]:
    """The differences of some channels on one day; ``discrete`` are those of them that have states."""
    queries = load("rollups")
    asked: list[tuple[str, str, tuple[object, ...]]] = [
        ("samples_1m", "minutes", (channels, day, day + _DAY)),
        *(("samples_1h", "hours", (channels, day + i * _HOUR)) for i in range(24)),
    ]
    if discrete:
        asked.append(("states_1m", "state_minutes", (discrete, day, day + _DAY)))
        asked += [("states_1h", "state_hours", (discrete, day + i * _HOUR)) for i in range(24)]
    found: list[Difference] = []
    for relation, query, arguments in asked:
        if rows := await connection.fetch(queries[query], *arguments):
            names = {row["id"]: row["name"] for row in await connection.fetch(queries["names"], channels)}
            for row in rows:
                found += _differences(relation, names.get(row["channel_id"], f"channel {row['channel_id']}"), row)
    return found


def _differences(relation: str, channel: str, row: asyncpg.Record) -> list[Difference]:
    """Column by column."""
    state = row.get("state")
    if row["found"] is None or row["expected"] is None:
        there = row["found"] is not None
        return [Difference(relation, channel, row["bucket"], state, "row", there or None, not there or None)]
    found, expected = json.loads(row["found"]), json.loads(row["expected"])
    return [
        Difference(relation, channel, row["bucket"], state, column, found[column], expected[column])
        for column in expected
        if column not in _KEY and found[column] != expected[column] and not (row["first_of_all"] and column in _CARRIED)
    ]
