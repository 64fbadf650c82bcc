"""The kinds of panels: each function gives one as Grafana 11 reads it, without its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dashboards.build.options import DATASOURCE, PLAIN, Json, override, override_names, override_type

# Columns of tables, in pixels: a time with its seconds, a number, and the least of a text. Texts share what is left.
TIME_WIDTH, NUMBER_WIDTH, LEAST_WIDTH = 165, 92, 60
# Columns whose words, or whose heading, need another width; and the least of those that name a thing.
_WIDTHS = {
    60: "In",
    85: "Kind|Limit|Priority|Outcome|Form",
    110: "Job|State|Quality|Without data|Failed today|Mean before|Spread before|Spread now|Of its range|Rows, about"
    "|Bytes a row",
    130: "Source|What|From the future|Expected every|Acknowledged by",
    155: "Unrecorded silences",
}
_NAMES, _NAME_WIDTH = "Unit|Channel|Where", 180


@dataclass(frozen=True, slots=True)
class Field:
    """What holds for all values of a panel."""

    unit: str = "none"
    decimals: int | None = None
    low: float | None = None
    high: float | None = None
    thresholds: Json = field(default_factory=lambda: PLAIN)
    color: str = "thresholds"  # or palette-classic, or a fixed colour's name
    mappings: Sequence[Json] = ()
    links: Sequence[Json] = ()
    empty: str = "None in this time"  # what stands where there is nothing
    overrides: Sequence[Json] = ()


def _config(of: Field, custom: Json) -> Json:
    modes = ("thresholds", "palette-classic")
    color = {"mode": of.color} if of.color in modes else {"mode": "fixed", "fixedColor": of.color}
    optional: Json = {"decimals": of.decimals, "min": of.low, "max": of.high}
    defaults: Json = {
        "unit": of.unit,
        "color": color,
        "thresholds": of.thresholds,
        "mappings": list(of.mappings),
        "links": list(of.links),
        "noValue": of.empty,
        "custom": custom,
    }
    defaults |= {key: value for key, value in optional.items() if value is not None}
    return {"defaults": defaults, "overrides": list(of.overrides)}


def _panel(kind: str, title: str, description: str, targets: Sequence[Json], of: Json, options: Json) -> Json:
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "targets": list(targets),
        "fieldConfig": of,
        "options": options,
        "transformations": [],
        "interval": "1s",  # Grafana's own least step would be a minute
    }


def _reduced(values: bool = False) -> Json:
    return {"calcs": ["lastNotNull"], "fields": "", "values": values}


def time_series(
    title: str,
    description: str,
    targets: Sequence[Json],
    of: Field,
    *,
    style: str = "line",
    steps: bool = False,
    fill: int = 0,
    stacked: bool = False,
    limits: bool = False,
    legend: bool = True,
    calcs: Sequence[str] = (),
) -> Json:
    """Lines (``steps``: held from sample to sample), bars or points over time. A null is a hole in a line."""
    custom = {
        "drawStyle": style,
        "lineInterpolation": "stepAfter" if steps else "linear",
        "lineWidth": 0 if style == "bars" else 1,  # else a bar of height 0 is a line
        "fillOpacity": fill,
        "gradientMode": "none",
        "showPoints": "auto" if style == "line" else "never",
        "pointSize": 4,
        "spanNulls": False,
        "insertNulls": False,
        "axisPlacement": "auto",
        "axisLabel": "",
        "axisColorMode": "text",
        "scaleDistribution": {"type": "linear"},
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if limits else "off"},
        "hideFrom": {"legend": False, "tooltip": False, "viz": False},
    }
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": legend, "calcs": list(calcs)},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return _panel("timeseries", title, description, targets, _config(of, custom), options)


def stat(title: str, description: str, targets: Sequence[Json], of: Field, *, texts: bool = False) -> Json:
    """One number, or one for each column; ``texts``: columns of texts, too."""
    options = {
        "reduceOptions": _reduced() | ({"fields": "/.*/"} if texts else {}),
        "orientation": "auto",
        "textMode": "auto",
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "wideLayout": True,
    }
    return _panel("stat", title, description, targets, _config(of, {}), options)


def bar_gauge(title: str, description: str, targets: Sequence[Json], of: Field) -> Json:
    """A bar for each row: a text column names it, a number is its length."""
    options = {
        "reduceOptions": _reduced(values=True),
        "orientation": "horizontal",
        "displayMode": "basic",
        "valueMode": "color",
        "namePlacement": "auto",
        "showUnfilled": True,
        "sizing": "auto",
        "minVizWidth": 8,
        "minVizHeight": 16,
        "maxVizHeight": 300,
        "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
    }
    return _panel("bargauge", title, description, targets, _config(of, {}), options)


def table(title: str, description: str, targets: Sequence[Json], of: Field) -> Json:
    """Rows and columns as the query gives them. ``of.empty`` is for a table without rows; an empty cell is empty."""
    custom = {
        "align": "auto",
        "cellOptions": {"type": "auto"},
        "inspect": False,
        "filterable": False,
        "minWidth": LEAST_WIDTH,
    }
    every = override("", noValue="") | {"matcher": {"id": "byRegexp", "options": "/.*/"}}
    times = override_type("time", custom__width=TIME_WIDTH, unit="dateTimeAsIso")
    numbers = override_type("number", custom__width=NUMBER_WIDTH)
    words = [override_names(names, custom__width=width) for width, names in _WIDTHS.items()]
    named = override_names(_NAMES, custom__minWidth=_NAME_WIDTH)
    of = replace(of, overrides=[every, times, numbers, *words, named, *of.overrides])
    options = {
        "showHeader": True,
        "cellHeight": "sm",
        "sortBy": [],
        "footer": {"show": False, "reducer": ["sum"], "countRows": False, "fields": ""},
    }
    return _panel("table", title, description, targets, _config(of, custom), options)


def state_timeline(title: str, description: str, targets: Sequence[Json], of: Field) -> Json:
    """Which state each series had when, as coloured stretches. Queries give time, metric and value, as a table.

    As a table, which is parted by its metric: Grafana would fill a long time series with nulls where only another
    series has a row, and end the stretch there. With colours by threshold it joins all states into one.
    """
    custom = {
        "fillOpacity": 70,
        "lineWidth": 0,
        "spanNulls": True,
        "insertNulls": False,
        "hideFrom": {"legend": False, "tooltip": False, "viz": False},
    }
    options = {
        "mergeValues": True,
        "showValue": "auto",
        "alignValue": "left",
        "rowHeight": 0.85,
        "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    config = _config(replace(of, color="palette-classic"), custom)
    config["defaults"]["displayName"] = "${__field.labels.metric}"
    parted = {"id": "partitionByValues", "options": {"fields": ["metric"], "keepFields": False}}
    return _panel("state-timeline", title, description, targets, config, options) | {"transformations": [parted]}


def bar_chart(title: str, description: str, targets: Sequence[Json], of: Field, category: str) -> Json:
    """Bars over the text column ``category``."""
    custom = {
        "lineWidth": 1,
        "fillOpacity": 80,
        "gradientMode": "none",
        "axisPlacement": "auto",
        "axisLabel": "",
        "axisColorMode": "text",
        "scaleDistribution": {"type": "linear"},
        "thresholdsStyle": {"mode": "off"},
        "hideFrom": {"legend": False, "tooltip": False, "viz": False},
    }
    options = {
        "orientation": "auto",
        "xField": category,
        "xTickLabelRotation": 0,
        "xTickLabelSpacing": 100,
        "showValue": "never",
        "stacking": "none",
        "groupWidth": 0.7,
        "barWidth": 0.95,
        "barRadius": 0,
        "fullHighlight": False,
        "legend": {"showLegend": False, "displayMode": "list", "placement": "bottom", "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    # Labels that have no room are null: they would say that there is nothing.
    of = replace(of, overrides=[override(category, unit="string", noValue=""), *of.overrides])
    return _panel("barchart", title, description, targets, _config(of, custom), options)


def text(title: str, content: str) -> Json:
    """Words, in Markdown."""
    options = {"mode": "markdown", "content": content, "code": {"language": "plaintext", "showLineNumbers": False}}
    return {
        "type": "text",
        "title": title,
        "description": "",
        "datasource": DATASOURCE,
        "targets": [],
        "fieldConfig": {"defaults": {}, "overrides": []},
        "options": options,
        "transformations": [],
    }


def with_unit_of(panel: Json, ref: str, columns: Sequence[tuple[str, str]]) -> Json:
    """The panel with unit, range or limits taken from the row of its query ``ref``: (column, property) pairs."""
    mappings = [{"fieldName": column, "handlerKey": handler} for column, handler in columns]
    options: dict[str, Any] = {"configRefId": ref, "mappings": mappings}
    return panel | {"transformations": [{"id": "configFromData", "options": options}]}


def repeated(panel: Json, variable: str, beside: int) -> Json:
    """The panel once for each chosen value of a variable, ``beside`` in a row."""
    return panel | {"repeat": variable, "repeatDirection": "h", "maxPerRow": beside}
