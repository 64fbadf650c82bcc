"""Dashboards of a database that two installations share: each panel shows those that are chosen.

Both have a part of unit hall/line. Each has a gap, an event, an alarm, quarantine, batches and an overload of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from dashboards.fill import queries
from dashboards.viewer.macros import ChartRange, expand
from dashboards.viewer.reader import ReaderPool
from tests.database import Database, connected, prepared
from tests.integration.dashboards.viewer.browser_page import open_page, running_browser
from tests.integration.dashboards.viewer.sample_plant import NOW, SINCE

_IDS = {"north": "10000000-0000-4000-8000-000000000000", "south": "20000000-0000-4000-8000-000000000000"}
_OVER = ChartRange(SINCE, NOW, 5000)
_FILL = f"""
INSERT INTO plant.installation (id, plant, class_prefix, number, viewer_url)
VALUES ('{_IDS["north"]}', 'north', '', 1, 'http://north:9110'),
       ('{_IDS["south"]}', 'south', '20000000:', 2, 'http://south:9210');
INSERT INTO plant.source (name, kind, address, state, state_since, installation_id)
SELECT i.plant || '-plc', 'modbus', '', CASE i.plant WHEN 'north' THEN 'connected' ELSE 'disconnected' END,
       '{NOW}'::timestamptz - INTERVAL '1 day', i.id FROM plant.installation AS i;
INSERT INTO plant.channel (name, source_id, address, kind, unit, range_lo, range_hi, attributes)
SELECT c.name, s.id, '', c.kind, c.unit, 0, 10, '{{"expected_interval": 1, "alarm_hi": 9}}'
FROM (VALUES ('north-plc', 'hall/line/speed', 'analog', 'm/s'), ('north-plc', 'hall/line/running', 'discrete', ''),
             ('north-plc', 'mill/pump/flow', 'analog', 'm³/h'), ('south-plc', 'hall/line/weight', 'analog', 'kg'),
             ('south-plc', 'hall/line/open', 'discrete', ''), ('south-plc', 'hall/line/tare', 'analog', 'kg'),
             ('south-plc', 'quay/crane/load', 'analog', 't'))
     AS c (source, name, kind, unit)
JOIN plant.source AS s ON s.name = c.source;
INSERT INTO plant.samples_raw (channel_id, time, value, status)
SELECT c.id, '{NOW}'::timestamptz - n * INTERVAL '1 s', n % 2, 0
FROM plant.channel AS c CROSS JOIN generate_series(-300, 60) AS n;
INSERT INTO plant.gap (source_id, channel_id, from_time, to_time, reason)
SELECT s.id, NULL, '{NOW}'::timestamptz - INTERVAL '20 min', '{NOW}'::timestamptz - INTERVAL '15 min', s.name
FROM plant.source AS s
UNION ALL
SELECT c.source_id, c.id, '{NOW}'::timestamptz - INTERVAL '1 min', NULL, 'poll_failed'
FROM plant.channel AS c WHERE c.name IN ('hall/line/running', 'hall/line/open', 'hall/line/tare');
INSERT INTO plant.event (time, id, type, source_id, channel_id, text, detail)
SELECT '{NOW}'::timestamptz - INTERVAL '9 min', c.id, 'conflict', NULL::int, c.id, c.name, '{{}}'::jsonb
FROM plant.channel AS c
UNION ALL
SELECT '{NOW}'::timestamptz - INTERVAL '8 min', 100 + s.id, 'restart', s.id, NULL, s.name, '{{}}' FROM plant.source AS s
UNION ALL
SELECT '{NOW}'::timestamptz - INTERVAL '7 min', 200, 'retention', NULL, NULL, 'both', '{{}}'
UNION ALL
SELECT '{NOW}'::timestamptz - INTERVAL '1 min' * o.minutes, 300 + o.minutes, 'overload', NULL, NULL, o.text,
       jsonb_build_object('lag_seconds', o.minutes, 'installation', i.id)
FROM plant.installation AS i
JOIN (VALUES ('north', 30, 'overloaded'), ('south', 20, 'overloaded'), ('north', 10, 'good'))
        AS o (plant, minutes, text)
    ON o.plant = i.plant;
INSERT INTO plant.event_count_1m (bucket, type, channel_id, n)
SELECT date_trunc('minute', '{NOW}'::timestamptz) - INTERVAL '5 min', t.type, c.id, c.id
FROM plant.channel AS c CROSS JOIN (VALUES ('alarm'), ('bad_quality')) AS t (type);
INSERT INTO plant.alarm (channel_id, limit_name, state, active, since, value, threshold, priority, changed_at, revision)
SELECT c.id, l.name, l.state, true, '{NOW}', 43, 42, 'high', '{NOW}', 1
FROM plant.channel AS c
CROSS JOIN (VALUES ('hi', 'unacknowledged_active'), ('rate', 'out_of_service')) AS l (name, state)
WHERE c.kind = 'analog';
INSERT INTO plant.quarantine (id, reason, source_id, received_at)
SELECT n, 'refused', s.id, '{NOW}'
FROM plant.source AS s JOIN generate_series(1, 3) AS n ON (n = 1) = (s.name = 'north-plc');
INSERT INTO plant.ingest_batch (source_id, sequence, kind, rows, first_time, last_time, received_at, written_at)
SELECT s.id, 4000 - n, 'samples', 60 * s.id, t.at, t.at, t.at, t.at + s.id * INTERVAL '1 s'
FROM plant.source AS s
CROSS JOIN generate_series(-3600, 600) AS n
CROSS JOIN LATERAL (SELECT '{NOW}'::timestamptz - n * INTERVAL '1 s') AS t (at);
INSERT INTO plant.retention_class (name, installation_id)
SELECT i.class_prefix || 'default', i.id FROM plant.installation AS i WHERE i.plant = 'south';
INSERT INTO plant.job_run (job, started_at, ended_at, outcome, detail, installation_id)
SELECT r.job, '{NOW}'::timestamptz - r.minutes * INTERVAL '1 min', '{NOW}', r.outcome, i.plant, i.id
FROM (VALUES ('backup', 20, 'failed', 'north'), ('backup', 10, 'ok', 'south'),
             ('retain', 20, 'failed', 'north'), ('retain', 10, 'ok', 'south')) AS r (job, minutes, outcome, plant)
JOIN plant.installation AS i ON i.plant = r.plant;
UPDATE plant.retention_class AS r SET installation_id = i.id
FROM plant.installation AS i WHERE i.plant = 'north' AND r.installation_id IS NULL;
ANALYZE;
"""


@pytest.fixture(scope="module")
def filled(server: str, template: str) -> Iterator[Database]:
    """Two installations, for the reader and the page of this folder."""

    async def fill(database: Database) -> None:
        async with connected(database.owner_dsn) as owner:
            await owner.execute(_FILL)

    with prepared(server, template, "shared", fill) as database:
        yield database


def _ago(*minutes: int) -> set[Any]:
    """Times as panels have them: ms since 1970."""
    return {(NOW - timedelta(minutes=minute)).timestamp() * 1000 for minute in minutes}


_NORTH, _SOUTH = {"hall/line/speed", "mill/pump/flow"}, {"hall/line/weight", "hall/line/tare", "quay/crane/load"}
_UNITS = {"hall/line", "mill/pump"}, {"hall/line", "quay/crane"}
_JOBS = ("rollups", "compress", "seal", "archive", "analyze")
# Query, column, and what it has for each of the two.
_SHOWN: tuple[tuple[str, str, set[Any], set[Any]], ...] = (
    ("health rate_now", "Samples per second", {60.0}, {120.0}),
    ("health lag_now", "Lag", {1.0}, {2.0}),
    ("health wait_now", "Longest wait", {1.0}, {2.0}),
    ("health sources_up", "Disconnected", {0}, {1}),
    ("health gaps_open", "Channels", {1}, {2}),
    ("health quarantined", "Quarantined", {1}, {2}),
    ("health rate", "metric", {"north-plc"}, {"south-plc"}),
    ("health lag", "metric", {"north-plc"}, {"south-plc"}),
    ("health wait", "maximum", {1.0}, {2.0}),
    ("health overload_states", "time", _ago(50, 30, 10), _ago(50, 20)),
    ("health overloads", "State", {"ended"}, {"ongoing"}),
    ("health overloads", "Plant", {"north"}, {"south"}),
    ("health source_states", "metric", {"north-plc"}, {"south-plc"}),
    ("health gaps_begun", "metric", {"north-plc", "poll_failed"}, {"south-plc", "poll_failed"}),
    ("health sources", "Source", {"north-plc\nnorth"}, {"south-plc\nsouth"}),
    ("health gaps_latest", "Source", {"north-plc"}, {"south-plc"}),
    ("health gaps_latest", "Plant", {"north"}, {"south"}),
    ("health counted", "value", {0, 6}, {0, 22}),
    (
        "health events_latest",
        "Where",
        {*_NORTH, "hall/line/running", "north-plc", None},
        {*_SOUTH, "hall/line/open", "south-plc", None},
    ),
    ("health alarms_now", "Active", {2}, {3}),
    ("health jobs", "Plant", {"north", None}, {"south", None}),
    ("health jobs", "Outcome", {"failed", "ok"}, {"ok"}),
    ("plant areas", "__value", {"hall", "mill"}, {"hall", "quay"}),
    ("plant channels", "Channels", {3}, {4}),
    ("plant missing_now", "No data now", {1}, {2}),
    ("plant units", "Unit", *_UNITS),
    ("plant units", "Plant", {"north"}, {"south"}),
    ("plant alarms_now", "Active", {2}, {3}),
    ("plant alarms", "Channel", _NORTH, _SOUTH),
    ("plant inhibited", "Channel", _NORTH, _SOUTH),
    ("plant alarm_rate", "metric", {"hall", "mill"}, {"hall", "quay"}),
    ("unit units", "__value", *_UNITS),
    ("unit measures", "__text", {"m/s"}, {"kg"}),
    ("unit summary", "Channels", {2}, {3}),
    ("unit gaps", "Missing, summed", {660.0}, {1020.0}),
    ("unit curves", "metric", {"speed"}, {"weight", "tare"}),
    ("unit states", "metric", {"running"}, {"open"}),
    ("unit channels", "Channel", {"speed", "running"}, {"weight", "tare", "open"}),
    ("unit events", "Channel", {"speed", "running"}, {"weight", "tare", "open"}),
    ("unit gap_bands", "text", {"north-plc: north-plc"}, {"south-plc: south-plc", "tare: poll_failed"}),
    ("unit alarms", "Active alarms", {1}, {2}),
    ("channel channels", "__text", {"speed", "running"}, {"weight", "tare", "open"}),
    ("storage retention", "Class", {"default"}, {"south: default"}),
    ("forensics viewer", "__value", {"http://north:9110"}, {"http://south:9210"}),
)


async def _column(reader: ReaderPool, query: str, column: str, *chosen: str) -> list[Any]:
    name, section = query.split()
    values = {
        "installation": [_IDS[one] for one in chosen],
        "area": ["hall", "mill", "quay"],
        "unit": ["hall/line"],
        "measure": ["m/s 1", "kg 1"],
    }
    answer = await reader.query(*expand(queries(name)[section], values, _OVER))
    return answer.columns[answer.names.index(column)]


@pytest.mark.parametrize(
    ("query", "column", "north", "south"), _SHOWN, ids=[f"{query} {column}" for query, column, *_ in _SHOWN]
)
async def test_panel_shows_the_chosen_installations(
    reader: ReaderPool, query: str, column: str, north: set[Any], south: set[Any]
) -> None:
    assert set(await _column(reader, query, column, "north")) == north
    assert set(await _column(reader, query, column, "south")) == south


async def test_link_leads_to_the_viewer_of_the_channels_installation(reader: ReaderPool) -> None:
    sql = queries("channel")["viewer"]
    for channel, viewer in (
        ("mill/pump/flow", "http://north:9110"),
        ("quay/crane/load", "http://south:9210"),
        ("none", "http://127.0.0.1:9110"),
    ):
        assert (await reader.query(*expand(sql, {"channel": [channel]}, _OVER))).columns == [[viewer], [viewer]]


async def test_several_installations_are_shown_together(reader: ReaderPool) -> None:
    both = "north", "south"
    assert set(await _column(reader, "plant units", "Unit", *both)) == _UNITS[0] | _UNITS[1]
    assert set(await _column(reader, "plant units", "Plant", *both)) == {"north, south", "north", "south"}
    assert await _column(reader, "unit summary", "Channels", *both) == [5]
    metrics = await _column(reader, "health overload_states", "metric", *both)
    assert set(metrics) == {"ingest of north", "ingest of south", *_JOBS}
    assert await _column(reader, "health overloads", "State", *both) == ["ongoing", "ended"]


async def test_success_of_one_installation_does_not_hide_the_failure_of_another(reader: ReaderPool) -> None:
    both = "north", "south"
    jobs = zip(
        await _column(reader, "health jobs", "Job", *both),
        await _column(reader, "health jobs", "Outcome", *both),
        await _column(reader, "health jobs", "Detail", *both),
        strict=True,
    )
    assert list(jobs) == [("backup", "failed", "north"), ("backup", "ok", "south"), ("retain", "ok", "south")]


async def test_plants_of_the_same_name_have_rows_of_their_own(reader: ReaderPool, filled: Database) -> None:
    async with connected(filled.owner_dsn) as owner:
        await owner.execute("UPDATE plant.installation SET plant = 'north' WHERE plant = 'south'")
        try:
            metrics = await _column(reader, "health overload_states", "metric", "north", "south")
        finally:
            await owner.execute("UPDATE plant.installation SET plant = 'south' WHERE number = 2")
    assert set(metrics) == {"ingest of north 10000000", "ingest of north 20000000", *_JOBS}


@pytest.mark.slow
async def test_chosen_installation_is_kept_from_page_to_page(page: str) -> None:
    chosen = f"var-installation={_IDS['south']}"
    async with running_browser() as browser:
        look = await open_page(browser, page)
        variables = look.page.locator("#variables")
        await look.open("plantlog-plant")
        assert await variables.inner_text() == "Installation\nAll\nArea\nAll"
        assert "var-installation" not in look.page.url
        await look.page.locator(".variable").first.get_by_role("button").click()
        await look.page.get_by_role("option", name="south").click()
        await look.page.locator("html[data-changed=installation]").wait_for(state="attached")
        await look.wait_until_loaded()
        assert await variables.inner_text() == "Installation\nsouth\nArea\nAll"
        await look.page.get_by_role("link", name="quay/crane", exact=True).first.click()
        await look.opened("plantlog-unit")
        assert await variables.inner_text() == "Installation\nsouth\nUnit\nquay/crane"
        await look.page.get_by_role("link", name="load", exact=True).first.click()
        await look.opened("plantlog-channel")
        assert chosen in look.page.url
        for uid in ("storage", "forensics", "health", "plant"):
            await look.page.locator(f"#levels [data-uid=plantlog-{uid}]").click()
            await look.opened(f"plantlog-{uid}")
            assert chosen in look.page.url
        # All areas of one installation were shown: of all installations it is all areas again.
        await look.page.get_by_role("button", name="south").click()
        await look.page.locator(".variable").first.get_by_role("option", name="All").click()
        await look.page.wait_for_url(lambda url: "var-installation" not in url)
        await look.wait_until_loaded()
        assert await variables.inner_text() == "Installation\nAll\nArea\nAll"
        assert look.wrong == []
