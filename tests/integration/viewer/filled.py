"""A plant of the last hour and a bit, as collectors would have stored it: samples, gaps, events, batches."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import numpy as np
from numpy.typing import NDArray

from ingest.writer.clock import microseconds
from ingest.writer.copy_stream import COLUMNS, copy_stream
from simulator.scenarios import ScenarioPlant, parse
from tests.database import Database

NOW = datetime.now(UTC).replace(microsecond=0)
SECONDS = 4500  # that are recorded, up to NOW
SINCE = NOW - timedelta(minutes=50)
_STRANGE = SECONDS - 2400  # of then on some signals are not to be believed
_AREAS = ("boilerhouse/boiler1/", "meters/boiler1/", "tankfarm/tank1/")
UNIT = "boilerhouse/boiler1"
CHANNEL = "boilerhouse/boiler1/pressure"

_SOURCE = """
INSERT INTO plant.source (name, kind, address, state, state_since)
VALUES ('plc', 'modbus', 'tcp://127.0.0.1:5020', 'connected', now()) RETURNING id
"""
_CHANNEL = """
INSERT INTO plant.channel (name, source_id, address, kind, unit, range_lo, range_hi, attributes)
VALUES ($1, $2, '', $3, $4, $5, $6, '{"expected_interval": 1}') RETURNING id
"""
_STORY = (
    # the whole source was away, and a channel still is
    """
    INSERT INTO plant.gap (source_id, channel_id, from_time, to_time, reason, detail)
    SELECT $1::int, NULL::int, $2::timestamptz - INTERVAL '20 min', $2::timestamptz - INTERVAL '15 min', 'disconnected',
           'no route'
    UNION ALL
    SELECT c.source_id, c.id, $2::timestamptz - INTERVAL '1 min', NULL, 'poll_failed', 'no answer'
    FROM plant.channel AS c WHERE c.name = 'boilerhouse/boiler1/oxygen'
    """,
    """
    INSERT INTO plant.event (time, id, type, source_id, channel_id, text)
    SELECT $2::timestamptz - INTERVAL '1 min' * s.minutes, s.minutes, 'source_state', $1::int, NULL::int, s.state
    FROM (VALUES (70, 'connected'), (20, 'disconnected'), (15, 'connected')) AS s (minutes, state)
    UNION ALL
    SELECT $2::timestamptz - INTERVAL '1 min' * t.minutes, 1000 + c.id, t.type, c.source_id, c.id, t.text
    FROM (VALUES (90, 'text', 'MANUAL'), (25, 'text', 'AUTO'), (12, 'conflict', NULL)) AS t (minutes, type, text)
    CROSS JOIN plant.channel AS c
    WHERE c.name = CASE t.type WHEN 'text' THEN 'boilerhouse/boiler1/mode' ELSE 'boilerhouse/boiler1/pressure' END
    """,
    """
    INSERT INTO plant.ingest_batch (source_id, sequence, kind, rows, first_time, last_time, received_at, written_at)
    SELECT $1::int, n, 'samples', 60, at - INTERVAL '1 s', at, at + INTERVAL '20 ms', at + INTERVAL '50 ms'
    FROM generate_series(1, 4500) AS n
    CROSS JOIN LATERAL (SELECT $2::timestamptz - INTERVAL '1 s' * (4500 - n)) AS t (at)
    """,
)


async def fill(database: Database) -> None:
    """Everything that a panel could show."""
    connection = await asyncpg.connect(database.owner_dsn)
    try:
        source = await connection.fetchval(_SOURCE)
        plant = ScenarioPlant(1, [parse(f"stuck@{_STRANGE}"), parse(f"hidden-setpoint@{_STRANGE}")])
        which = [i for i, tag in enumerate(plant.tags) if tag.name.startswith(_AREAS)]
        ids = [await _channel(connection, source, plant.tags[i]) for i in which]
        rows = np.empty((SECONDS, len(which)))
        for second in range(SECONDS):
            plant.step(1.0)
            rows[second] = plant.numbers()[which]
        await _samples(connection, ids, rows)
        for statement in _STORY:
            await connection.execute(statement, source, NOW)
        for table in ("samples_raw", "event", "ingest_batch", "gap", "channel"):
            await connection.execute(f"ANALYZE plant.{table}")
    finally:
        await connection.close()


async def _channel(connection: asyncpg.Connection[Any], source: int, tag: Any) -> int:
    given = (tag.name, source, tag.kind, tag.unit, tag.lo, tag.hi)
    return int(await connection.fetchval(_CHANNEL, *given))


async def _samples(connection: asyncpg.Connection[Any], ids: Sequence[int], rows: NDArray[np.float64]) -> None:
    """A sample a second and channel; none of the channels between 20 and 15 minutes ago."""
    times = microseconds(NOW) + (np.arange(1, SECONDS + 1, dtype=np.int64) - SECONDS) * 1_000_000
    kept = (times < microseconds(NOW - timedelta(minutes=20))) | (times >= microseconds(NOW - timedelta(minutes=15)))
    for column, channel in enumerate(ids):
        n = int(kept.sum())
        stream = copy_stream(np.full(n, channel, np.int32), times[kept], rows[kept, column], np.zeros(n, np.uint32))
        await connection.copy_to_table(
            "samples_raw", schema_name="plant", columns=COLUMNS, source=io.BytesIO(bytes(stream)), format="binary"
        )
