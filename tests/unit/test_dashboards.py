"""The dashboards' files: what the builder writes, and what Grafana needs of them."""

from __future__ import annotations

import hashlib
import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from dashboards.build.everything import files
from dashboards.viewer.expand import Range, expand
from dashboards.viewer.library import FOLDER, Dashboard, Library
from dashboards.viewer.page import FOLDER as PAGE
from tests.integration.viewer.filled import NOW
from tests.unit.dashboard_rules import RULES, Rule

_DASHBOARDS = list(Library())
_BY_UID = {one.uid: one for one in _DASHBOARDS}
_KINDS = {"timeseries", "stat", "gauge", "bargauge", "barchart", "table", "state-timeline", "text", "row"}


def _ids(one: Dashboard) -> str:
    return one.uid


def _urls(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["url"]] if isinstance(value.get("url"), str) and value["url"] else []
        return own + [url for part in value.values() for url in _urls(part)]
    return [url for part in value for url in _urls(part)] if isinstance(value, list) else []


def test_the_files_are_what_the_builder_writes() -> None:
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")} == files()


@pytest.mark.parametrize("one", _DASHBOARDS, ids=_ids)
def test_every_panel_says_what_it_shows(one: Dashboard) -> None:
    for panel in one.panels():
        assert panel["type"] in _KINDS
        assert panel["title"]
        assert panel["type"] in ("row", "text") or (panel["description"] and panel["targets"])


@pytest.mark.parametrize("one", _DASHBOARDS, ids=_ids)
def test_no_panel_lies_on_another(one: Dashboard) -> None:
    places = [panel["gridPos"] for panel in one.panels()]
    for a, b in combinations(places, 2):
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (a, b)
    assert all(place["x"] + place["w"] <= 24 for place in places)
    numbers = [panel["id"] for panel in one.panels()]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("one", _DASHBOARDS, ids=_ids)
def test_links_lead_to_dashboards_and_variables_that_there_are(one: Dashboard) -> None:
    for url in _urls(one.content):
        uid, _, query = url.removeprefix("/d/").partition("?")
        known = {variable["name"] for variable in _BY_UID[uid].content["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", query)) <= known
        assert "${__url_time_range}" in query or "from=" in query


@pytest.mark.parametrize("one", _DASHBOARDS, ids=_ids)
def test_sql_needs_only_variables_of_its_dashboard(one: Dashboard) -> None:
    variables = {variable["name"]: ["x"] for variable in one.content["templating"]["list"]}
    over = Range(NOW, NOW, 1000)
    for panel in one.panels():
        assert panel.get("repeat") is None or panel["repeat"] in variables
        for query in one.panel(panel["id"]):
            expand(query.sql, variables, over)
    for number, variable in enumerate(one.content["templating"]["list"]):
        before = dict(list(variables.items())[:number])
        if variable["type"] == "query":
            expand(one.variable(variable["name"]).sql, before, over)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("one", _DASHBOARDS, ids=_ids)
def test_grafana_draws_it_as_it_is_meant(one: Dashboard, rule: Rule) -> None:
    assert list(rule(one.content)) == [], rule.__doc__


@pytest.mark.parametrize("one", _DASHBOARDS, ids=_ids)
def test_the_browser_gets_no_sql(one: Dashboard) -> None:
    assert "SELECT" not in json.dumps(one.public())


def test_what_is_vendored_is_what_was_published() -> None:
    folder = PAGE / "vendor" / "uplot"
    said = json.loads((folder / "VENDORED.json").read_text())
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert found.pop("VENDORED.json")
    assert found == said["files"]
    assert f"(v{said['version']})" in (folder / "uPlot.esm.js").read_text()[:400]


def test_the_page_needs_no_network_and_no_inline_script() -> None:
    for path in PAGE.rglob("*"):
        if path.suffix in (".html", ".js", ".css") and "vendor" not in path.parts:
            text = path.read_text()
            assert not re.findall(r"https?://(?!www\.w3\.org)", text), path
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
            ), path
            assert path.suffix != ".html" or not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=", text), path


def test_provisioning_names_our_data_source() -> None:
    folder = Path(FOLDER).parent / "provisioning"
    text = (folder / "datasources" / "plantlog.yaml").read_text()
    assert "uid: plantlog\n" in text
    assert "allowUiUpdates: false" in (folder / "dashboards" / "plantlog.yaml").read_text()
    uids = {
        target["datasource"]["uid"]
        for one in _DASHBOARDS
        for panel in one.panels()
        for target in panel.get("targets", [])
    }
    assert uids == {"plantlog"}
