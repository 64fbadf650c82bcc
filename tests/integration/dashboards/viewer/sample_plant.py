"""A plant of the last hour and a bit, as collectors would have stored it: samples, gaps, events, batches."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import numpy as np
from numpy.typing import NDArray

from core.copy_stream import COLUMNS, copy_stream
from core.samples import Samples
from core.timestamps import microseconds
from ops.maintenance.packing import compress_before
from tests.database import Database

NOW = datetime.now(UTC).replace(microsecond=0)  # when the tests were collected
SECONDS = 4500  # that are recorded
SINCE = NOW - timedelta(minutes=50)
_STRANGE = SECONDS - 2400  # from then on some signals are not to be believed
UNIT = "boilerhouse/boiler1"
CHANNEL = f"{UNIT}/pressure"

_SOURCE = """
INSERT INTO plant.source (name, kind, address, state, state_since)
VALUES ('plc', 'modbus', 'tcp://127.0.0.1:5020', 'connected', now()) RETURNING id
"""
_CHANNEL = """
INSERT INTO plant.channel (name, source_id, address, kind, unit, range_lo, range_hi, attributes)
VALUES ($1, $2, '', $3, $4, 0, $5, '{"expected_interval": 1, "alarm_hi": 42, "alarm_priority": "high"}') RETURNING id
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
    FROM (VALUES (90, 'text', 'MANUAL'), (25, 'text', 'AUTO'), (12, 'conflict', NULL),
                 (10, 'channel_changed', 'alarm_hi 45 → 42')) AS t (minutes, type, text)
    CROSS JOIN plant.channel AS c
    WHERE c.name = CASE t.type WHEN 'text' THEN 'boilerhouse/boiler1/mode' ELSE 'boilerhouse/boiler1/pressure' END
    """,
    # the source's clock, since 2001-02-03 15:00 UTC
    """
    INSERT INTO plant.event (time, id, type, source_id, text, detail)
    SELECT $2::timestamptz - INTERVAL '14 min', 3000, 'clock_skew', $1::int, 'skewed', '{"since": 981212400000000}'
    """,
    # what the writer counts of them, and alarms as they stand
    """
    INSERT INTO plant.event_count_1m (bucket, type, channel_id, n)
    SELECT date_trunc('minute', $2::timestamptz) - INTERVAL '1 min' * n, 'alarm', c.id, 1 + n % 3
    FROM generate_series(5, 40) AS n
    CROSS JOIN plant.channel AS c
    WHERE c.name = 'boilerhouse/boiler1/pressure' AND c.source_id = $1
    """,
    """
    INSERT INTO plant.alarm (channel_id, limit_name, state, active, since, value, threshold, priority, shelved_until,
                             who, why, changed_at, revision)
    SELECT c.id, a.limit_name, a.state, a.active, $2::timestamptz - INTERVAL '9 min', 43, 42, 'high',
           CASE a.state WHEN 'shelved' THEN $2::timestamptz + INTERVAL '1 day' END, 'operator', 'under repair', $2, 1
    FROM (VALUES ('hi', 'unacknowledged_active', true), ('rate', 'shelved', false)) AS a (limit_name, state, active)
    CROSS JOIN plant.channel AS c
    WHERE c.name = 'boilerhouse/boiler1/pressure' AND c.source_id = $1
    """,
    # an overload that is over, and one that goes on since six minutes
    """
    INSERT INTO plant.event (time, id, type, source_id, text, detail)
    SELECT $2::timestamptz - INTERVAL '1 min' * o.minutes, 2000 + o.minutes, 'overload', NULL::int, o.text,
           jsonb_build_object('lag_seconds', o.lag, 'pace_seconds', o.pace, 'cpu_pressure', o.pressure,
                              'spool_bytes', 81920)
    FROM (VALUES (30, 'overloaded', 5.5, 0.0, 0.4), (28, 'good', 8.2, 2.4, 0.97), (6, 'overloaded', 1.2, 2.4, 0.9))
         AS o (minutes, text, lag, pace, pressure)
    UNION ALL
    SELECT $2::timestamptz - INTERVAL '5 min', 2005, 'poll_stretched', $1::int, 'stretched',
           '{"interval_seconds": 1.0, "pace_seconds": 3.5, "slow": "machine", "answers_seconds": 0.1}'
    """,
    """
    INSERT INTO plant.job_run (job, started_at, ended_at, outcome, rows, detail)
    SELECT r.job, t.at, t.at + INTERVAL '5 s', r.outcome, $1::int, r.detail
    FROM (VALUES (29.5, 'rollups', 'skipped', 'waits: ingest is behind since 09:30:00 UTC'),
                 (27.5, 'rollups', 'ok', ''),
                 (29.8, 'compress', 'ok', 'gave way to ingest; continues'),
                 (27.0, 'compress', 'ok', ''),
                 (0.5, 'rollups', 'skipped', 'waits: ingest is behind since 09:54:00 UTC'))
         AS r (minutes, job, outcome, detail)
    CROSS JOIN LATERAL (SELECT $2::timestamptz - INTERVAL '1 min' * r.minutes) AS t (at)
    """,
    # maintenance, and a sealed day
    """
    INSERT INTO plant.job_run (job, started_at, ended_at, outcome, rows, bytes, detail)
    SELECT j.job, $2::timestamptz - INTERVAL '1 min' * n, $2::timestamptz - INTERVAL '1 min' * n + INTERVAL '2 s',
           j.outcome, 100 + $1::int, pg_database_size(current_database()), j.detail
    FROM generate_series(1, 40) AS n
    CROSS JOIN (VALUES ('storage', 'ok', 'disk lasts 41 days'), ('rollups', 'ok', ''), ('seal', 'failed', 'no key'))
               AS j (job, outcome, detail)
    """,
    """
    WITH
    key AS (
        INSERT INTO plant.seal_key (fingerprint, public, made_at, own_signature, chain)
        SELECT sha256('key'), sha256('public'), $2, '', 1 WHERE $1::int > 0
        RETURNING fingerprint
    ),
    document AS (
        INSERT INTO plant.seal_document (digest, content) VALUES (sha256('{}'), '{}') RETURNING digest
    )
    INSERT INTO plant.day_seal (serial, day, revision, kind, root, previous, read_from, sealed_at, samples, channels,
                                events, gaps, document, events_n, events_digests, gaps_digest, differs, key, signature,
                                installation)
    SELECT 1, ($2::timestamptz AT TIME ZONE 'UTC')::date, 0, 'first', '', '', $2, $2, 1, 1, 1, 1, d.digest, '{}', '',
           '', '', k.fingerprint, '', 0
    FROM key AS k
    CROSS JOIN document AS d
    """,
    """
    INSERT INTO plant.ingest_batch (source_id, sequence, kind, rows, first_time, last_time, received_at, written_at)
    SELECT $1::int, n, 'samples', 60, at - INTERVAL '1 s', at, at + INTERVAL '20 ms', at + INTERVAL '50 ms'
    FROM generate_series(1, 5400) AS n -- and those of the time that the tests take
    CROSS JOIN LATERAL (SELECT $2::timestamptz - INTERVAL '1 s' * (4500 - n)) AS t (at)
    """,
)


_CHANNELS = (  # name, kind, unit, upper end of its range
    (f"{UNIT}/pressure", "analog", "bar", 60.0),
    (f"{UNIT}/pressure_sp", "analog", "bar", 60.0),
    (f"{UNIT}/level", "analog", "%", 100.0),
    (f"{UNIT}/oxygen", "analog", "%", 21.0),
    (f"{UNIT}/steam_flow", "analog", "t/h", 120.0),
    (f"{UNIT}/flame", "discrete", "", 1.0),
    (f"{UNIT}/mode", "text", "", None),
    ("meters/boiler1/fuel", "analog", "t/h", 15.0),
    ("tankfarm/tank1/level", "analog", "m", 8.0),
)


def _readings() -> dict[str, NDArray[np.float64]]:
    """A reading a second of each channel that has numbers. One sensor is stuck, one repeats what it said before."""
    random = np.random.default_rng(1)
    second = np.arange(SECONDS)

    def noisy(middle: float, swing: float, period: float) -> NDArray[np.float64]:
        return middle + swing * np.sin(second / period) + random.normal(0, swing / 20, SECONDS)

    pressure, oxygen = noisy(40, 2, 400), noisy(3, 0.5, 300)
    pressure[_STRANGE + 600 : _STRANGE + 900] = pressure[_STRANGE : _STRANGE + 300]
    oxygen[-840:-120] = oxygen[-840]
    return {
        f"{UNIT}/pressure": pressure,
        f"{UNIT}/pressure_sp": np.where(second < _STRANGE + 300, 40.0, 42.0),
        f"{UNIT}/level": noisy(50, 3, 200),
        f"{UNIT}/oxygen": oxygen,
        f"{UNIT}/steam_flow": noisy(70, 8, 600),
        f"{UNIT}/flame": np.where(second % 1500 < 1400, 1.0, 0.0),
        "meters/boiler1/fuel": noisy(6, 1, 600),
        "tankfarm/tank1/level": noisy(4, 1, 900),
    }


async def fill(database: Database, until: datetime = NOW) -> None:
    """Everything that a panel could show, up to a time."""
    connection = await asyncpg.connect(database.owner_dsn)
    try:
        source = await connection.fetchval(_SOURCE)
        readings = _readings()
        for name, kind, unit, high in _CHANNELS:
            channel = await connection.fetchval(_CHANNEL, name, source, kind, unit, high)
            if name in readings:
                await _samples(connection, channel, readings[name], until)
        for statement in _STORY:
            await connection.execute(statement, source, until)
        await connection.execute("CALL plant.refresh_rollups()")
        await compress_before(connection, until - timedelta(minutes=15))
        await connection.execute("ANALYZE")
    finally:
        await connection.close()


async def _samples(
    connection: asyncpg.Connection[Any], channel: int, readings: NDArray[np.float64], until: datetime
) -> None:
    """A sample a second; none between 20 and 15 minutes before the end."""
    times = microseconds(until) + (np.arange(1, SECONDS + 1, dtype=np.int64) - SECONDS) * 1_000_000
    away, back = (microseconds(until - timedelta(minutes=minutes)) for minutes in (20, 15))
    kept = (times < away) | (times >= back)
    n = int(kept.sum())
    stream = copy_stream(Samples(np.full(n, channel, np.int32), times[kept], readings[kept], np.zeros(n, np.uint32)))
    await connection.copy_to_table(
        "samples_raw", schema_name="plant", columns=COLUMNS, source=io.BytesIO(stream), format="binary"
    )
