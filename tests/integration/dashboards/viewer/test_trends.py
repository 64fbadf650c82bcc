"""Trends and latest values: peaks, limits, scales, clocks that were wrong, outages, and names of one part."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest

from dashboards.fill import queries
from dashboards.viewer.library import Library, Query
from schema.queries import load
from tests.database import Database, add_channels, add_sources, connected
from tests.integration.dashboards.viewer.panels import Panels, rows
from tests.integration.dashboards.viewer.serving import reading

_HERE = {"area": "pump", "unit": "pump/house", "measure": "kPa 1"}
_PLANT = """
WITH source AS (
    INSERT INTO plant.source (name, kind, address, state, state_since)
    VALUES ('plc', 'modbus', 'tcp://127.0.0.1:502', 'connected', $1::timestamptz - INTERVAL '1 day'),
           ('away', 'modbus', 'tcp://127.0.0.1:503', 'disconnected', $1::timestamptz - INTERVAL '30 s')
    RETURNING id, name
)
INSERT INTO plant.channel (name, source_id, address, kind, unit, range_lo, range_hi, attributes, configured_at)
SELECT c.name, s.id, '', c.kind, c.unit, 0, c.range_hi, c.attributes::jsonb, $1::timestamptz - INTERVAL '1 day'
FROM (VALUES ('plc', 'pump/house/suction', 'analog', 'kPa', 10,
              '{"alarm_hi": 8, "alarm_lo": 1, "alarm_rate": 5, "alarm_bad": true}'),
             ('plc', 'pump/house/outlet', 'analog', 'kPa', 900, '{}'),
             ('plc', 'meters/house/energy', 'counter', 'Wh', NULL, '{}'),
             ('away', 'pump/yard/level', 'analog', 'kPa', 10, '{}')
) AS c (source, name, kind, unit, range_hi, attributes)
JOIN source AS s ON s.name = c.source
"""
# One peak of one second; a counter of 1/s that is reset once; and a source that has not answered for 30 s, of whose
# channel the newest sample is Bad.
_STORY = (
    """
    INSERT INTO plant.rollup_dirty (from_time, to_time)
    VALUES (plant.minute_of($1::timestamptz - INTERVAL '1 hour'), plant.minute_of($1) + INTERVAL '1 minute')
    """,
    """
    INSERT INTO plant.samples_raw (channel_id, time, value, status)
    SELECT c.id, $1::timestamptz - n * INTERVAL '1 s',
           CASE WHEN c.kind = 'counter' THEN (3600 - n) % 2500 WHEN n = 1000 THEN 9.0 ELSE 5.0 END::float8, 0
    FROM plant.channel AS c CROSS JOIN generate_series(0, 3599) AS n
    WHERE c.name <> 'pump/yard/level' OR n > 30
    UNION ALL
    SELECT c.id, $1::timestamptz - INTERVAL '30 s', 'NaN'::float8, -2146762752
    FROM plant.channel AS c WHERE c.name = 'pump/yard/level'
    """,
    """
    INSERT INTO plant.gap (source_id, channel_id, from_time, to_time, reason)
    SELECT s.id, NULL, $1::timestamptz - INTERVAL '31 s', NULL, 'disconnected' FROM plant.source AS s
    WHERE s.name = 'away'
    """,
    """
    INSERT INTO plant.event (time, id, type, source_id, text, detail)
    SELECT $1::timestamptz - INTERVAL '4 min', 1, 'clock_skew', s.id, 'skewed', '{"seconds": 12.5}'::jsonb
    FROM plant.source AS s WHERE s.name = 'plc'
    UNION ALL
    SELECT $1::timestamptz - INTERVAL '3 min', 2, 'clock_set', NULL, 'forward', '{}'
    UNION ALL
    SELECT $1::timestamptz - INTERVAL '2 min', 3, 'clock_skew', s.id, 'skewed', '{}'
    FROM plant.source AS s WHERE s.name = 'away'
    """,
)


@pytest.fixture
async def panels(database: Database, tmp_path: Path) -> AsyncIterator[Panels]:
    now = datetime.now(UTC).replace(microsecond=0)
    connection = await asyncpg.connect(database.owner_dsn)
    for statement in (_PLANT, *_STORY):
        await connection.execute(statement, now)
    await connection.execute("CALL plant.refresh_rollups()")
    await connection.close()
    async with reading(database.reader_dsn, tmp_path) as reader:
        yield Panels(reader, now, interval_ms=10_000)


async def test_each_scale_of_a_unit_of_measure_has_a_chart(panels: Panels) -> None:
    measure = Library().dashboard("plantlog-unit").variable("measure")
    assert await panels.rows(measure, **_HERE) == {
        "__text": ["kPa, up to 10", "kPa, up to 1000"],
        "__value": ["kPa 1", "kPa 3"],
    }


async def test_unit_trend_shows_a_peak_within_a_step(panels: Panels) -> None:
    curves = await panels.ask("unit", "${measure:text}", **_HERE)
    assert set(curves["metric"]) == {"suction"}
    assert max(value for value in curves["value"] if value is not None) == 9


_CUT = """
WITH
cut AS (
    INSERT INTO plant.gap (source_id, channel_id, from_time, to_time, reason, detail)
    SELECT c.source_id, c.id, $1::timestamptz - g.ago * INTERVAL '1 s',
           $1::timestamptz - (g.ago - $2) * INTERVAL '1 s', 'stale', 'no keep-alive'
    FROM plant.channel AS c CROSS JOIN unnest(ARRAY[1700, 1490, 1287, 1078, 866]) AS g (ago)
    WHERE c.name = $3
    RETURNING channel_id, from_time, to_time
)
DELETE FROM plant.samples_raw AS s
USING cut AS g WHERE g.channel_id = s.channel_id AND s.time > g.from_time AND s.time < g.to_time
"""


@pytest.mark.parametrize(
    ("dashboard", "title", "channel", "seconds"),
    [
        ("unit", "${measure:text}", "pump/house/suction", 46),
        ("channel", "Trend", "pump/house/suction", 46),
        ("channel", "Compared with ${compare:text}", "pump/house/suction", 46),
        ("channel", "Compared with ${compare:text}", "meters/house/energy", 166),  # steps of a minute
    ],
)
async def test_trend_breaks_at_each_gap_and_a_band_says_why(
    panels: Panels, owner: asyncpg.Connection, dashboard: str, title: str, channel: str, seconds: int
) -> None:
    await owner.execute(_CUT, panels.over.until, seconds, channel)
    await owner.execute("CALL plant.refresh_rollups()")
    here = _HERE | {"channel": channel}
    curve = await panels.ask(dashboard, title, **here)
    (bands,) = (
        annotation
        for annotation in Library().dashboard(f"plantlog-{dashboard}").annotations()
        if annotation.ref == "Gaps"
    )
    shown = await panels.rows(bands, **here)
    assert [text.removeprefix("suction: ") for text in shown["text"]] == ["stale – no keep-alive"] * 5
    times, values = curve["time"], list(curve.values())[-1]
    for since, until in zip(shown["time"], shown["timeEnd"], strict=True):
        assert until - since == 1000 * seconds
        assert any(value is None and since <= time < until for time, value in zip(times, values, strict=True))


_PUMPS = """
WITH pump AS (
    INSERT INTO plant.channel (name, source_id, address, kind, unit)
    SELECT 'mill/pump/p' || n, s.id, '', 'analog', 'bar'
    FROM plant.source AS s CROSS JOIN generate_series(1, 5) AS n WHERE s.name = 'plc'
    RETURNING id, source_id
)
INSERT INTO plant.gap (source_id, channel_id, from_time, to_time, reason)
SELECT p.source_id, p.id, $1::timestamptz - INTERVAL '20 min', $1::timestamptz - INTERVAL '10 min', 'stale'
FROM pump AS p
UNION ALL
SELECT s.id, NULL, $1::timestamptz - INTERVAL '5 min', NULL, 'disconnected' FROM plant.source AS s WHERE s.name = 'plc'
"""


async def test_gap_of_many_channels_is_one_band(panels: Panels, owner: asyncpg.Connection) -> None:
    await owner.execute(_PUMPS, panels.over.until)
    (bands,) = (
        annotation for annotation in Library().dashboard("plantlog-unit").annotations() if annotation.ref == "Gaps"
    )
    shown = await panels.rows(bands, **_HERE | {"unit": "mill/pump"})
    assert shown["text"] == ["plc: disconnected", "p1, p2, p3 and 2 more: stale"]
    assert shown["series"] == ["p1\np2\np3\np4\np5"] * 2


async def test_trend_without_values_has_no_rows(panels: Panels, owner: asyncpg.Connection) -> None:
    """For rows without values, Grafana and the viewer draw axes and say nothing."""
    await owner.execute("DELETE FROM plant.samples_raw")
    await owner.execute("CALL plant.refresh_rollups()")
    here = _HERE | {"channel": "pump/house/suction"}
    assert not (await panels.ask("unit", "${measure:text}", **here))["time"]
    for ref in ("A", "Limits"):
        assert not (await panels.ask("channel", "Trend", ref, **here))["time"]


async def test_trend_shows_the_limits_of_values(panels: Panels) -> None:
    limits = rows(await panels.ask("channel", "Trend", "Limits", channel="pump/house/suction"))
    assert {(row["metric"], row["value"]) for row in limits} == {("limit hi", 8), ("limit lo", 1)}


async def test_distribution_counts_samples_rather_than_means(panels: Panels) -> None:
    shares = await panels.ask("channel", "Distribution", channel="pump/house/suction")
    n = 1800  # the panels show 30 minutes
    assert shares["Share"][0] == pytest.approx(100 * (n - 1) / n)
    assert shares["Share"][-1] == pytest.approx(100 / n)
    assert float(shares["Value"][-1]) == pytest.approx(9, abs=0.1)


async def test_distribution_of_equal_values_is_one_bar(panels: Panels) -> None:
    panels.over = replace(panels.over, since=panels.over.until - timedelta(minutes=10))
    shares = await panels.ask("channel", "Distribution", channel="pump/house/suction")
    assert shares == {"Value": ["5.000"], "Share": [100]}


async def test_time_without_values_has_no_rows_to_compare(panels: Panels) -> None:
    """For rows without values, Grafana draws axes and says nothing."""
    here = {"channel": "pump/house/suction", "compare": f"{86400 * 7}"}
    assert not (await panels.rows(_section("channel", "earlier"), **here))["earlier"]
    assert (await panels.rows(_section("channel", "now_beside"), **here))["this time"]


async def test_day_is_in_sight_in_a_shorter_time(panels: Panels) -> None:
    """Else Grafana says that the data are outside the time range."""
    for section in ("by_day", "rows_by_day"):
        found = await panels.rows(_section("storage", section))
        assert panels.over.since.timestamp() * 1000 <= max(found["time"]) <= panels.over.until.timestamp() * 1000


def _section(file: str, name: str) -> Query:
    return Query("A", queries(file)[name])


@pytest.mark.parametrize("ref", ["A", "B"])
async def test_rates_of_a_counter_are_compared(panels: Panels, ref: str) -> None:
    points = await panels.ask("channel", "Compared with ${compare:text}", ref, channel="meters/house/energy")
    rates = points["this time" if ref == "A" else "earlier"]
    assert len(rates) >= 29
    assert rates == pytest.approx([1.0] * len(rates), abs=0.02)
    unit = await panels.ask("channel", "Compared with ${compare:text}", "Unit", channel="meters/house/energy")
    assert unit == {"unit": ["suffix:Wh/s"]}


async def test_value_before_an_outage_is_shown_with_its_age(panels: Panels) -> None:
    (latest,) = rows(await panels.ask("channel", "Latest value", channel="pump/yard/level"))
    assert latest["Latest"].startswith("5 kPa, ")
    assert latest["Latest"].endswith(" s ago")
    assert latest["% of range"] == "no data: disconnected"


async def test_value_that_is_no_number_is_shown(panels: Panels, owner: asyncpg.Connection) -> None:
    await owner.execute(
        "UPDATE plant.samples_raw AS s SET value = 'NaN' FROM plant.channel AS c "
        "WHERE c.id = s.channel_id AND c.name = 'pump/house/suction' AND s.time > $1",
        panels.over.until - timedelta(seconds=5),
    )
    suction = next(row for row in rows(await panels.ask("unit", "Values", **_HERE)) if row["Channel"] == "suction")
    assert (suction["Value"], suction["% of range"], suction["Quality"]) == ("NaN", None, "good")
    keys = await panels.ask("plant", "Key value of each unit, in % of range", **_HERE)
    assert ("pump/house/suction  NaN kPa   ", None) in set(zip(*keys.values(), strict=True))


async def test_thresholds_have_their_unit(panels: Panels, owner: asyncpg.Connection) -> None:
    thresholds = {"hi": ("8", 8.0), "rate": ("5 kPa/s", 5.0), "stale": ("300 s", 300.0), "bad": (None, 0.0)}
    for name, (_, threshold) in thresholds.items():
        await owner.execute(
            "INSERT INTO plant.alarm (channel_id, limit_name, state, active, since, value, threshold, priority, "
            "changed_at, revision) SELECT c.id, $1, 'unacknowledged_active', true, now(), 9, $2, 'high', now(), 1 "
            "FROM plant.channel AS c WHERE c.name = 'pump/house/suction'",
            name,
            threshold,
        )
    shown = {
        row["Limit"]: row["Threshold"] for row in rows(await panels.ask("plant", "Active and unacknowledged alarms"))
    }
    assert shown == {name: text for name, (text, _) in thresholds.items()}
    limits = rows(await panels.ask("channel", "Alarm limits", channel="pump/house/suction"))
    assert {row["Limit"]: row["Threshold"] for row in limits} == {"hi": "8", "lo": "1", "rate": "5 kPa/s", "bad": None}


async def test_disconnected_source_has_no_current_key_value(panels: Panels) -> None:
    values = dict(
        zip(*(await panels.ask("plant", "Key value of each unit, in % of range", **_HERE)).values(), strict=True)
    )
    known = {text.rstrip(): value for text, value in values.items()}
    assert known == {"pump/house/suction  5.00 kPa": 50, "pump/yard/level  no data: disconnected": None}


@pytest.mark.parametrize("dashboard", ["unit", "channel"])
async def test_trends_mark_times_at_which_a_clock_is_wrong(panels: Panels, dashboard: str) -> None:
    (clocks,) = (
        annotation
        for annotation in Library().dashboard(f"plantlog-{dashboard}").annotations()
        if annotation.ref == "Clocks"
    )
    found = await panels.rows(clocks, **_HERE, channel="pump/house/suction")
    assert found["text"] == ["clock_set forward", "clock_skew skewed: seconds 12.5"]


async def test_timeline_without_states_has_a_row(panels: Panels) -> None:
    (row,) = rows(await panels.ask("unit", "States", **_HERE))
    assert (row["metric"], row["value"]) == ("no discrete channels", None)


_NEVER_ENDS = """
INSERT INTO plant.gap (source_id, channel_id, from_time, to_time, reason)
SELECT c.source_id, c.id, $1::timestamptz - (g.ago - c.id % 4) * INTERVAL '1 s',
       $1::timestamptz - g.until * INTERVAL '1 s', 'stale'
FROM plant.channel AS c
JOIN (VALUES (true, 1500, NULL), (false, 1200, 1100), (false, 600, 590), (false, 100, NULL)) AS g (is_one, ago, until)
     ON g.is_one = (c.name = 'hall/c1')
"""


async def test_endless_gap_of_a_channel_hides_no_outage(database: Database, tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    async with connected(database.owner_dsn) as owner:
        await add_sources(owner, "plc", kind="modbus")
        await add_channels(owner, range(1, 6), name="hall/c{}")
        await owner.execute(_NEVER_ENDS, now)
        counted = await owner.fetchrow(load("status")["select_database"], None)
    async with reading(database.reader_dsn, tmp_path) as reader:
        panels = Panels(reader, now)
        begun = await panels.ask("health", "New outages, by reason")
        assert sum(begun["value"]) == 4
        (unit,) = rows(await panels.ask("plant", "Units", area="hall"))
        assert unit["Outages"] == 4
        (missing,) = rows(await panels.ask("unit", "Missing data", unit="hall"))
        assert missing["Outages"] == 4
    assert counted is not None and counted["outages_open"] == 2


_BATCHES = """
INSERT INTO plant.ingest_batch (source_id, sequence, kind, rows, first_time, last_time, received_at, written_at)
SELECT 1, b.sequence, b.kind, 10, b.at, b.at, $1::timestamptz - b.waited * INTERVAL '1 s', $1
FROM (VALUES (7, 'samples', $1::timestamptz - INTERVAL '1 s', 0.5),
             (-7, 'samples', $1::timestamptz - INTERVAL '300 days', 0), -- of an import
             (-8, 'samples', $1::timestamptz - INTERVAL '300 days', 0),
             (-9, 'samples', $1::timestamptz - INTERVAL '3 days', 259200), -- was in quarantine
             (-10, 'counts', $1::timestamptz - INTERVAL '1 s', 0.5)) AS b (sequence, kind, at, waited)
"""


async def test_import_is_no_lag(database: Database, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    async with connected(database.owner_dsn) as owner:
        await add_sources(owner, "plc", kind="modbus")
        await owner.execute(_BATCHES, now)
    async with reading(database.reader_dsn, tmp_path) as reader:
        panels = Panels(reader, now + timedelta(seconds=1))
        assert (await panels.ask("health", "Lag"))["Lag"] == [1.0]
        assert (await panels.ask("health", "Lag from newest source time to commit"))["value"] == [1.0]
        assert (await panels.ask("health", "Longest wait"))["Longest wait"] == [0.5]
        waits = await panels.ask("health", "Wait in the spool")
        assert (waits["median"], waits["maximum"]) == ([0.5], [0.5])


_PAUSED = """
INSERT INTO plant.ingest_batch (source_id, sequence, kind, rows, first_time, last_time, received_at, written_at)
SELECT 1, 3600 - n, 'samples', 10, t.at, t.at, t.at, t.at + INTERVAL '0.1 s'
FROM generate_series(1, 1500) AS n CROSS JOIN LATERAL (SELECT $1::timestamptz - n * INTERVAL '1 s' AS at) AS t
WHERE n NOT BETWEEN 300 AND 600 AND n NOT BETWEEN 900 AND 940
"""


@pytest.mark.parametrize(
    ("title", "curve"),
    [
        ("Lag from newest source time to commit", "value"),
        ("Wait in the spool", "median"),
        ("Wait in the spool", "maximum"),
    ],
)
async def test_lag_breaks_where_nothing_was_stored(database: Database, tmp_path: Path, title: str, curve: str) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    async with connected(database.owner_dsn) as owner:
        await add_sources(owner, "plc", kind="modbus")
        await owner.execute(_PAUSED, now)
    async with reading(database.reader_dsn, tmp_path) as reader:
        found = await Panels(reader, now).ask("health", title)
    (breaks,) = [
        now.timestamp() - time / 1000 for time, value in zip(found["time"], found[curve], strict=True) if value is None
    ]
    assert 300 <= breaks <= 600


async def test_timeline_of_what_there_is_not_has_a_row(panels: Panels) -> None:
    for uid, title, here in (
        ("channel", "Quality or text value", {"channel": "none"}),
        ("forensics", "Gaps by channel", {"unit": "none"}),
    ):
        (row,) = rows(await panels.ask(uid, title, **here))
        assert row["value"] is None


_DIGEST = "3f" * 32


async def test_words_of_health_are_no_wider_than_their_columns(panels: Panels, owner: asyncpg.Connection) -> None:
    await owner.execute(
        "UPDATE plant.source SET address = 'opc.tcp://plc17.plant.example:4840/UA/Server', reason = 'SHA-256 ' || $1"
        " WHERE name = 'away'",
        _DIGEST,
    )
    source, _ = rows(await panels.ask("health", "Sources"))
    assert source["Address"] == "opc.tcp://plc17.plant.example:4840\n/UA/Server"
    assert source["Reason"] == " ".join(["SHA-256", *[_DIGEST[:16]] * 4])
    gap = next(rows(await panels.ask("health", "Gaps")))
    assert gap["Detail"] == source["Reason"]


async def test_forensics_of_a_name_of_one_part(database: Database, tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    async with connected(database.owner_dsn) as owner:
        await add_sources(owner, "plc", kind="modbus")
        await add_channels(owner, [1], name="level")
        await add_channels(owner, [2], name="levels/c{}")
        await owner.execute(
            "INSERT INTO plant.samples_raw (channel_id, time, value, status) "
            "SELECT n % 2 + 1, $1::timestamptz - n * INTERVAL '1 s', 1, 0 FROM generate_series(1, 1000) AS n",
            now,
        )
        await owner.execute(
            "INSERT INTO plant.gap (source_id, from_time, to_time, reason) "
            "SELECT 1, $1::timestamptz - INTERVAL '200 s', $1::timestamptz - INTERVAL '100 s', 'disconnected'",
            now,
        )
    async with reading(database.reader_dsn, tmp_path) as reader:
        panels = Panels(reader, now)
        assert set((await panels.ask("forensics", "Gaps by channel", unit="level"))["metric"]) == {"level"}
        assert (await panels.ask("forensics", "Samples of this time", unit="level"))["Samples"] == ["none dropped"]
        assert (await panels.ask("forensics", "Coverage", unit="level"))["Channel"] == ["level"]
        assert "gap begins" in (await panels.ask("forensics", "Timeline", unit="level"))["Type"]
        assert (await panels.ask("forensics", "Coverage", unit="levels"))["Channel"] == ["levels/c2"]
