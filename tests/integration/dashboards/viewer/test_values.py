"""True values in panels: wrong clocks, outages of many channels, slow devices, texts, and wording."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import asyncpg
import pytest

from dashboards.viewer.library import Library
from dashboards.viewer.macros import ChartRange, expand
from schema.queries import load
from tests.database import Database, add_channels, add_sources, connected, prepared
from tests.integration.dashboards.viewer.panels import VALUES, Panels, rows
from tests.integration.dashboards.viewer.serving import reading

_PLANT = """
WITH
source AS (
    INSERT INTO plant.source (name, kind, address, state, state_since)
    VALUES ('plc', 'modbus', 'tcp://127.0.0.1:502', 'connected', $1::timestamptz - INTERVAL '90 days'),
           ('slow', 'modbus', 'tcp://127.0.0.1:503', 'connected', $1::timestamptz - INTERVAL '1 min')
    RETURNING id, name
)
INSERT INTO plant.channel (name, source_id, address, kind, unit, range_lo, range_hi, attributes, configured_at)
SELECT 'pump/house/level' || n, s.id, '', 'analog', 'm', NULL::float8, NULL::float8, '{"expected_interval": 1}'::jsonb,
       $1::timestamptz - INTERVAL '90 days'
FROM source AS s CROSS JOIN generate_series(1, 14) AS n WHERE s.name = 'plc'
UNION ALL
SELECT 'pump/house/mode', s.id, '', 'text', '', NULL, NULL, '{}', $1::timestamptz - INTERVAL '90 days'
FROM source AS s WHERE s.name = 'plc'
UNION ALL
SELECT 'slow/device/depth', s.id, '', 'analog', 'm', 0, 10, '{"expected_interval": 1}',
       $1::timestamptz - INTERVAL '90 days'
FROM source AS s WHERE s.name = 'slow'
"""
_STORY = (
    # three outages of the whole source, two of them recorded in two pieces, and a gap of each channel in the first one
    """
    INSERT INTO plant.gap (source_id, channel_id, from_time, to_time, reason)
    SELECT s.id, NULL::int, $1::timestamptz - g.ago * INTERVAL '1 s', $1::timestamptz - g.until * INTERVAL '1 s',
           g.reason
    FROM plant.source AS s
    CROSS JOIN (VALUES (1500, 1400, 'stopped'), (1400, 1380, 'disconnected'), (1000, 950, 'disconnected'),
                       (500, 480, 'stopped'), (485, 450, 'disconnected')) AS g (ago, until, reason)
    WHERE s.name = 'plc'
    UNION ALL
    SELECT c.source_id, c.id, $1::timestamptz - (1450 - c.id) * INTERVAL '1 s',
           $1::timestamptz - INTERVAL '1390 s', 'stale'
    FROM plant.channel AS c WHERE c.name LIKE 'pump/house/level%' AND c.name <> 'pump/house/level1'
    """,
    # a device that answers every 2.1 s and is asked every second; once it took a minute
    """
    INSERT INTO plant.samples_raw (channel_id, time, value, status)
    SELECT c.id, $1::timestamptz - n * INTERVAL '2.1 s', 4 + sin(n), 0
    FROM plant.channel AS c CROSS JOIN generate_series(0, 1000) AS n
    WHERE c.name = 'slow/device/depth' AND n NOT BETWEEN 101 AND 130
    """,
    """
    INSERT INTO plant.gap (source_id, channel_id, from_time, to_time, reason)
    SELECT c.source_id, c.id, s.before, s.time, 'poll_missed'
    FROM plant.channel AS c
    CROSS JOIN LATERAL (
        SELECT r.time, lag(r.time) OVER (ORDER BY r.time) AS before
        FROM plant.samples_raw AS r
        WHERE r.channel_id = c.id
    ) AS s
    WHERE c.name = 'slow/device/depth' AND s.before IS NOT NULL AND $1::timestamptz IS NOT NULL
    """,
    # arrived within 0.2 s, one tag of one source from 2029
    """
    INSERT INTO plant.ingest_batch (source_id, sequence, kind, rows, first_time, last_time, received_at, written_at)
    SELECT s.id, 2000 - n, 'samples', 10, a.at - INTERVAL '1 s',
           CASE s.name WHEN 'plc' THEN TIMESTAMPTZ '2029-11-22 00:00+00' ELSE a.at - INTERVAL '0.1 s' END,
           a.at, a.at + INTERVAL '0.2 s'
    FROM plant.source AS s
    CROSS JOIN generate_series(-600, 1500) AS n
    CROSS JOIN LATERAL (SELECT $1::timestamptz - n * INTERVAL '1 s') AS a (at)
    """,
    """
    INSERT INTO plant.event (time, id, type, source_id, channel_id, text, detail)
    SELECT $1::timestamptz - INTERVAL '5 min', 1, 'alarm', c.source_id, c.id, 'unacknowledged_active',
           '{"limit": "hi", "since": 1773050400000000, "value": 43.51234567891, "revision": 7, "late": true}'::jsonb
    FROM plant.channel AS c WHERE c.name = 'pump/house/level1'
    UNION ALL
    SELECT $1::timestamptz - INTERVAL '6 min', 2, 'text', c.source_id, c.id, 'AUTOMATIC', '{}'
    FROM plant.channel AS c WHERE c.name = 'pump/house/mode'
    """,
    # an overload for a minute, an hour ago one for ten, and one that goes on since 20 s
    """
    INSERT INTO plant.event (time, id, type, source_id, text, detail)
    SELECT $1::timestamptz - o.ago * INTERVAL '1 s', 10000 + o.ago, 'overload', NULL::int, o.text,
           jsonb_build_object('lag_seconds', o.lag, 'pace_seconds', o.pace, 'cpu_pressure', 0.9, 'spool_bytes', 4096)
    FROM (VALUES (4200, 'overloaded', 5.0, 0.0), (3600, 'good', 99.0, 0.0), (900, 'overloaded', 5.5, 0.0),
                 (840, 'good', 8.2, 2.4), (20, 'overloaded', 0.1, 0.0)) AS o (ago, text, lag, pace)
    UNION ALL
    SELECT $1::timestamptz - e.ago * INTERVAL '1 s', 20000 + e.ago, 'poll_stretched', s.id, 'stretched',
           jsonb_build_object('interval_seconds', 1.0, 'pace_seconds', e.pace)
    FROM plant.source AS s CROSS JOIN (VALUES (1700, 60.0), (10, 3.5)) AS e (ago, pace)
    WHERE s.name = 'plc'
    """,
    """
    INSERT INTO plant.job_run (job, started_at, ended_at, outcome, detail)
    SELECT r.job, $1::timestamptz - r.ago * INTERVAL '1 s', $1::timestamptz - (r.ago - 5) * INTERVAL '1 s', r.outcome,
           r.detail
    FROM (VALUES ('rollups', 890, 'skipped', 'waits: ingest is behind since 09:30:00 UTC'), ('rollups', 830, 'ok', ''),
                 ('compress', 910, 'ok', 'gave way to ingest; continues'), ('compress', 800, 'ok', ''),
                 ('seal', 880, 'skipped', 'there is no key'), ('rollups', 15, 'skipped', 'waits: ingest is behind'))
         AS r (job, ago, outcome, detail)
    """,
)


@pytest.fixture(scope="module")
def story(server: str, template: str) -> Iterator[tuple[Database, datetime]]:
    """A database with this story, and when it ends: now, not when the tests were collected."""
    now = datetime.now(UTC).replace(microsecond=0)

    async def fill(database: Database) -> None:
        connection = await asyncpg.connect(database.owner_dsn)
        for statement in (_PLANT, *_STORY):
            await connection.execute(statement, now)
        await connection.close()

    with prepared(server, template, "story", fill) as database:
        yield database, now


@pytest.fixture
async def panels(story: tuple[Database, datetime], tmp_path: Path) -> AsyncIterator[Panels]:
    database, now = story
    async with reading(database.reader_dsn, tmp_path) as reader:
        yield Panels(reader, now)


async def test_future_sample_does_not_affect_the_displayed_lag(panels: Panels) -> None:
    (now,) = rows(await panels.ask("health", "Lag"))
    assert now["Lag"] == pytest.approx(0.25, abs=0.1)
    assert now["In the future"] > 3e7
    course = await panels.ask("health", "Lag from newest source time to commit")
    assert set(course["metric"]) == {"plc", "slow"}
    assert all(0.1 < value < 0.4 for value in course["value"])
    sources = {row["Source"]: row for row in rows(await panels.ask("health", "Sources"))}
    assert sources["plc"]["In the future"] > 3e7
    assert sources["slow"]["In the future"] is None
    assert sources["plc"]["Latest sample"] / 1000 < datetime.now(UTC).timestamp() + 1200


async def test_an_overload_shows_what_was_late_and_what_waited(panels: Panels) -> None:
    goes_on, over = rows(await panels.ask("health", "Overloads"))
    assert (over["State"], over["Duration"], over["Deferred jobs"]) == ("ended", 60, "compress, rollups")
    assert (over["Lag"], over["Poll interval"], over["CPU pressure"], over["Spools"]) == (8.2, 2.4, 0.9, 4096)
    assert (goes_on["State"], goes_on["Deferred jobs"]) == ("ongoing", "rollups")
    assert goes_on["Duration"] >= 20 and goes_on["Poll interval"] == 3.5, "as was said since it began"
    states: dict[str, list[tuple[int, int | None]]] = {}
    for row in rows(await panels.ask("health", "Overload, deferred jobs")):
        ago = round(panels.over.until.timestamp() - row["time"] / 1000)
        states.setdefault(row["metric"], []).append((ago, row["value"]))
    assert list(states) == ["ingest", "rollups", "compress", "seal", "archive", "analyze"]
    assert states["ingest"] == [(1800, 0), (900, 2), (840, 0), (20, 2)]
    assert states["rollups"] == [(1800, None), (890, 1), (830, 0), (15, 1)], "it had not run yet"
    assert states["compress"] == [(1800, None), (910, 0), (905, 1), (800, 0)]
    assert [value for _, value in states["seal"]] == [None, 0]


async def test_nothing_is_normal_or_zero_before_the_installation(
    panels: Panels, story: tuple[Database, datetime]
) -> None:
    database, now = story
    begin = now - timedelta(minutes=70)
    earlier = Panels(panels.reader, now - timedelta(minutes=60), interval_ms=30_000)  # to 10 min after the begin
    async with connected(database.owner_dsn) as owner:
        await owner.execute("UPDATE plant.channel SET configured_at = $1", begin)
        try:
            ingest = [
                row for row in rows(await earlier.ask("health", "Overload, deferred jobs")) if row["metric"] == "ingest"
            ]
            stored = await earlier.ask("health", "Samples stored per second, by source")
        finally:
            await owner.execute("UPDATE plant.channel SET configured_at = $1", now - timedelta(days=90))
    begins = begin.timestamp() * 1000
    assert [(row["time"], row["value"]) for row in ingest[:2]] == [(begins - 20 * 60_000, None), (begins, 0)]
    assert set(stored["metric"]) == {"plc", "slow"}
    assert begins - 30_000 <= min(stored["time"]) <= begins
    assert set(stored["value"]) == {0}


async def test_gaps_are_counted_as_outages(panels: Panels) -> None:
    (unit,) = (row for row in rows(await panels.ask("plant", "Units")) if row["Unit"] == "pump/house")
    assert (unit["Channels"], unit["Outages"]) == (15, 3)
    (missing,) = rows(await panels.ask("unit", "Missing data"))
    assert missing == {"Outages": 3, "Missing, summed": 15 * (120 + 50 + 50)}
    (whole,) = rows(await panels.ask("unit", "Missing data", unit="no/unit"))
    assert whole == {"Outages": 0, "Missing, summed": 0}
    begun = await panels.ask("health", "New outages, by reason")
    reasons = {"stopped", "disconnected", "stale", "poll_missed"}
    assert {r: sum(n for m, n in zip(begun["metric"], begun["value"], strict=True) if m == r) for r in reasons} == {
        "stopped": 2,
        "disconnected": 3,
        "stale": 1,
        "poll_missed": 1,
    }


async def test_status_counts_outages_too(story: tuple[Database, datetime]) -> None:
    database, now = story
    connection = await asyncpg.connect(database.reader_dsn)
    found = await connection.fetchrow(load("status")["select_database"], None)
    await connection.close()
    assert found is not None
    began = [now - timedelta(seconds=ago) for ago in (2100, 1500, 1000, 500)]  # slow, and three
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    assert (found["outages_open"], found["outages_today"]) == (0, sum(at >= today for at in began))


async def test_gap_of_a_channel_is_not_shown_for_another(panels: Panels) -> None:
    states = await panels.ask("forensics", "Gaps by channel")
    course: dict[str, list[int]] = {}
    for metric, value in zip(states["metric"], states["value"], strict=True):
        if course.setdefault(metric, [-1])[-1] != value:
            course[metric].append(value)
    # stopped, then no connection, and there again: three times
    assert course["level1"] == [-1, 0, 2, 3, 0, 3, 0, 2, 3, 0]
    assert course["level2"] == [-1, 0, 2, 5, 3, 0, 3, 0, 2, 3, 0]
    none = await panels.ask("forensics", "Gaps by channel", unit="slow")
    # the rhythm of a slow device is not missing; the minute that it took once is
    assert none["value"] == [0, 4, 0]


async def test_slow_device_is_shown_without_false_gaps(panels: Panels) -> None:
    device = {"unit": "slow/device", "channel": "slow/device/depth"}
    bands = next(
        annotation for annotation in Library().dashboard("plantlog-channel").annotations() if annotation.ref == "Gaps"
    )
    drawn = await panels.rows(bands, **device)
    assert [(until - since) / 1000 for since, until in zip(drawn["time"], drawn["timeEnd"], strict=True)] == [65.1]
    curve = await panels.ask("channel", "Trend", **device)
    missing = sum(value is None for value in curve["mean"])
    assert missing in (64, 65, 66), "a second each"
    (in_gaps,) = (await panels.ask("channel", "In gaps", **device))["In gaps"]
    assert in_gaps == pytest.approx(100 * 65.1 / 1800, abs=0.1)
    assert (await panels.ask("forensics", "Coverage", **device))["Coverage"] == [pytest.approx(100 - in_gaps, abs=0.1)]


async def test_time_before_a_channel_was_configured_is_not_covered(
    panels: Panels, story: tuple[Database, datetime]
) -> None:
    database, now = story
    owner = await asyncpg.connect(database.owner_dsn)
    try:
        await owner.execute(
            "INSERT INTO plant.channel (name, source_id, address, kind, configured_at) "
            "SELECT 'late/device/level', s.id, '', 'analog', $1 FROM plant.source AS s WHERE s.name = 'slow'",
            now - timedelta(seconds=600),
        )
        await owner.execute(
            "INSERT INTO plant.samples_raw (time, value, channel_id, status) "
            "SELECT $1, 1, c.id, 0 FROM plant.channel AS c WHERE c.name = 'late/device/level'",
            now - timedelta(seconds=150),
        )
        for ends, covered in ((None, 0), (now - timedelta(seconds=150), 25)):
            await owner.execute(
                "INSERT INTO plant.gap (source_id, channel_id, from_time, to_time, reason) "
                "SELECT c.source_id, c.id, c.configured_at, $1, 'disconnected' "
                "FROM plant.channel AS c WHERE c.name = 'late/device/level'",
                ends,
            )
            device = {"unit": "late/device", "channel": "late/device/level"}
            assert (await panels.ask("forensics", "Coverage", **device))["Coverage"] == pytest.approx([covered], abs=1)
            assert (await panels.ask("channel", "In gaps", **device))["In gaps"] == pytest.approx(
                [100 - covered], abs=1
            )
            await owner.execute("DELETE FROM plant.gap WHERE channel_id = (SELECT max(id) FROM plant.channel)")
        not_read = (await panels.ask("forensics", "Coverage", **device))["Coverage"]
        assert not_read == pytest.approx([25], abs=1), "nobody recorded why it was not read"
        assert (await panels.ask("channel", "In gaps", **device))["In gaps"] == [0], "there is no gap on record"
        await owner.execute("UPDATE plant.channel SET retired_at = configured_at WHERE name = 'late/device/level'")
        assert (await panels.ask("forensics", "Coverage", **device))["Coverage"] == []
        assert (await panels.ask("channel", "In gaps", **device))["In gaps"] == []
    finally:
        await owner.execute("DELETE FROM plant.channel WHERE name = 'late/device/level'")
        await owner.close()


async def test_open_gap_says_why_its_source_has_no_data_now(panels: Panels, story: tuple[Database, datetime]) -> None:
    database, now = story
    owner = await asyncpg.connect(database.owner_dsn)
    try:
        await owner.execute("UPDATE plant.source SET reason = 'the server rejects user anna' WHERE name = 'plc'")
        await owner.execute(
            "INSERT INTO plant.gap (source_id, from_time, reason, detail) "
            "SELECT s.id, $1, 'disconnected', 'nothing listens' FROM plant.source AS s WHERE s.name = 'plc'",
            now - timedelta(seconds=60),
        )
        first, *others = rows(await panels.ask("health", "Gaps"))
        assert (first["State"], first["Detail"]) == ("open", "the server rejects user anna")
        assert {(row["State"], row["Detail"]) for row in others} == {("closed", "")}
    finally:
        await owner.execute("UPDATE plant.source SET reason = NULL WHERE name = 'plc'")
        await owner.execute("DELETE FROM plant.gap WHERE to_time IS NULL")
        await owner.close()


async def test_metres_are_not_shown_as_minutes(panels: Panels) -> None:
    device = {"unit": "slow/device", "channel": "slow/device/depth"}
    assert await panels.ask("channel", "Trend", "Unit", **device) == {"unit": ["suffix:m"]}
    (newest,) = rows(await panels.ask("channel", "Latest value", **device))
    assert newest == {"Latest": "4.841 m", "% of range": "48 % of 0 to 10"}


async def test_channel_without_range_is_on_no_range_chart(panels: Panels) -> None:
    (newest,) = rows(await panels.ask("channel", "Latest value", channel="pump/house/level1"))
    assert newest == {"Latest": None, "% of range": None}


async def test_text_channel_can_be_selected(panels: Panels) -> None:
    device = {"unit": "pump/house", "channel": "pump/house/mode"}
    channels = Library().dashboard("plantlog-channel").variable("channel")
    assert device["channel"] in (await panels.rows(channels, **device))["__value"]
    (newest,) = rows(await panels.ask("channel", "Latest value", **device))
    assert newest == {"Latest": "AUTOMATIC", "% of range": None}
    (event,) = rows(await panels.ask("channel", "Events", **device))
    assert (event["Type"], event["Text"], event["Detail"]) == ("text", "AUTOMATIC", None)
    assert await panels.ask("channel", "Samples", **device) == {"Samples": [1], "Good": [100]}
    assert not any((await panels.ask("channel", "Trend", **device)).values())
    (drawn,) = rows(await panels.ask("channel", "Quality or text value", **device))
    assert (drawn["metric"], drawn["value"]) == ("Text", "AUTOMATIC")


async def test_event_details_are_readable(panels: Panels) -> None:
    lines = [row for row in rows(await panels.ask("forensics", "Timeline")) if row["Type"] == "alarm"]
    expected = "late yes, limit hi, since 2026-03-09 10:00:00 UTC, value 43.512346"
    assert [line["Detail"] for line in lines] == [f"unacknowledged_active: {expected}"]
    (event,) = rows(await panels.ask("channel", "Events", channel="pump/house/level1"))
    assert event["Detail"] == expected


async def test_lasting_state_is_drawn_from_the_left_edge(panels: Panels) -> None:
    states = list(rows(await panels.ask("health", "Source states")))
    assert [(row["metric"], row["value"]) for row in states] == [("plc", 3)]
    assert states[0]["time"] == panels.over.since.timestamp() * 1000


@pytest.mark.parametrize(
    ("uid", "title"),
    [
        ("health", "New outages, by reason"),
        ("forensics", "Activity by type"),
    ],
)
async def test_every_bar_interval_has_a_value(panels: Panels, uid: str, title: str) -> None:
    bars = await panels.ask(uid, title)
    times = sorted(set(bars["time"]))
    assert len({b - a for a, b in pairwise(times)}) == 1
    assert len(bars["time"]) == len(times) * len(set(bars["metric"]))


async def test_reason_of_a_unit_is_the_one_that_matters_now(database: Database) -> None:
    until = datetime.now(UTC)
    since = {  # in the order of their ends
        "disconnected": until - timedelta(minutes=5),  # the whole source
        "bad_quality": until - timedelta(minutes=8),  # two channels of three
        "not_written": until - timedelta(minutes=9),  # one, as the next
        "refused": until - timedelta(days=20),
    }
    async with connected(database.owner_dsn) as owner:
        await add_sources(owner, "plc")
        await add_channels(owner, (1, 2, 3), "pump/house/{}")
        gap = "INSERT INTO plant.gap (source_id, channel_id, from_time, reason) VALUES (1, $1, $2, $3)"
        channels: dict[str, list[int | None]] = {"refused": [1], "bad_quality": [2, 3], "not_written": [2]}
        channels["disconnected"] = [None]  # all of the source
        for reason, ids in channels.items():
            for channel in ids:
                await owner.execute(gap, channel, since[reason], reason)
        library = Library().dashboard("plantlog-plant")
        number = next(p["id"] for p in library.panels() if (p["type"], p["title"]) == ("table", "Units"))
        (query,) = library.panel(number)
        sql, parameters = expand(query.sql, VALUES, ChartRange(until - timedelta(hours=1), until, 5000))
        for reason, missing in {"disconnected": 3, "bad_quality": 3, "not_written": 2, "refused": 1}.items():
            (row,) = await owner.fetch(sql, *parameters)
            assert (row["Reason"], row["Since"], row["No data"]) == (reason, since[reason], missing)
            await owner.execute("UPDATE plant.gap SET to_time = now() WHERE reason = $1", reason)


async def test_time_before_a_channel_is_not_missing(panels: Panels, story: tuple[Database, datetime]) -> None:
    async with connected(story[0].owner_dsn) as owner:
        begin = panels.over.since + (panels.over.until - panels.over.since) / 2
        await owner.execute("UPDATE plant.channel SET configured_at = $1 WHERE name = 'pump/house/level2'", begin)
    device = {"unit": "pump/house", "channel": "pump/house/level2"}
    drawn = [
        (row["time"], row["value"]) for row in rows(await panels.ask("channel", "Quality or text value", **device))
    ]
    before = {value for at, value in drawn if at < begin.timestamp() * 1000}
    assert before == {"not configured yet"}
    assert "not configured yet" not in {value for at, value in drawn if at >= begin.timestamp() * 1000}
