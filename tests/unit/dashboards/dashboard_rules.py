"""Rules of a dashboard's file, so that Grafana draws it as it is meant: each rule gives its complaints.

Every rule stands for something that was seen to go wrong in Grafana 13.1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from dashboards.fill import NAME

Json: TypeAlias = dict[str, Any]
Rule: TypeAlias = Callable[[Json], Iterator[str]]

_DATA_SOURCES = {"plantlog", "-- Grafana --"}
_GRAFANAS_UNITS = {"none", "short", "percent", "percentunit", "bytes", "s", "d", "string", "dateTimeAsIso"}
_LEAST_WIDTH = 60
_PER_LETTER, _PADDING = 6.6, 14  # pixels of a heading
_TIMES = {"Time", "Since", "Started", "From", "To", "Until", "Sealed at", "Day", "Latest sample"}
_TEXTS = {"Reason", "Detail", "Address", "Text", "Why", "Deferred jobs", "Description"}
_WORDS = {*_TEXTS, "Threshold"}  # of text, for which Grafana has no width
_TABLE_WIDTH = 930  # of 24 columns, in a window of 1,280 pixels beside Grafana's menu


def _panels(dashboard: Json, *kinds: str) -> Iterator[Json]:
    """Panels that ask something, of some types or of all."""
    for panel in dashboard["panels"]:
        for one in (panel, *panel.get("panels", ())):
            if one.get("targets") and (not kinds or one["type"] in kinds):
                yield one


def _defaults(panel: Json) -> Json:
    return panel["fieldConfig"]["defaults"]  # type: ignore[no-any-return]


def _overrides(panel: Json) -> Iterator[tuple[str, str, Json]]:
    """(matcher, what it matches, properties)"""
    for override in panel["fieldConfig"]["overrides"]:
        yield (
            override["matcher"]["id"],
            override["matcher"]["options"],
            {p["id"]: p["value"] for p in override["properties"]},
        )


def _variables(dashboard: Json) -> Iterator[Json]:
    return (one for one in dashboard["templating"]["list"] if one["type"] == "query")


def _queries(dashboard: Json) -> Iterator[tuple[str, str]]:
    for panel in _panels(dashboard):
        yield from ((panel["title"], target["rawSql"]) for target in panel["targets"])
    yield from ((variable["name"], variable["query"]) for variable in _variables(dashboard))
    for one in dashboard["annotations"]["list"]:
        if "rawSql" in one.get("target", {}):
            yield one["name"], one["target"]["rawSql"]


def states_keep_their_colours(dashboard: Json) -> Iterator[str]:
    """By threshold, merged states are one grey bar from -∞ to +."""
    for panel in _panels(dashboard, "state-timeline"):
        if _defaults(panel)["color"]["mode"] != "palette-classic":
            yield panel["title"]


def series_are_not_cut_by_nulls(dashboard: Json) -> Iterator[str]:
    """A long time series made wide has nulls where another series has a row: bars of states and lines end there."""
    lines = [
        panel
        for panel in _panels(dashboard, "timeseries")
        if _defaults(panel)["custom"]["drawStyle"] == "line"
        and all(" AS metric" in target["rawSql"] for target in panel["targets"])
    ]
    for panel in (*_panels(dashboard, "state-timeline"), *lines):
        parted = [t["options"]["fields"] for t in panel["transformations"] if t["id"] == "partitionByValues"]
        if any(target["format"] != "table" for target in panel["targets"]) or parted != [["metric"]]:
            yield panel["title"]
        if _defaults(panel).get("displayName") != "${__field.labels.metric}":
            yield f"{panel['title']}: displayName"


def units_are_grafanas_or_suffixes(dashboard: Json) -> Iterator[str]:
    """m is minutes to Grafana, h hours; and it puts a space before a suffix itself."""
    for panel in _panels(dashboard):
        units = [_defaults(panel).get("unit", "none"), *(p["unit"] for _, _, p in _overrides(panel) if "unit" in p)]
        for unit in units:
            if unit not in _GRAFANAS_UNITS and not re.fullmatch(r"suffix:\S.*", unit):
                yield f"{panel['title']}: {unit!r}"
        for transformation in panel["transformations"]:
            if transformation["id"] == "configFromData":
                ref = transformation["options"]["configRefId"]
                (sql,) = (target["rawSql"] for target in panel["targets"] if target["refId"] == ref)
                if "'suffix:' || " not in sql:
                    yield f"{panel['title']}: the unit of {ref}"


def values_beside_each_other_are_legible(dashboard: Json) -> Iterator[str]:
    """In the wide layout, names stand beside values, and both get 10 pixels; above values, names alone get 10."""
    for panel in _panels(dashboard, "stat"):
        several = sum(target["rawSql"].count(' AS "') for target in panel["targets"]) > 1
        if panel["options"]["wideLayout"] or (several and panel["options"].get("text", {}).get("titleSize", 0) < 12):
            yield panel["title"]


def all_rows_are_shown(dashboard: Json) -> Iterator[str]:
    """Of values that are not reduced, Grafana shows 25."""
    for panel in _panels(dashboard, "stat", "bargauge", "gauge"):
        reduced = panel["options"]["reduceOptions"]
        most = max(int(n) for target in panel["targets"] for n in ("0", *re.findall(r"LIMIT (\d+)", target["rawSql"])))
        if reduced["values"] and reduced.get("limit", 25) < most:
            yield panel["title"]


def a_bar_alone_is_a_bar(dashboard: Json) -> Iterator[str]:
    """The bar of one row would fill the panel."""
    for panel in _panels(dashboard, "bargauge"):
        if panel["options"]["sizing"] != "manual" or panel["options"]["maxVizHeight"] > 24:
            yield panel["title"]


def a_timeline_is_never_without_rows(dashboard: Json) -> Iterator[str]:
    """Grafana takes one for an error: "Data does not have a time field"."""
    for panel in _panels(dashboard, "state-timeline"):
        for target in panel["targets"]:
            if panel["title"] != "Overload, deferred jobs" and "NULL\nWHERE NOT EXISTS (" not in target["rawSql"]:
                yield panel["title"]


def times_have_the_digits_that_their_axis_needs(dashboard: Json) -> Iterator[str]:
    """Decimals of the panel are those of each tick: 250.00 ms."""
    for panel in _panels(dashboard, "timeseries"):
        if _defaults(panel).get("unit") == "s" and "decimals" in _defaults(panel):
            yield panel["title"]


def categories_have_no_unit(dashboard: Json) -> Iterator[str]:
    """Else the axis of a bar chart has the unit of its bars, and where a label has no room the text for nothing."""
    for panel in _panels(dashboard, "barchart"):
        category = panel["options"]["xField"]
        of = [p for _, what, p in _overrides(panel) if what == category]
        if not any(p.get("unit") == "string" and p.get("noValue") == "" for p in of):
            yield panel["title"]


def columns_fit(dashboard: Json) -> Iterator[str]:
    """Grafana's least width, 150, cuts tables off; times need 165 and numbers 92, and no milliseconds."""
    for panel in _panels(dashboard, "table"):
        by_type = {what: p for matcher, what, p in _overrides(panel) if matcher == "byType"}
        if (
            _defaults(panel)["custom"].get("minWidth") != _LEAST_WIDTH
            or by_type.get("time", {}).get("custom.width") != 165
            or by_type["time"].get("unit") != "dateTimeAsIso"
            or by_type.get("number", {}).get("custom.width") != 92
        ):
            yield panel["title"]


def headings_are_whole(dashboard: Json) -> Iterator[str]:
    """Grafana cuts the heading of a column that is too narrow for it, on the left where it is one of numbers."""
    for panel in _panels(dashboard, "table"):
        if "question" in panel["targets"][0]:  # the viewer's alone, whose columns are as wide as their headings
            continue
        *_, select = re.findall(r"^SELECT .*?^FROM ", panel["targets"][0]["rawSql"], re.MULTILINE | re.DOTALL)
        for column in re.findall(r' AS "([^"]+)"', select):
            if _width(panel, column)[0] < _PER_LETTER * len(column) + _PADDING:
                yield f"{panel['title']}: {column}"


def texts_are_in_sight(dashboard: Json) -> Iterator[str]:
    """Columns with reasons stand before those that a narrow window does not show."""
    for panel in _panels(dashboard, "table"):
        *_, select = re.findall(r"^SELECT .*?^FROM ", panel["targets"][0]["rawSql"], re.MULTILINE | re.DOTALL)
        columns = {column: _width(panel, column) for column in re.findall(r' AS "([^"]+)"', select)}
        place = _TABLE_WIDTH * panel["gridPos"]["w"] / 24
        growing = [column for column, (_, fixed) in columns.items() if not fixed]
        share = (place - sum(width for width, fixed in columns.values() if fixed)) / max(1, len(growing))
        right = 0.0
        for column, (width, _) in columns.items():
            right += max(width, share) if column in growing else width
            if column in _TEXTS and right > place:
                yield f"{panel['title']}: {column}"


def _width(panel: Json, column: str) -> tuple[int, bool]:
    """Width of a column, in pixels: by its name, else that of its type; and whether it is fixed, or grows."""
    width, fixed = (_LEAST_WIDTH, False) if column in _WORDS else (165 if column in _TIMES else 92, True)
    for matcher, what, properties in _overrides(panel):
        named = matcher == "byName" and what == column
        if named or (matcher == "byRegexp" and what != "/.*/" and re.fullmatch(what.strip("/"), column)):
            fixed = "custom.width" in properties or (fixed and "custom.minWidth" not in properties)
            width = int(properties.get("custom.width") or properties.get("custom.minWidth") or width)
    return width, fixed


def coloured_cells_are_plain(dashboard: Json) -> Iterator[str]:
    """A background is a gradient unless its mode says otherwise."""
    for panel in _panels(dashboard, "table"):
        for _, what, properties in _overrides(panel):
            cell = properties.get("custom.cellOptions", {})
            if cell.get("type") == "color-background" and cell.get("mode") != "basic":
                yield f"{panel['title']}: {what}"


def nothing_is_no_data(dashboard: Json) -> Iterator[str]:
    """A panel without rows says what there is none of; an empty cell of a table is empty, or says what it means."""
    for panel in _panels(dashboard):
        if not _defaults(panel).get("noValue"):
            yield panel["title"]
        elif panel["type"] == "table" and not any(
            matcher == "byRegexp" and what == "/.*/" and p.get("noValue") in ("", "forever")
            for matcher, what, p in _overrides(panel)
        ):
            yield f"{panel['title']}: its cells"


def bars_are_as_wide_as_their_step(dashboard: Json) -> Iterator[str]:
    """The width of bars is the least distance of two of them: every step needs a value."""
    for panel in _panels(dashboard, "timeseries"):
        if _defaults(panel)["custom"]["drawStyle"] == "bars":
            for target in panel["targets"]:
                if "generate_series(" not in target["rawSql"]:
                    yield panel["title"]


def gauges_have_a_range(dashboard: Json) -> Iterator[str]:
    """One without is from 0 to 100, whatever its value means."""
    for panel in _panels(dashboard, "gauge"):
        if not {"min", "max"} <= _defaults(panel).keys():
            yield panel["title"]


def variables_are_never_empty(dashboard: Json) -> Iterator[str]:
    """Nothing can be repeated for a variable without a value, and it is called All."""
    for variable in _variables(dashboard):
        if not re.search(r"UNION ALL\s+SELECT [^;]*WHERE NOT EXISTS", variable["query"]):
            yield variable["name"]


def many_values_are_asked_for_as_many(dashboard: Json) -> Iterator[str]:
    """A variable of several values is a list, also where one panel stands for each."""
    many = {variable["name"] for variable in _variables(dashboard) if variable["multi"]}
    for title, sql in _queries(dashboard):
        for before, name in re.findall(r"(\w*\s*[([=]?\s*)\$\{(\w+):sqlstring\}", sql):
            if name in many and not re.search(r"(IN \(|ARRAY\[)$", before):
                yield f"{title}: {name}"


def queries_stand_in_their_files(dashboard: Json) -> Iterator[str]:
    """And are of the data source that is provisioned."""
    for title, sql in _queries(dashboard):
        if not NAME.match(sql):
            yield title
    for panel in _panels(dashboard):
        for one in (panel, *panel["targets"]):
            if one["datasource"]["uid"] not in _DATA_SOURCES:
                yield f"{panel['title']}: data source {one['datasource']['uid']}"


def details_are_in_words(dashboard: Json) -> Iterator[str]:
    """Not as JSON with microseconds since 1970."""
    for title, sql in _queries(dashboard):
        if re.search(r"detail::text|to_jsonb|\* 1e6|1000000", sql):
            yield title


def counts_of_gaps_are_of_outages(dashboard: Json) -> Iterator[str]:
    """A gap of each of 15 channels, at one time, is one outage."""
    rows = re.compile(
        r"count\(\*\)(?:(?!WHERE|FILTER).)*?plant\.gap\b|count\(\*\) AS \"?gaps", re.DOTALL | re.IGNORECASE
    )
    for title, sql in _queries(dashboard):
        if rows.search(sql):
            yield title


RULES: tuple[Rule, ...] = (
    states_keep_their_colours,
    series_are_not_cut_by_nulls,
    units_are_grafanas_or_suffixes,
    values_beside_each_other_are_legible,
    all_rows_are_shown,
    a_bar_alone_is_a_bar,
    a_timeline_is_never_without_rows,
    times_have_the_digits_that_their_axis_needs,
    categories_have_no_unit,
    columns_fit,
    headings_are_whole,
    texts_are_in_sight,
    coloured_cells_are_plain,
    nothing_is_no_data,
    bars_are_as_wide_as_their_step,
    gauges_have_a_range,
    variables_are_never_empty,
    many_values_are_asked_for_as_many,
    queries_stand_in_their_files,
    details_are_in_words,
    counts_of_gaps_are_of_outages,
)
