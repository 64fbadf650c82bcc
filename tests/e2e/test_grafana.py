"""The provisioned stack in a real Grafana: its sources, queries and rules, and what a browser shows of it.

Only where PLANTLOG_TEST_GRAFANA names the home of a Grafana 12 or 13 for Linux, as its archive holds it: bin/grafana,
conf/defaults.ini, and public/ with the built pages and its data source plugins. The HTTP API is that of
https://grafana.com/docs/grafana/latest/developers/http_api/.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import asyncpg
import pytest
from playwright.async_api import Browser, ConsoleMessage, Locator, Page, Position, Request

from dashboards.fill import OF_GRAFANA
from dashboards.viewer.library import Dashboard, Library, Query
from tests.e2e.appliance import Appliance, running
from tests.e2e.grafana import PASSWORD, WITHOUT, Grafana, program, provisioned
from tests.e2e.prometheus import running_prometheus
from tests.integration.dashboards.viewer.browser_page import running_browser
from tests.ports import free_ports
from tests.prometheus_rules import ALERTS, RECORDS
from tests.waiting import PATIENCE, until, until_sync

pytestmark = pytest.mark.skipif(program() is None, reason=WITHOUT)

_PORT = free_ports(13)
_LIBRARY = Library(OF_GRAFANA)  # without the viewer's own
_SINCE = 15 * 60  # seconds that are looked at
_STATES_ONLY = "tests/states_only"  # a unit without analog channels
_MADE = """
INSERT INTO plant.channel (name, source_id, address, kind)
SELECT $1 || '/open', s.id, 'none', 'discrete' FROM plant.source AS s ORDER BY s.id LIMIT 1
"""
_METRES = """
SELECT c.name FROM plant.channel AS c WHERE c.unit = 'm' AND c.kind = 'analog' AND c.retired_at IS NULL ORDER BY c.id
"""
_UID = "grafana-postgresql-datasource"
_BEGINNING: Position = {"x": 4, "y": 4}  # of a link: a cell shows the beginning of a long text
_MACRO = re.compile(r"\$\{(\w+):sqlstring\}")
# Of no interest: hosts that a machine without internet can't reach, and Grafana's own SQLite, which is busy at times.
_NOT_OURS = re.compile(r"grafana\.(com|net|org)|raw\.githubusercontent\.com|SQLITE_BUSY")
_FAILED = "data-testid Panel status error"  # on the header of a panel whose query failed
_MESSAGE = "data-testid Panel data error message"  # instead of a panel's picture: no rows, or not what it can draw
_DRAWN = """
(n) => {
  const panels = [...document.querySelectorAll('[data-testid="data-testid panel content"]')];
  return panels.length >= n && panels.every((panel) => panel.childElementCount)
         && !document.querySelector('[aria-label="Panel loading bar"]');
}
"""

_CUT = """
() => [...document.querySelectorAll('[role=columnheader]')].filter((heading) => {
  const text = document.createRange();
  text.selectNodeContents(heading);
  const { left, right } = heading.getBoundingClientRect();
  return [...text.getClientRects()].some((box) => box.width && (box.left < left - 1 || box.right > right + 1));
}).map((heading) => heading.textContent)
"""


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    with running(tmp_path_factory.mktemp("grafana") / "state", "--port", str(_PORT)) as up:
        asyncio.run(up.until_stored(int((time.time() + 5) * 1e6)))
        asyncio.run(_make_a_unit_of_states(up))
        yield up


@pytest.fixture(scope="module")
def grafana(appliance: Appliance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grafana]:
    with (
        running_prometheus(appliance, tmp_path_factory.mktemp("prometheus")) as prometheus,
        provisioned(appliance, prometheus, tmp_path_factory.mktemp("home")) as started,
    ):
        yield started


async def _make_a_unit_of_states(appliance: Appliance) -> None:
    connection = await asyncpg.connect((appliance.root / "secrets" / "owner.dsn").read_text().strip())
    await connection.execute(_MADE, _STATES_ONLY)
    await connection.close()


class GrafanaDashboard:
    """Grafana's own answers to the queries of a dashboard, as its page would ask them."""

    def __init__(self, grafana: Grafana, dashboard: Dashboard, chosen: Mapping[str, Sequence[str]] = {}) -> None:
        self.grafana = grafana
        self.dashboard = dashboard
        self.values: dict[str, Sequence[str]] = dict(chosen)
        for variable in dashboard.content["templating"]["list"]:
            if variable["name"] in self.values:
                continue
            if variable["type"] == "custom":
                self.values[variable["name"]] = [variable["options"][0]["value"]]
            else:
                fields = self.ask(dashboard.variable(variable["name"]))
                found = fields["__value"]
                assert found, f"{dashboard.uid}: {variable['name']} is empty"
                self.values[variable["name"]] = found if variable["multi"] else found[:1]

    def ask(self, query: Query) -> dict[str, list[Any]]:
        """Column → values. Columns of long time series have the label metric in their names."""
        sql = _MACRO.sub(self._quoted, query.sql)  # what the page does; the macros with $__ are the server's
        until_ms = int(time.time() * 1000)
        asked = {
            "refId": "A",
            "datasource": {"uid": "plantlog", "type": _UID},
            "rawSql": sql,
            "rawQuery": True,
            "editorMode": "code",
            "format": "time_series" if query.time_series else "table",
            "intervalMs": 2000,
            "maxDataPoints": 500,
        }
        body = {"queries": [asked], "from": str(until_ms - _SINCE * 1000), "to": str(until_ms)}
        result = self.grafana.ask("/api/ds/query", body)["results"]["A"]
        assert "error" not in result, (self.dashboard.uid, query.ref, result["error"], sql)
        columns: dict[str, list[Any]] = {}
        for frame in result["frames"]:
            fields = frame["schema"]["fields"]
            if query.time_series and any(frame["data"]["values"]):
                assert fields[0]["type"] == "time", (self.dashboard.uid, sql, fields)
                assert {one["type"] for one in fields[1:]} <= {"number"}, (self.dashboard.uid, sql, fields)
            for field, values in zip(fields, frame["data"]["values"], strict=True):
                columns[" ".join([field["name"], *(field.get("labels") or {}).values()])] = values
        return columns

    def _quoted(self, match: re.Match[str]) -> str:
        quoted = (value.replace("'", "''") for value in self.values[match[1]])
        return ",".join(f"'{value}'" for value in quoted)


def test_dashboards_are_provisioned(grafana: Grafana) -> None:
    found = grafana.ask("/api/search?type=dash-db")
    assert {entry["uid"] for entry in found} == {dashboard.uid for dashboard in _LIBRARY}
    assert {entry["folderTitle"] for entry in found} == {"plantlog"}
    for entry in found:
        reply = grafana.ask(f"/api/dashboards/uid/{entry['uid']}")
        assert reply["meta"]["provisioned"] is True


@pytest.mark.parametrize("uid", ["plantlog", "plantlog-prometheus"])
def test_a_source_is_healthy(grafana: Grafana, uid: str) -> None:
    assert grafana.ask(f"/api/datasources/uid/{uid}/health")["status"] == "OK"


@pytest.mark.parametrize("one", list(_LIBRARY), ids=lambda one: one.uid)
def test_every_query_has_the_shape_that_its_panel_needs(grafana: Grafana, one: Dashboard) -> None:
    shown = GrafanaDashboard(grafana, one)
    for panel in one.panels():
        for query in one.panel(panel["id"]):
            columns = shown.ask(query)
            if panel["type"] == "state-timeline" and columns:
                assert list(columns) == ["time", "metric", "value"], panel["title"]
            if panel["type"] == "table" and columns:
                named = {
                    o["matcher"]["options"] for o in panel["fieldConfig"]["overrides"] if o["matcher"]["id"] == "byName"
                }
                assert named <= set(columns), panel["title"]
    for query in one.annotations():
        columns = shown.ask(query)
        assert not columns or {"time", "timeEnd", "text"} <= set(columns), query.ref


def test_the_rules_of_prometheus_are_shown_and_healthy(grafana: Grafana) -> None:
    def rules() -> list[dict[str, Any]]:
        groups = grafana.ask("/api/prometheus/plantlog-prometheus/api/v1/rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    until_sync(lambda: all(rule["health"] != "unknown" for rule in rules()), 180)
    assert {rule["name"]: rule["health"] for rule in rules()} == dict.fromkeys((*RECORDS, *ALERTS), "ok")


class Looked:
    """A page of Grafana's, and what its console said."""

    def __init__(self, page: Page, grafana: Grafana) -> None:
        self.page = page
        self.grafana = grafana
        self.wrong: list[str] = []
        self.answered: set[tuple[str, str]] = set()  # the dashboards and panels whose queries were answered
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("requestfinished", self._answered)

    def _said(self, message: ConsoleMessage) -> None:
        where = f"{message.text} {message.location.get('url', '')}"
        if message.type == "error" and not _NOT_OURS.search(where):
            self.wrong.append(where)

    def _answered(self, request: Request) -> None:
        headers = request.headers
        self.answered.add((headers.get("x-dashboard-uid", ""), headers.get("x-panel-id", "")))

    async def open(self, uid: str, **variables: str) -> str:
        """Open a dashboard and wait until all its panels are drawn; the text of the page."""
        given = "".join(f"&var-{name}={quote(value, safe='')}" for name, value in variables.items())
        await self.page.goto(f"{self.grafana.url}/d/{uid}?from=now-15m&to=now&refresh={given}")
        return await self.drawn(uid)

    async def drawn(self, uid: str) -> str:
        """Wait until that dashboard is there and its queries are answered and drawn; the text of the page."""
        panels = [panel for panel in _LIBRARY.dashboard(uid).panels() if panel["type"] != "row"]
        asked = {(uid, str(panel["id"])) for panel in panels if panel.get("targets")}
        await self.page.wait_for_url(re.compile(rf"/d/{uid}[/?]"))
        await until(lambda: asked <= self.answered, show=lambda: (sorted(asked - self.answered), self.wrong))
        await self.page.wait_for_function(_DRAWN, arg=len(panels))
        text: str = await self.page.evaluate("document.body.innerText")
        return text

    async def panel_errors(self, uid: str) -> list[str]:
        """Errors that panels show instead of their picture. The file's own text for no rows is no error."""
        panels = [panel for panel in _LIBRARY.dashboard(uid).panels() if panel.get("targets")]
        empty = {panel["fieldConfig"]["defaults"].get("noValue") for panel in panels}
        failed = await self.page.get_by_test_id(_FAILED).all()
        said = await self.page.get_by_test_id(_MESSAGE).all_inner_texts()
        return [str(await alert.get_attribute("aria-label")) for alert in failed] + [t for t in said if t not in empty]

    def panel(self, title: str) -> Locator:
        """A panel by its title."""
        return self.page.get_by_test_id(f"data-testid Panel header {title}")


@pytest.fixture
async def look(grafana: Grafana) -> AsyncIterator[Looked]:
    async with running_browser() as browser:
        yield await _logged_in(browser, grafana)


async def _logged_in(browser: Browser, grafana: Grafana) -> Looked:
    """Panels are drawn as they come into sight: all are."""
    context = await browser.new_context(viewport={"width": 1600, "height": 6000}, timezone_id="UTC")
    answer = await context.request.post(
        f"{grafana.url}/login", data={"user": "admin", "password": PASSWORD}, timeout=PATIENCE * 1000
    )
    assert answer.ok, await answer.text()
    page = await context.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    return Looked(page, grafana)


@pytest.mark.parametrize("uid", [dashboard.uid for dashboard in _LIBRARY])
async def test_dashboard_is_drawn(look: Looked, uid: str) -> None:
    text = await look.open(uid)
    assert await look.panel_errors(uid) == []
    assert "-∞" not in text
    assert "$__all" not in text
    assert look.wrong == []


@pytest.mark.parametrize("uid", [dashboard.uid for dashboard in _LIBRARY])
async def test_headings_are_whole(look: Looked, uid: str) -> None:
    await look.open(uid)
    for width in (1280, 1440, 1920):
        await look.page.set_viewport_size({"width": width, "height": 6000})
        await look.page.wait_for_function(f"() => !({_CUT})().length")


async def test_a_unit_without_analog_channels_is_drawn(look: Looked) -> None:
    text = await look.open("plantlog-unit", unit=_STATES_ONLY)
    assert "no analog channels" in text
    assert await look.panel_errors("plantlog-unit") == []
    assert not await look.panel("All").count()
    assert look.wrong == []


async def test_metres_are_not_shown_as_minutes(look: Looked, appliance: Appliance) -> None:
    channel = await appliance.fetchval(_METRES)
    await look.open("plantlog-channel", unit=channel.rpartition("/")[0], channel=channel)
    reply = await look.panel("Statistics").inner_text()
    assert re.search(r"\d\s*m\b", reply), reply
    assert not re.search(r"\d\s*(mins?|minutes?|hours?)\b", reply), reply


async def test_connected_state_is_drawn_to_the_right_edge(look: Looked, appliance: Appliance) -> None:
    sources = await appliance.fetchval("SELECT count(*) FROM plant.source WHERE retired_at IS NULL")
    await look.open("plantlog-health")
    box = await look.panel("Source states").locator(".u-over").first.bounding_box()
    assert box is not None
    tip = look.page.locator("#grafana-portal-container")
    for row in range(sources):
        await look.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * (row + 0.5) / sources)
        await look.page.mouse.move(box["x"] + box["width"] - 4, box["y"] + box["height"] * (row + 0.5) / sources)
        await tip.get_by_text("connected", exact=True).first.wait_for()


async def test_links_drill_down_to_unit_and_channel(look: Looked) -> None:
    await look.open("plantlog-plant")
    await look.panel("Units").get_by_role("link").first.click(position=_BEGINNING)
    await look.drawn("plantlog-unit")
    assert "var-unit=" in look.page.url
    assert "from=" in look.page.url
    await look.panel("Values").get_by_role("link").first.click(position=_BEGINNING)
    await look.drawn("plantlog-channel")
    assert "var-channel=" in look.page.url
    assert look.wrong == []


async def test_link_opens_the_channel_in_the_viewer(look: Looked, appliance: Appliance) -> None:
    viewer = await appliance.fetchval("SELECT i.viewer_url FROM plant.installation AS i")
    assert not viewer.endswith(":9110"), "another one than by default"
    channel = await appliance.fetchval(_METRES)
    await look.open("plantlog-channel", channel=channel)
    async with look.page.context.expect_page(timeout=PATIENCE * 1000) as opened:
        # Until Grafana knows the value of its variable, the link leads to itself.
        await look.page.locator(f"a[href^='{viewer}/d/plantlog-channel']").click()
    page = await opened.value
    page.set_default_timeout(PATIENCE * 1000)
    await page.locator("html[data-opened=plantlog-channel]").wait_for(state="attached")
    assert page.url.startswith(f"{viewer}/d/plantlog-channel")
    unit, _, name = channel.rpartition("/")
    assert [unit, name] == (await page.locator("#variables .chosen").all_inner_texts())[:2]


def test_the_log_has_no_unexpected_error(grafana: Grafana) -> None:
    """The last of this file: what all the others did stands in the log."""
    assert [error for error in grafana.errors() if not _NOT_OURS.search(str(error))] == []
