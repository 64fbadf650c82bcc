"""Every query of every panel, variable and annotation, on a plant with samples, gaps, events, alarms and jobs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from dashboards.fill import queries
from dashboards.viewer.library import Dashboard, Library, Query
from dashboards.viewer.macros import ChartRange, expand
from dashboards.viewer.reader import ReaderPool
from ops.maintenance.disk_budget import duration
from tests.database import Database, add_channels, add_sources
from tests.integration.dashboards.viewer.panels import frame_of
from tests.integration.dashboards.viewer.sample_plant import CHANNEL, NOW, SINCE, UNIT
from tests.integration.dashboards.viewer.serving import reading
from tests.maintenance import add_installation
from tests.minute_writer import refreshed

_OVER = ChartRange(SINCE, NOW, 5000)
_VALUES = {
    "installation": [""],
    "area": ["boilerhouse", "meters", "tankfarm"],
    "unit": [UNIT],
    "measure": ["bar 2"],
    "channel": [CHANNEL],
    "compare": ["600"],
    "question": ["change_points"],
}
_BLOCKS = 40_000  # of 8 KiB that one query may touch on this plant: 90 channels, 75 minutes
_NEVER_WHOLE = re.compile(r"samples_raw|samples_packed|rollup_1m|_hyper_1_")  # read by key and time, never through


def _queries() -> Iterator[tuple[str, Query]]:
    for dashboard in Library():
        for panel in dashboard.panels():
            for query in dashboard.panel(panel["id"]):
                yield f"{dashboard.uid} {panel['title']} {query.ref}", query
        for query in _variables(dashboard):
            yield f"{dashboard.uid} variable {query.ref}", query
        for query in dashboard.annotations():
            yield f"{dashboard.uid} annotation {query.ref}", query


def _variables(dashboard: Dashboard) -> Iterator[Query]:
    for variable in dashboard.content["templating"]["list"]:
        if variable["type"] == "query":
            yield dashboard.variable(variable["name"])


_STORAGE_RUN = """
INSERT INTO plant.job_run (job, started_at, ended_at, outcome, bytes, detail) VALUES ('storage', $1, $1, 'ok', 1, $2)
"""
_ALL = list(_queries())
_EACH = pytest.mark.parametrize("query", [query for _, query in _ALL], ids=[name for name, _ in _ALL])
_OF_DATABASE = [(name, query) for name, query in _ALL if query.question is None]


def _expanded(query: Query) -> tuple[str, list[object]]:
    """The query as of the plant's time, however long the tests have run."""
    sql, parameters = expand(query.sql, _VALUES, _OVER)
    return sql.replace("now()", f"timestamptz '{NOW.isoformat()}'"), parameters


@_EACH
async def test_every_panel_returns_rows(reader: ReaderPool, query: Query) -> None:
    sql, parameters = _expanded(query)
    answer = await frame_of(reader, query, _VALUES, _OVER, sql, parameters)
    assert answer.columns[0], "no rows"
    assert any(value is not None for column in answer.columns for value in column)
    if query.time_series:
        assert answer.kinds[0] == "time"
        assert answer.names[0] == "time"
        assert answer.columns[0] == sorted(answer.columns[0])
        assert "number" in answer.kinds


@pytest.mark.parametrize("query", [query for _, query in _OF_DATABASE], ids=[name for name, _ in _OF_DATABASE])
async def test_panel_plan_is_within_its_cost_limit(filled: Database, query: Query) -> None:
    sql, parameters = expand(query.sql, _VALUES, _OVER)
    # The plant is so small that looking through a table would be cheapest: what must be looked through remains.
    settings = {"jit": "off", "enable_seqscan": "off"}
    connection = await asyncpg.connect(filled.reader_dsn, server_settings=settings)
    try:
        plan_text = await connection.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *parameters)
    finally:
        await connection.close()
    plan = json.loads(plan_text)[0]["Plan"]
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= _BLOCKS
    for node in _nodes(plan):
        if node["Node Type"] == "Seq Scan" and node["Actual Rows"] + node.get("Rows Removed by Filter", 0) > 0:
            assert not _NEVER_WHOLE.search(node["Relation Name"]), node["Relation Name"]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from _nodes(part)


_ALARM = """
INSERT INTO plant.alarm (channel_id, limit_name, state, active, since, threshold, priority, changed_at, revision)
VALUES (1, 'hi', 'unacknowledged_active', true, $1, 9, 'critical', $1, 1)
"""
_DROPPED = """
WITH class AS (INSERT INTO plant.dropped (what, retention, until) VALUES ('raw', $1, $2))
SELECT plant.record_retention('a day', jsonb_build_object(
    'what', 'raw', 'action', 'rows', 'from', $2::timestamptz - INTERVAL '1 day', 'to', $2, 'channel_ids', $3::text))
"""


@pytest.mark.parametrize("dashboard", ["plantlog-health", "plantlog-storage"])
async def test_disk_space_left_is_what_the_job_says(owner: asyncpg.Connection, dashboard: str) -> None:
    (sql,) = (query.sql for name, query in _ALL if name.startswith(f"{dashboard} ") and "days_left\n" in query.sql)
    for second, (left, shown) in enumerate([(41.3, 41), (1234.0, 1234), (math.inf, 3650), (None, None)]):
        await owner.execute(_STORAGE_RUN, NOW + timedelta(seconds=second), f"over the disk budget, {duration(left)}")
        assert await owner.fetchval(sql) == shown


async def test_nothing_is_missing_before_a_channel_was_configured(owner: asyncpg.Connection) -> None:
    await add_sources(owner, "plc")
    await add_channels(owner, [2], "mill/pump{}", discrete=True)
    configured, sampled, until = (NOW - timedelta(minutes=minutes) for minutes in (20, 10, 5))
    await owner.execute("UPDATE plant.channel SET configured_at = $1", configured)
    await owner.execute("INSERT INTO plant.samples_raw (time, value, channel_id, status) VALUES ($1, 1, 2, 0)", sampled)
    over = ChartRange(NOW - timedelta(hours=1), until, 5000)
    sql, parameters = expand(queries("unit")["states"], {"installation": [""], "unit": ["mill"]}, over)
    rows = await owner.fetch(sql, *parameters)
    assert all(row["time"] >= configured for row in rows)
    assert {row["value"] for row in rows} == {-1, 1}, "missing, and then there"
    await owner.execute("UPDATE plant.channel SET configured_at = NULL")
    assert min(row["time"] for row in await owner.fetch(sql, *parameters)) < configured


async def test_imported_history_is_not_from_before_its_channel(owner: asyncpg.Connection) -> None:
    await add_sources(owner, "import")
    await add_channels(owner, [2], "mill/pump{}")
    await owner.execute("UPDATE plant.channel SET configured_at = $1", NOW)
    over = ChartRange(NOW - timedelta(hours=6), NOW, 5000)
    sql, parameters = expand(queries("forensics")["gap_states"], {"installation": [""], "unit": ["mill"]}, over)
    assert {row["value"] for row in await owner.fetch(sql, *parameters)} == {-1}, "not configured yet"
    imported = NOW - timedelta(hours=4)
    sample = "INSERT INTO plant.samples_raw (time, value, channel_id, status) VALUES ($1, 1, 2, 0)"
    dirty = "INSERT INTO plant.rollup_dirty (from_time, to_time) VALUES ($1::timestamptz, $1 + INTERVAL '1 h')"
    for statement in (sample, dirty):
        await owner.execute(statement, imported)
    await refreshed(owner)
    states = {row["time"]: row["value"] for row in await owner.fetch(sql, *parameters)}
    assert states == {NOW - timedelta(hours=6): -1, imported: 0}


async def test_alarm_of_a_name_of_one_part_is_of_its_unit(owner: asyncpg.Connection) -> None:
    await add_sources(owner, "plc")
    await add_channels(owner, [1], "siren")
    await owner.execute(_ALARM, NOW)
    values = _VALUES | {"area": ["siren"], "unit": ["siren"]}
    sql, parameters = expand(queries("plant")["units"], values, _OVER)
    (unit,) = await owner.fetch(sql, *parameters)
    assert (unit["Unit"], unit["State"], unit["Active"], unit["Unacknowledged"]) == ("siren", "alarm", 1, 1)
    sql, parameters = expand(queries("unit")["alarms"], values, _OVER)
    assert await owner.fetchval(sql, *parameters) == 1


async def test_units_count_alarms_as_the_whole_plant_does(owner: asyncpg.Connection) -> None:
    await add_sources(owner, "plc")
    await add_channels(owner, [1, 2], "a/unit{}/level")
    await owner.execute(_ALARM, NOW)
    await owner.execute(
        "UPDATE plant.alarm SET channel_id = 2, state = 'return_to_normal_unacknowledged', active = false"
    )
    values = _VALUES | {"area": ["a"]}
    sql, parameters = expand(queries("plant")["alarms_now"], values, _OVER)
    now = await owner.fetchrow(sql, *parameters)
    assert now is not None
    sql, parameters = expand(queries("plant")["units"], values, _OVER)
    units = await owner.fetch(sql, *parameters)
    assert [(unit["Unit"], unit["State"]) for unit in units] == [("a/unit2", "unacknowledged"), ("a/unit1", "good")]
    assert [sum(unit[kind] for unit in units) for kind in ("Active", "Unacknowledged")] == [0, 1]
    assert (now["Active"], now["Unacknowledged"]) == (0, 1)


async def test_panel_says_that_samples_were_dropped(owner: asyncpg.Connection) -> None:
    await add_sources(owner, "plc")
    await add_channels(owner, [1, 2], "mill/pump{}")
    await owner.execute("UPDATE plant.channel SET retention = 'fast' WHERE id = 1")
    sql, parameters = expand(queries("forensics")["stored"], {"unit": ["mill"]}, _OVER)
    assert await owner.fetchval(sql, *parameters) == "none dropped"
    await owner.execute(_DROPPED, "fast", NOW, "{[1,2)}")
    assert await owner.fetchval(sql, *parameters) == "dropped (1 of 2 channels): not analysed"
    await owner.execute(_DROPPED, "default", NOW, "{[2,3)}")
    await add_installation(owner, UUID(int=1))
    await owner.execute(
        "INSERT INTO plant.archived_day (day, installation, revision, root, location, samples, bytes, dropped_at)"
        " VALUES ($1, 1, 0, '', '', 0, 0, now())",
        _OVER.since.date(),
    )
    assert await owner.fetchval(sql, *parameters) == "archived"


async def test_values_beyond_all_sums_break_no_panel(owner: asyncpg.Connection) -> None:
    await add_sources(owner, "plc")
    await add_channels(owner, [1], "mill/pump{}")
    await owner.execute("UPDATE plant.channel SET range_lo = 0, range_hi = 10, kind = 'analog'")
    for minutes, value in enumerate((1.0, 1e308, -1e308, math.inf, 1e308, 1e308)):
        await owner.execute(
            "INSERT INTO plant.samples_raw (time, value, channel_id, status) VALUES ($1, $2, 1, 0)",
            NOW - timedelta(minutes=10 - minutes),
            value,
        )
    values = {**_VALUES, "area": ["mill"], "unit": ["mill"], "channel": ["mill/pump1"]}
    found = {}
    for name, query in _OF_DATABASE:
        sql, parameters = expand(query.sql, values, _OVER)
        found[name] = await owner.fetch(sql.replace("now()", f"timestamptz '{NOW.isoformat()}'"), *parameters)
    ((low, mean, high),) = found["plantlog-channel Statistics A"]
    assert (low, mean, high) == (-1e308, None, math.inf)


async def test_gap_is_a_break_in_the_line(reader: ReaderPool) -> None:
    (panel,) = [p for p in Library().dashboard("plantlog-channel").panels() if p["title"] == "Trend"]
    query = Library().dashboard("plantlog-channel").panel(panel["id"])[0]
    sql, parameters = expand(query.sql, _VALUES, _OVER)
    answer = await reader.query(sql, parameters)
    times, mean = answer.columns[0], answer.columns[answer.names.index("mean")]
    minutes = {value: [m for t, m in zip(times, mean, strict=True) if _ago(t) == value] for value in (25, 18, 10)}
    assert all(value is not None for value in minutes[25] + minutes[10])
    assert minutes[18]
    assert all(value is None for value in minutes[18])


def _widths(panel: dict[str, Any], names: Sequence[str], kinds: Sequence[str], screen: int) -> list[tuple[str, float]]:
    """The shown columns of a table as Grafana lays them out, on a screen of so many pixels without its menu."""
    config, width = panel["fieldConfig"], panel["gridPos"]["w"] / 24 * (screen - 32) - 20
    shown: dict[str, dict[str, Any]] = {}
    for name, kind in zip(names, kinds, strict=True):
        custom = dict(config["defaults"]["custom"])
        for override in config["overrides"]:
            matcher, options = override["matcher"]["id"], override["matcher"]["options"]
            if re.search(options.strip("/"), name) if matcher == "byRegexp" else options in (name, kind):
                custom |= {p["id"].removeprefix("custom."): p["value"] for p in override["properties"]}
        if not custom.get("hidden"):
            shown[name] = custom
    free = sum("width" not in one for one in shown.values())
    left = width - sum(one.get("width", 0) for one in shown.values())
    laid = [(name, one.get("width") or max(one["minWidth"], left / free)) for name, one in shown.items()]
    return [*laid, ("all", width)]


@pytest.mark.parametrize("screen", [1280, 1600])
@pytest.mark.parametrize("uid", [one.uid for one in Library()])
async def test_no_table_is_truncated(reader: ReaderPool, uid: str, screen: int) -> None:
    dashboard = Library().dashboard(uid)
    for panel in dashboard.panels():
        if panel["type"] != "table":
            continue
        (query,) = dashboard.panel(panel["id"])
        answer = await frame_of(reader, query, _VALUES, _OVER, *expand(query.sql, _VALUES, _OVER))
        of = [override["matcher"] for override in panel["fieldConfig"]["overrides"]]
        assert {one["options"] for one in of if one["id"] == "byName"} <= set(answer.names), panel["title"]
        *columns, (_, width) = _widths(panel, answer.names, answer.kinds, screen)
        assert sum(one for _, one in columns) <= width + 1, (panel["title"], columns)
        assert min(one for _, one in columns) >= 60, (panel["title"], columns)


async def test_a_variable_of_an_empty_plant_has_a_value(database: Database, tmp_path: Path) -> None:
    async with reading(database.reader_dsn, tmp_path) as reader:
        for dashboard in Library():
            for query in _variables(dashboard):
                answer = await reader.query(*expand(query.sql, _VALUES, _OVER))
                assert len(answer.columns[0]) == 1, (dashboard.uid, query.ref)


def _ago(ms: float) -> int:
    return int((NOW.timestamp() - ms / 1000) // 60)
