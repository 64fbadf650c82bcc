"""A plant of more channels, units and areas than a browser is sent: one unit is read by index, lists are searched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import asyncpg
import pytest

from dashboards.viewer.library import Library, Query
from dashboards.viewer.macros import ChartRange, expand
from dashboards.viewer.panel_query import MAX_LISTED
from dashboards.viewer.reader import ReaderPool
from tests.database import Database, prepared
from tests.integration.dashboards.viewer.browser_page import open_page, running_browser
from tests.integration.dashboards.viewer.sample_plant import NOW, SINCE

_CHANNELS, _UNITS, _AREAS = 30_000, 1_500, 750
_UNIT = "area 0749/unit 1499"
_CHANNEL = f"{_UNIT}/c 29980"
_ALL_INSTALLATIONS = {"installation": [""]}
_VALUES = _ALL_INSTALLATIONS | {
    "unit": [_UNIT],
    "measure": ["bar"],
    "channel": [_CHANNEL],
    "compare": ["600"],
}
_GAPS = """
INSERT INTO plant.gap (source_id, channel_id, from_time, to_time, reason)
SELECT s.id, NULL::int, $1::timestamptz - INTERVAL '1 min' * n, $1::timestamptz - INTERVAL '1 min' * (n - 1.5),
       'disconnected'
FROM generate_series(2, 40) AS n
CROSS JOIN plant.source AS s
UNION ALL
SELECT s.id, NULL, $1::timestamptz - INTERVAL '432 s', NULL, 'poll_failed' FROM plant.source AS s WHERE s.name = 'away'
UNION ALL
SELECT c.source_id, c.id, $1::timestamptz - INTERVAL '1 min' * (c.id % 9 + 1),
       CASE WHEN c.id % 5 > 0 THEN $1::timestamptz - INTERVAL '20 s' * (c.id % 4) END, 'stale'
FROM plant.channel AS c
WHERE c.id % 11 = 0
"""
# Channels without data and outages by unit, by the definition: gaps of each channel.
_BY_CHANNEL = """
SELECT u.unit, count(DISTINCT g.channel_id) FILTER (WHERE g.to_time IS NULL),
       min(g.reason) FILTER (WHERE g.to_time IS NULL),
       (SELECT count(*) FROM unnest(range_agg(tstzrange(g.from_time, g.to_time))
                                    FILTER (WHERE g.from_time < $2 AND coalesce(g.to_time, now()) > $1)))
FROM (SELECT c.id, regexp_replace(c.name, '/[^/]*$', '') AS unit FROM plant.channel AS c) AS u
JOIN plant.gap_channel AS g ON g.channel_id = u.id
WHERE u.unit LIKE 'area 07%'
GROUP BY u.unit
"""
_FILL = f"""
INSERT INTO plant.source (name, kind, address) VALUES ('plc', 'modbus', 'tcp://127.0.0.1:1'),
                                                      ('away', 'modbus', 'tcp://127.0.0.1:2');
INSERT INTO plant.channel (name, source_id, address, kind, unit, range_lo, range_hi)
SELECT format('area %s/unit %s/c %s', to_char(n / 40, 'FM0000'), to_char(n / 20, 'FM0000'), to_char(n, 'FM00000')),
       s.id, '', 'analog', 'bar', 0, 10
FROM generate_series(0, {_CHANNELS} - 1) AS n
JOIN plant.source AS s ON s.name = CASE WHEN n % 100 < 30 THEN 'away' ELSE 'plc' END
ORDER BY n;
"""


@pytest.fixture(scope="module")
def filled(server: str, template: str) -> Iterator[Database]:
    """Many channels and gaps, for the reader and the page of this folder."""

    async def fill(database: Database) -> None:
        owner = await asyncpg.connect(database.owner_dsn)
        await owner.execute(_FILL)
        await owner.execute(_GAPS.replace("$1", f"'{NOW}'"))
        await owner.execute("VACUUM ANALYZE plant.channel")
        await owner.close()

    with prepared(server, template, "many", fill) as database:
        yield database


def _of_one_unit() -> Iterator[Query]:
    for uid in ("plantlog-unit", "plantlog-channel"):
        dashboard = Library().dashboard(uid)
        for panel in dashboard.panels():
            yield from dashboard.panel(panel["id"])
        yield from (
            dashboard.variable(name)
            for name in ("measure", "channel")
            if f'"name": "{name}"' in json.dumps(dashboard.content)
        )
        yield from dashboard.annotations()


async def test_query_of_one_unit_reads_only_its_channels(reader: ReaderPool) -> None:
    for query in _of_one_unit():
        sql, parameters = expand(query.sql, _VALUES, ChartRange(SINCE, NOW, 5000))
        answer = await reader.query("EXPLAIN " + sql, parameters)
        assert not any("Seq Scan on channel" in line for line in answer.columns[0]), (query.ref, answer.columns[0])


async def _frames(page: str, what: str, **question: Any) -> dict[str, Any]:
    since, until = (int(at.timestamp() * 1000) for at in (SINCE, NOW))
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{page}/api/{what}", json={"since": since, "until": until, **question}) as response,
    ):
        body: dict[str, Any] = await response.json()
        assert response.status == 200, body
        return body


async def test_long_variable_list_is_searched_on_the_server(page: str) -> None:
    question: dict[str, Any] = {"dashboard": "plantlog-unit", "variable": "unit"}
    chosen = _ALL_INSTALLATIONS | {"unit": [_UNIT]}
    first = (await _frames(page, "variable", **question, variables=chosen))["unit"]["columns"]
    assert len(first[0]) == MAX_LISTED + 1
    assert first[1][-1] == _UNIT, "what is chosen is there"
    assert set(first[2]) == {_UNITS}
    words, every = "0749/UNIT  14", _ALL_INSTALLATIONS
    found = (await _frames(page, "variable", **question, variables=every, search=words))["unit"]["columns"]
    assert found == [["area 0749/unit 1498", _UNIT], ["area 0749/unit 1498", _UNIT], [2, 2]]


async def test_all_means_all_values_beyond_the_listed_ones(page: str) -> None:
    number = next(p["id"] for p in Library().dashboard("plantlog-plant").panels() if p["title"] == "Size")
    every = _ALL_INSTALLATIONS | {"area": ["$__all"]}
    asked = await _frames(page, "query", dashboard="plantlog-plant", panel=number, variables=every)
    assert asked["A"]["columns"] == [[_CHANNELS], [_UNITS]]


async def test_source_gap_is_read_once_for_all_channels(filled: Database, reader: ReaderPool) -> None:
    owner = await asyncpg.connect(filled.owner_dsn)
    (panel,) = (
        p for p in Library().dashboard("plantlog-plant").panels() if (p["type"], p["title"]) == ("table", "Units")
    )
    (query,) = Library().dashboard("plantlog-plant").panel(panel["id"])
    areas = _ALL_INSTALLATIONS | {"area": [f"area {n:04}" for n in range(700, 750)]}
    sql, parameters = expand(query.sql, areas, ChartRange(SINCE, NOW, 5000))
    answer = await reader.query(sql, parameters)
    found = dict(zip(answer.names, answer.columns, strict=True))
    of = zip(found["Unit"], found["No data"], found["Reason"], found["Outages"], strict=True)
    wanted = [tuple(row) for row in await owner.fetch(_BY_CHANNEL, SINCE, NOW)]
    assert sorted(of) == sorted(wanted) and len(wanted) == 100
    every = (
        _ALL_INSTALLATIONS | {"area": ["$__all"]},
        ChartRange(SINCE, NOW, 5000),
        Library().dashboard("plantlog-plant").all_values_sql(),
    )
    sql, parameters = expand(query.sql, *every)
    explained = await owner.fetchval(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}", *parameters)
    await owner.close()
    assert max(_rows(json.loads(explained)[0]["Plan"])) < 4 * _CHANNELS


def _rows(node: dict[str, Any]) -> Iterator[float]:
    """Rows of a plan and its parts."""
    yield node["Actual Rows"] * node["Actual Loops"]
    for part in node.get("Plans", ()):
        yield from _rows(part)


@pytest.mark.slow
async def test_a_unit_is_found_in_the_page(page: str) -> None:
    async with running_browser() as browser:
        look = await open_page(browser, page)
        await look.open("plantlog-plant")
        assert await look.page.locator("#variables").inner_text() == "Area\nAll"
        await look.open("plantlog-unit", unit=_UNIT)
        await look.page.get_by_role("button", name=_UNIT).click()
        assert "more: search" in await look.page.locator(".more").inner_text()
        await look.page.get_by_role("searchbox").fill("unit 1498")
        await look.page.get_by_role("option", name="area 0749/unit 1498").click()
        await look.page.locator("html[data-changed=unit]").wait_for(state="attached")
        await look.wait_until_loaded()
        assert "1498" in look.page.url
        assert await look.page.get_by_role("button", name="area 0749/unit 1498").is_visible()
        assert look.wrong == []
