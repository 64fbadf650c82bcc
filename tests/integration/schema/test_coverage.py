"""The view ``coverage``: what each channel should have on a day, has, lacks, and what was read from history."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from history.notebook import ask
from tests.database import Database
from tests.integration.history.questions.recording import reading
from tests.waiting import PATIENCE

DAY = datetime(2026, 3, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
_CHANNELS = """
INSERT INTO plant.source (name, kind, address) VALUES ('plc', 'modbus', ''), ('server', 'opcua', '');
INSERT INTO plant.channel (name, source_id, address, kind, attributes, configured_at)
SELECT c.name, s.id, '', 'analog', c.attributes::jsonb, NULL
FROM (VALUES ('plc/a', 'plc', '{"expected_interval": 60}'),
             ('plc/b', 'plc', '{"expected_interval": 60}'),
             ('server/x', 'server', '{}')) AS c (name, source, attributes)
JOIN plant.source AS s ON s.name = c.source
"""
_SAMPLES = """
INSERT INTO plant.samples_raw (time, value, channel_id, status)
SELECT t, 1, c.id, $4
FROM plant.channel AS c
CROSS JOIN generate_series($2::timestamptz, $3::timestamptz - INTERVAL '1 microsecond', INTERVAL '1 minute') AS t
WHERE c.name = $1
"""
_KEPT_OUT = """
INSERT INTO plant.quarantine (id, reason, source_id, received_at, channel_id, time_us, value, status)
SELECT (extract(epoch FROM t) * 1000)::bigint + c.id, 'future', c.source_id, t, c.id, 0, 1, 0
FROM plant.channel AS c
CROSS JOIN generate_series($2::timestamptz, $3::timestamptz - INTERVAL '1 microsecond', INTERVAL '1 minute') AS t
WHERE c.name = $1
"""
_GAP = """
INSERT INTO plant.gap (source_id, channel_id, from_time, to_time, reason, backfilled_at)
SELECT c.source_id, CASE WHEN $1 LIKE '%/%' THEN c.id END, $2, $3, 'disconnected', CASE WHEN $4 THEN now() END
FROM plant.channel AS c
WHERE c.name LIKE $1 || '%'
LIMIT 1
"""


def hours(count: float) -> timedelta:
    return timedelta(hours=count)


@pytest.fixture(autouse=True)
async def registered_channels(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute(_CHANNELS)


async def coverage(connection: asyncpg.Connection[Any], day: datetime = DAY) -> dict[str, tuple[Any, ...]]:
    rows = await connection.fetch("SELECT * FROM plant.coverage WHERE day = $1", day)
    return {row["name"]: tuple(row)[3:] for row in rows}


async def test_a_whole_day_and_one_with_a_gap(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute(_SAMPLES, "plc/a", DAY, DAY + hours(24), 0)
    await owner.execute(_SAMPLES, "plc/b", DAY, DAY + hours(6), 0)
    await owner.execute(_SAMPLES, "plc/b", DAY + hours(8), DAY + hours(24), 0)
    await owner.execute(_GAP, "plc/b", DAY + hours(6) - MINUTE, DAY + hours(8), False)
    assert await coverage(owner) == {
        "plc/a": (1440, 1440, 1440, 0, 0.0, 0.0, 0),
        "plc/b": (1440, 1320, 1320, 120, 7260.0, 0.0, 0),
    }


async def test_a_gap_of_the_source_is_one_of_each_channel_and_is_cut_at_midnight(
    owner: asyncpg.Connection[Any],
) -> None:
    await owner.execute(_SAMPLES, "plc/a", DAY - hours(24), DAY - hours(1), 0)
    await owner.execute(_SAMPLES, "plc/b", DAY - hours(24), DAY - hours(1), 0)
    await owner.execute(_GAP, "plc", DAY - hours(1) - MINUTE, DAY + hours(2), False)
    await owner.execute(_SAMPLES, "plc/a", DAY + hours(2), DAY + hours(24), 0)
    assert await coverage(owner, DAY - hours(24)) == dict.fromkeys(
        ("plc/a", "plc/b"), (1440, 1380, 1380, 60, 3660.0, 0.0, 0)
    )
    assert await coverage(owner) == {
        "plc/a": (1440, 1320, 1320, 120, 7200.0, 0.0, 0),
        "plc/b": (1440, 0, 0, 1440, 86400.0, 0.0, 0),
    }, "behind the gap b has nothing either, and nobody says why"


async def test_overlapping_gaps_count_once(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute(_GAP, "server", DAY + hours(1), DAY + hours(5), True)
    await owner.execute(_GAP, "server/x", DAY + hours(1), DAY + hours(2), False)
    await owner.execute(_GAP, "server/x", DAY + hours(1.5), DAY + hours(3), False)
    assert await coverage(owner) == {"server/x": (None, 0, 0, None, 7200.0, 7200.0, 0)}


async def test_bad_samples_count_and_expectation_begins_with_the_first_sample(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute(_SAMPLES, "plc/a", DAY + hours(12), DAY + hours(18), 0)
    await owner.execute(_SAMPLES, "plc/a", DAY + hours(18), DAY + hours(24), -(2**31))
    assert await coverage(owner) == {"plc/a": (720, 720, 360, 0, 0.0, 0.0, 0)}


async def test_empty_gaps_are_not_listed(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute(_GAP, "plc/a", DAY + hours(1), DAY + hours(1), False)
    assert await coverage(owner) == {}


async def test_an_open_gap_lasts_until_now(owner: asyncpg.Connection[Any]) -> None:
    now = await owner.fetchval("SELECT now()")
    await owner.execute(_GAP, "plc/a", now - timedelta(seconds=90), None, False)
    rows = await owner.fetch(
        "SELECT sum(missing_seconds) AS s FROM plant.coverage WHERE day > now() - INTERVAL '3 days'"
    )
    assert 90 <= rows[0]["s"] < 90 + PATIENCE


async def test_quarantined_samples_are_missing_from_coverage(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute("UPDATE plant.channel SET configured_at = $1", DAY - hours(1))
    await owner.execute(_SAMPLES, "plc/a", DAY, DAY + hours(24), 0)
    await owner.execute(_KEPT_OUT, "plc/b", DAY, DAY + hours(24))
    await owner.execute(_KEPT_OUT, "server/x", DAY + hours(6), DAY + hours(6) + MINUTE)
    assert await coverage(owner) == {
        "plc/a": (1440, 1440, 1440, 0, 0.0, 0.0, 0),
        "plc/b": (1440, 0, 0, 1440, 86400.0, 0.0, 1440),
        "server/x": (1, 0, 0, 1, 86400.0, 0.0, 1),
    }
    await owner.execute("UPDATE plant.channel SET retired_at = $1 WHERE name = 'plc/b'", DAY + hours(30))
    assert (await coverage(owner, DAY + hours(24)))["plc/b"] == (360, 0, 0, 360, 21600.0, 0.0, 0)
    assert "plc/b" not in await coverage(owner, DAY + hours(48))


async def test_coverage_begins_with_the_configuration(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute("UPDATE plant.channel SET configured_at = $1", DAY + hours(6))
    await owner.execute(_GAP, "plc", DAY + hours(1), DAY + hours(2), False)  # of the source
    await owner.execute(_SAMPLES, "plc/a", DAY + hours(6) + 16 * MINUTE, DAY + hours(24), 0)
    await owner.execute(_SAMPLES, "plc/b", DAY + hours(25), DAY + hours(48), 0)
    await owner.execute(_SAMPLES, "server/x", DAY + hours(7), DAY + hours(7) + MINUTE, 0)
    assert await coverage(owner) == {
        "plc/a": (1080, 1064, 1064, 16, 960.0, 0.0, 0),
        "plc/b": (1080, 0, 0, 1080, 64800.0, 0.0, 0),
        "server/x": (None, 1, 1, None, 3600.0, 0.0, 0),
    }
    assert (await coverage(owner, DAY + hours(24)))["plc/b"] == (1440, 1380, 1380, 60, 3600.0, 0.0, 0)


async def test_sample_older_than_the_configuration_means_no_initial_gap(owner: asyncpg.Connection[Any]) -> None:
    """A valve that last moved the day before: its first sample has that source timestamp."""
    await owner.execute("UPDATE plant.channel SET configured_at = $1", DAY + hours(6))
    await owner.execute(_SAMPLES, "server/x", DAY - hours(30), DAY - hours(30) + MINUTE, 0)
    await owner.execute(_SAMPLES, "server/x", DAY + hours(9), DAY + hours(9) + MINUTE, 0)
    assert (await coverage(owner))["server/x"] == (None, 1, 1, None, 0.0, 0.0, 0)
    await owner.execute(_GAP, "server", DAY + hours(5), DAY + hours(7), False)
    assert (await coverage(owner))["server/x"] == (None, 1, 1, None, 3600.0, 0.0, 0)


async def test_nothing_is_expected_while_a_channel_is_retired(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute(
        "UPDATE plant.channel SET configured_at = $1, retirements = tstzmultirange(tstzrange($2, $3))",
        DAY - hours(24),
        DAY + hours(6),
        DAY + hours(50),
    )
    await owner.execute(_SAMPLES, "plc/a", DAY - hours(24), DAY + hours(6), 0)
    await owner.execute(_SAMPLES, "plc/a", DAY + hours(51), DAY + hours(72), 0)
    await owner.execute(_SAMPLES, "server/x", DAY - hours(24), DAY - hours(23), 0)
    await owner.execute(_GAP, "server", DAY + hours(5), DAY + hours(8), False)
    found = await coverage(owner)
    assert found["plc/a"] == (360, 360, 360, 0, 0.0, 0.0, 0)
    assert found["server/x"] == (None, 0, 0, None, 3600.0, 0.0, 0)
    assert await coverage(owner, DAY + hours(24)) == {}
    assert (await coverage(owner, DAY + hours(48)))["plc/a"] == (1320, 1260, 1260, 60, 0.0, 0.0, 0)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
async def test_expected_equals_stored_plus_missing(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path, data: st.DataObject
) -> None:
    """Whatever samples, gaps and quarantine there are, by the day and by the question."""
    span = st.tuples(st.integers(0, 2 * 1440), st.integers(0, 600)).map(
        lambda s: (DAY + s[0] * MINUTE, DAY + sum(s) * MINUTE)
    )
    await owner.execute("TRUNCATE plant.samples_raw, plant.gap, plant.quarantine, plant.channel, plant.source CASCADE")
    await owner.execute(_CHANNELS)
    await owner.execute(
        "UPDATE plant.channel SET configured_at = $1", data.draw(st.sampled_from([None, DAY, DAY + hours(9)]))
    )
    for since, until in data.draw(st.lists(span, max_size=2)):
        await owner.execute(
            "UPDATE plant.channel SET retirements = retirements + tstzmultirange(tstzrange($1, $2))", since, until
        )
    for name in ("plc/a", "plc/b", "server/x"):
        for since, until in data.draw(st.lists(span, max_size=3)):
            await owner.execute(f"{_SAMPLES} ON CONFLICT DO NOTHING", name, since, until, 0)
        for since, until in data.draw(st.lists(span, max_size=2)):
            await owner.execute(f"{_GAP} ON CONFLICT DO NOTHING", name, since, until, data.draw(st.booleans()))
        for since, until in data.draw(st.lists(span, max_size=1)):
            await owner.execute(_KEPT_OUT, name, since, until)
    for day in (DAY, DAY + hours(24), DAY + hours(48)):
        rows = [*await owner.fetch("SELECT * FROM plant.coverage_of($1)", day)]
        for row in rows:
            assert (row["expected"] is None) == (row["missing"] is None)
            if row["expected"] is not None:
                assert row["expected"] == row["got"] + row["missing"] and row["missing"] >= 0
            assert 0 <= row["got_good"] <= row["got"]
            assert 0 <= row["missing_seconds"] + row["backfilled_seconds"] <= 86400
    since, until, here = DAY + hours(5), DAY + hours(40), reading(database, tmp_path)
    answer = await asyncio.to_thread(ask, "gaps_and_coverage", since=since, until=until, state=here, complete=True)
    for row in answer.to_pylist():
        assert -1e-6 <= row["covered_percent"] <= 100
        if row["expected"] is not None:
            assert row["expected"] == row["samples"] + row["missing"] and row["missing"] >= 0
        if row["samples"] == 0 and row["reasons"] == "" and row["channel"].startswith("plc"):
            assert row["covered_percent"] < 1e-6
