"""The dashboards' files: their SQL is that of the queries, and what Grafana needs of them."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from dashboards.fill import FOLDER, NAME, OF_GRAFANA, OF_VIEWER, dashboards, queries, write
from dashboards.viewer.library import Dashboard, Library
from dashboards.viewer.macros import ChartRange, expand
from dashboards.viewer.page import FOLDER as PAGE
from dashboards.viewer.page import files
from ops.maintenance.jobs import jobs
from tests.integration.dashboards.viewer.sample_plant import NOW
from tests.unit.dashboards.dashboard_rules import RULES, Rule

_DASHBOARDS = [one for folder in (OF_GRAFANA, OF_VIEWER) for one in Library(folder)]
_BY_UID = {one.uid: one for one in Library()}
_OF_THE_VIEWER = ("${viewer}/d/plantlog-channel", "${viewer}/d/plantlog-forensics")  # Grafana adds the rest
_KINDS = {"timeseries", "stat", "gauge", "bargauge", "barchart", "table", "state-timeline", "text", "row"}


def _ids(one: Dashboard) -> str:
    return one.uid


def _urls(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["url"]] if isinstance(value.get("url"), str) and value["url"] else []
        return own + [url for part in value.values() for url in _urls(part)]
    return [url for part in value for url in _urls(part)] if isinstance(value, list) else []


def test_every_query_stands_once_and_is_used() -> None:
    used: set[tuple[str, str]] = set()
    for path in (*OF_GRAFANA.glob("*.json"), *OF_VIEWER.glob("*.json")):
        text = path.read_text(encoding="utf-8")
        assert "SELECT" not in text, f"{path.name}: SQL belongs into dashboards/queries"
        used |= {(named[1], named[2]) for named in NAME.finditer(text)}
    files = (FOLDER / "queries").glob("*.sql")
    assert used == {(path.stem, section) for path in files for section in queries(path.stem)}


def test_grafana_is_given_its_dashboards(tmp_path: Path) -> None:
    write(tmp_path / "new" / "folder")
    written = {path.name: json.loads(path.read_text()) for path in (tmp_path / "new" / "folder").iterdir()}
    assert written == dashboards(OF_GRAFANA)
    assert "$__installationFilter" not in json.dumps(written), "Grafana does not know it"
    curve = f"-- channel.sql: curve\n{queries('channel')['curve']}"
    assert curve in [
        target["rawSql"] for panel in written["3-channel.json"]["panels"] for target in panel.get("targets", ())
    ]


@pytest.mark.parametrize("one", _DASHBOARDS, ids=_ids)
def test_every_panel_has_a_description(one: Dashboard) -> None:
    for panel in one.panels():
        assert panel["type"] in _KINDS
        assert panel["title"]
        assert panel["type"] in ("row", "text") or (panel["description"] and panel["targets"])


def test_empty_panel_says_how_much_was_analysed() -> None:
    panels = [one for one in _BY_UID["plantlog-forensics"].panels() if "last hour" in one.get("description", "")]
    assert panels
    for panel in panels:
        assert "in the last hour of this time range" in panel["fieldConfig"]["defaults"]["noValue"], panel["title"]


@pytest.mark.parametrize("one", _DASHBOARDS, ids=_ids)
def test_panels_do_not_overlap(one: Dashboard) -> None:
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
def test_links_lead_to_existing_dashboards_and_variables(one: Dashboard) -> None:
    for url in _urls(one.content):
        if url in _OF_THE_VIEWER:
            continue
        uid, _, query = url.removeprefix("/d/").partition("?")
        known = {variable["name"] for variable in _BY_UID[uid].content["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", query)) <= known
        assert "${__url_time_range}" in query or "${__row_time_range}" in query or "from=" in query
        assert "${installation:queryparam}" in query


@pytest.mark.parametrize("one", _DASHBOARDS, ids=_ids)
def test_installations_can_be_chosen(one: Dashboard) -> None:
    first, *others = one.content["templating"]["list"]
    assert first == _DASHBOARDS[0].content["templating"]["list"][0]
    assert (first["name"], first["includeAll"], first["multi"]) == ("installation", True, True)
    listing = [variable for variable in others if "plant.channel AS c" in variable.get("query", "")]
    listing = [variable for variable in listing if variable["name"] != "viewer"]  # of the selected channel
    assert all("${installation:sqlstring}" in variable["query"] for variable in listing)


def test_jobs_panel_knows_what_one_installation_does_for_all() -> None:
    listed = re.search(r"\.job NOT IN \(([^)]*)\)", queries("health")["jobs"])
    assert listed is not None
    assert re.findall(r"'(\w+)'", listed[1]) == [job.name for job in jobs() if not job.per_installation]


@pytest.mark.parametrize("one", _DASHBOARDS, ids=_ids)
def test_sql_needs_only_variables_of_its_dashboard(one: Dashboard) -> None:
    variables = {variable["name"]: ["x"] for variable in one.content["templating"]["list"]}
    over = ChartRange(NOW, NOW, 1000)
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
def test_grafana_panel_options_fit_the_query(one: Dashboard, rule: Rule) -> None:
    assert list(rule(one.content)) == [], rule.__doc__


@pytest.mark.parametrize("one", _DASHBOARDS, ids=_ids)
def test_usual_choice_is_one_that_there_is(one: Dashboard) -> None:
    for variable in one.content["templating"]["list"]:
        options = [option["value"] for option in variable["options"]]
        assert variable["type"] != "custom" or variable["current"]["value"] in options


@pytest.mark.parametrize("one", _DASHBOARDS, ids=_ids)
def test_browser_receives_no_sql(one: Dashboard) -> None:
    assert "SELECT" not in json.dumps(one.public())


def test_page_loads_only_what_is_served() -> None:
    named = re.findall(r'(?:href|src)="/static/([^"]+)"', (PAGE / "index.html").read_text())
    assert {"uplot/uPlot.iife.js", "uplot/uPlot.min.css"} < set(named) < files().keys()


def test_page_needs_no_network_and_no_inline_script() -> None:
    for path in PAGE.rglob("*"):
        if path.suffix in (".html", ".js", ".css"):
            text = path.read_text()
            assert not re.findall(r"https?://(?!www\.w3\.org)", text), path
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
            ), path
            assert path.suffix != ".html" or not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=", text), path


def test_provisioning_names_the_plantlog_data_source() -> None:
    folder = FOLDER / "provisioning"
    text = (folder / "datasources" / "plantlog.yaml").read_text()
    assert "uid: plantlog\n" in text
    assert "allowUiUpdates: false" in (folder / "dashboards" / "plantlog.yaml").read_text()
    uids = {
        target["datasource"]["uid"]
        for dashboard in _DASHBOARDS
        for panel in dashboard.panels()
        for target in panel.get("targets", [])
    }
    assert uids == {"plantlog"}


def test_one_colour_means_one_thing() -> None:
    """In all dashboards: each word has one colour, and a count of channels without data has that of no data."""
    colours: dict[str, set[str]] = {}
    for board in _DASHBOARDS:
        for panel in board.panels():
            config = panel.get("fieldConfig", {"defaults": {}, "overrides": []})
            titled = {panel.get("title", ""): [config["defaults"]]}
            for override in config["overrides"]:
                properties = {one["id"]: one["value"] for one in override["properties"]}
                titled.setdefault(str(override["matcher"]["options"]), []).append(properties)
            for name, settings in titled.items():
                for setting in settings:
                    for mapping in setting.get("mappings", ()):
                        for value, option in mapping["options"].items():
                            colours.setdefault(option.get("text", value), set()).add(option["color"])
                    if name in ("No data", "No data now") and "thresholds" in setting:
                        colours.setdefault("no data", set()).add(setting["thresholds"]["steps"][-1]["color"])
    assert {word: colour for word, colour in colours.items() if len(colour) > 1} == {}
    assert colours["missing"] == colours["no data"]
