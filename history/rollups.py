"""``plantlog evidence verify rollups``: recompute the rollups and compare them with the stored ones, to the bit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

import asyncpg
from rich.console import Console
from rich.table import Table

from core.database import connected, database_errors
from core.formatting import count
from core.paths import State
from schema.queries import load

_CHANNELS = 100  # at a time
_MAX_LISTED = 40  # differences
_DAY = timedelta(hours=24)
_KEY = ("channel_id", "bucket", "state")
_CARRIED_COLUMNS = ("area", "known")  # columns that depend on what was before the bucket


@dataclass(frozen=True, slots=True)
class RollupDifference:
    """One column of one bucket that is not what its samples give; None: there is no such row, or it is NULL there."""

    relation: str  # samples_1m, samples_1h, states_1m, states_1h, increases_1m, increases_1h
    channel: str
    bucket: datetime
    state: float | None  # of states_1m and states_1h
    column: str  # "row": the row is missing, or should not be there
    found: Any
    expected: Any


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """Counts of compared rows, and every difference."""

    days: int
    channels: int
    differences: list[RollupDifference]


def verify_rollups(state: State, since: datetime | None = None, until: datetime | None = None) -> VerificationResult:
    """Compare the rollups of all days (UTC) from that of ``since`` up to ``until``; None: no bound.

    What is waiting to be made anew, and what is older than the oldest sample, is not compared.
    Raises DatabaseError where the database does not answer.
    """
    with database_errors():
        return asyncio.run(verify_at(state.dsn("reader"), since, until))


async def verify_at(dsn: str, since: datetime | None = None, until: datetime | None = None) -> VerificationResult:
    """Verify the rollups of the database at a DSN."""
    # The reader's statement_timeout is for people at a chart.
    settings = {"jit": "off", "statement_timeout": "0"}
    async with connected(dsn, "plantlog verify", settings) as connection:
        return await verify(connection, since, until)


async def verify(
    connection: asyncpg.Connection[Any],
    since: datetime | None = None,
    until: datetime | None = None,
    chosen_channels: Sequence[asyncpg.Record] | None = None,
) -> VerificationResult:
    """Verify the rollups by a connection that may read. ``chosen_channels``: only these, from ``select_channels``."""
    queries = load("rollups")
    days = [row["day"] for row in await connection.fetch(queries["select_days"], since, until)]
    channels = chosen_channels if chosen_channels is not None else await connection.fetch(queries["select_channels"])
    differences: list[RollupDifference] = []
    for day in days:
        for first in range(0, len(channels), _CHANNELS):
            part = channels[first : first + _CHANNELS]
            differences += await _day(connection, day, part)
    return VerificationResult(len(days), len(channels), differences)


async def _day(
    connection: asyncpg.Connection[Any], day: datetime, some_channels: Sequence[asyncpg.Record]
) -> list[RollupDifference]:
    """The differences of some channels on one day."""
    queries = load("rollups")
    channels = [channel["id"] for channel in some_channels]
    hours = [row["hour"] for row in await connection.fetch(queries["select_hours"], channels, day)]
    comparisons: list[tuple[str, str, tuple[object, ...]]] = [
        ("samples_1m", "compare_minutes", (channels, day, day + _DAY)),
        *(("samples_1h", "compare_hours", (channels, hour)) for hour in hours),
    ]
    for kind, relation, word in (("discrete", "states", "state"), ("counter", "increases", "increase")):
        if of_kind := [channel["id"] for channel in some_channels if channel["kind"] == kind]:
            comparisons.append((f"{relation}_1m", f"compare_{word}_minutes", (of_kind, day, day + _DAY)))
            comparisons += [(f"{relation}_1h", f"compare_{word}_hours", (of_kind, hour)) for hour in hours]
    differences: list[RollupDifference] = []
    for relation, query, arguments in comparisons:
        if rows := await connection.fetch(queries[query], *arguments):
            names = {
                row["id"]: row["name"] for row in await connection.fetch(queries["select_channel_names"], channels)
            }
            for row in rows:
                differences += _differences(relation, names.get(row["channel_id"], f"channel {row['channel_id']}"), row)
    return differences


def _differences(relation: str, channel: str, row: asyncpg.Record) -> list[RollupDifference]:
    """Differences, column by column."""
    state = row.get("state")
    if row["found"] is None or row["expected"] is None:
        is_stored = row["found"] is not None
        return [
            RollupDifference(relation, channel, row["bucket"], state, "row", is_stored or None, not is_stored or None)
        ]
    stored, expected = json.loads(row["found"]), json.loads(row["expected"])
    return [
        RollupDifference(relation, channel, row["bucket"], state, column, stored[column], expected[column])
        for column in expected
        if column not in _KEY
        and stored[column] != expected[column]
        and not (row["first_of_all"] and column in _CARRIED_COLUMNS)
    ]


def print_result(result: VerificationResult, console: Console) -> None:
    """Print the outcome."""
    scope = f"{count(result.channels, 'channel')}, {count(result.days, 'day')}"
    if not result.differences:
        console.print(f"all rollups match their samples: {scope}", highlight=False)
        return
    table = Table(header_style="bold")
    for name in ("relation", "channel", "bucket", "column", "found", "expected"):
        table.add_column(name, overflow="fold")
    for difference in result.differences[:_MAX_LISTED]:
        table.add_row(*_format_row(difference))
    console.print(table)
    n = len(result.differences)
    console.print(f"{n:,} difference{'' if n == 1 else 's'} in {scope}", highlight=False)


def as_json(result: VerificationResult) -> dict[str, Any]:
    """The result for programs."""
    differences = [{**asdict(difference), "bucket": difference.bucket.isoformat()} for difference in result.differences]
    return {"channels": result.channels, "days": result.days, "differences": differences}


def _format_row(difference: RollupDifference) -> tuple[str, ...]:
    channel = difference.channel if difference.state is None else f"{difference.channel} in state {difference.state:g}"
    values = (difference.found, difference.expected)
    if difference.column == "row":
        texts = ["there" if value else "missing" for value in values]
    else:
        texts = [repr(value) for value in values]
    return difference.relation, channel, difference.bucket.isoformat(), difference.column, *texts
