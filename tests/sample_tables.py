"""Samples to the bit: into samples_raw as the writer puts them there, and back out of any relation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import asyncpg
import numpy as np

from core.copy_stream import COLUMNS, copy_stream
from core.samples import Samples
from core.timestamps import microseconds, timestamp
from ops.maintenance.packing import pack_days
from tests.waiting import until

DAY = datetime(2026, 3, 9, tzinfo=UTC)
DAY_US = microseconds(DAY)
HOUR_US = 3_600_000_000
NEXT_DAY = DAY + timedelta(days=1)

Sample = tuple[int, int, int]  # µs since DAY, the value's 64 bits, StatusCode


def bits(value: float) -> int:
    """The 64 bits of a double."""
    return int(np.float64(value).view(np.uint64))


def float_of(bits: int) -> float:
    """The double of 64 bits."""
    return float(np.uint64(bits).view(np.float64))


async def copy(connection: asyncpg.Connection[Any], channel: int, samples: Sequence[Sample]) -> None:
    """COPY into samples_raw."""
    time, value, status = zip(*samples, strict=True)
    stream = copy_stream(
        Samples(
            np.full(len(samples), channel, np.int32),
            np.array(time, np.int64) + DAY_US,
            np.array(value, np.uint64).view(np.float64),
            np.array(status, np.uint32),
        ),
    )
    await connection.copy_to_table(
        "samples_raw", schema_name="plant", source=cast(Any, stream), columns=COLUMNS, format="binary"
    )


async def compress(connection: asyncpg.Connection[Any], before: datetime = NEXT_DAY) -> None:
    """Pack the whole hours before a time."""
    await pack_days(connection, before)


_PLANNED = """
CREATE FUNCTION pg_temp.planned() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1); -- the planner calls it, to estimate the number of rows
    RETURN 0;
END
$$
"""
_PLANNING = "SELECT EXISTS (SELECT FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.objid = 1 AND NOT l.granted)"


def planned_first(query: str) -> str:
    """``query``, which returns ``rows``, for :func:`planned_before`."""
    return f"WITH query AS MATERIALIZED ({query}) SELECT q.* FROM query AS q WHERE q.rows >= pg_temp.planned()"


@asynccontextmanager
async def planned_before(
    session: asyncpg.Connection[Any], owner: asyncpg.Connection[Any], query: str
) -> AsyncIterator[asyncio.Task[list[asyncpg.Record]]]:
    """A query that a session of the owner plans before the block, and runs after it. The session keeps the plan."""
    await session.execute(_PLANNED)
    await owner.execute("SELECT pg_advisory_lock(1)")
    rows = asyncio.create_task(session.fetch(query))
    await until(lambda: owner.fetchval(_PLANNING))
    yield rows
    await owner.execute("SELECT pg_advisory_unlock(1)")
    await rows


_BLOCKS_READ = """
SELECT s.idx_blks_read + s.idx_blks_hit
FROM timescaledb_information.chunks AS k
JOIN pg_statio_all_tables AS s ON (s.schemaname, s.relname) = (k.chunk_schema, k.chunk_name)
WHERE k.hypertable_schema = 'plant' AND k.hypertable_name = $1 AND k.range_start = $2
"""


async def blocks_read(connection: asyncpg.Connection[Any], hypertable: str, day: datetime) -> int:
    """Number of blocks of indexes that were read from a day's chunk, by this session and by those that have ended."""
    await connection.execute("SELECT pg_stat_force_next_flush()")
    return cast(int, await connection.fetchval(_BLOCKS_READ, hypertable, day))


_COLUMNS = "s.time, encode(float8send(s.value), 'hex') AS bits, s.status"


async def samples_in_view(connection: asyncpg.Connection[Any], channel: int) -> list[Sample]:
    """A channel as the view ``samples`` shows it, by time."""
    query = f"SELECT {_COLUMNS} FROM plant.samples AS s WHERE s.channel_id = $1 ORDER BY s.time"
    return _samples(await connection.fetch(query, channel))


async def samples_between(connection: asyncpg.Connection[Any], channel: int, first: int, last: int) -> list[Sample]:
    """A channel as ``samples_between`` shows it from ``first`` up to before ``last`` (µs since DAY), by time."""
    query = f"SELECT {_COLUMNS} FROM plant.samples_between(ARRAY[$1::int], $2, $3) AS s ORDER BY s.time"
    return _samples(await connection.fetch(query, channel, timestamp(DAY_US + first), timestamp(DAY_US + last)))


def _samples(rows: list[asyncpg.Record]) -> list[Sample]:
    return [(microseconds(row["time"]) - DAY_US, int(row["bits"], 16), row["status"] & 0xFFFFFFFF) for row in rows]
