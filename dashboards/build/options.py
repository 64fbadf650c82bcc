"""What Grafana calls field configuration: thresholds, colours, mappings, overrides, links; and the variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

DATASOURCE: Json = {"type": "grafana-postgresql-datasource", "uid": "plantlog"}

# One palette for all levels; Grafana knows these names, the viewer's style sheet has them too.
GOOD, WARN, BAD, QUIET, INFO = "green", "orange", "red", "text", "blue"

# Cells of tables that show a state by their colour.
COLOURED_TEXT: Json = {"type": "color-text"}
COLOURED_CELL: Json = {"type": "color-background", "mode": "basic"}

# What a link keeps of the page that it leaves.
TIME = "${__url_time_range}"


def steps(*limits: tuple[float | None, str]) -> Json:
    """Thresholds: from each value on this colour; the first begins at None, which is everything below."""
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in limits]}


PLAIN = steps((None, QUIET))
ANY_IS_BAD = steps((None, GOOD), (1, BAD))
ANY_IS_ODD = steps((None, GOOD), (1, WARN))


def texts(mapping: Mapping[str, tuple[str, str]]) -> list[Json]:
    """Value → (what is shown, colour)."""
    options = {
        value: {"text": shown, "color": color, "index": index}
        for index, (value, (shown, color)) in enumerate(mapping.items())
    }
    return [{"type": "value", "options": options}]


def override(field: str, **properties: Any) -> Json:
    """Properties of one column; ``custom__width`` is written for ``custom.width``."""
    listed = [{"id": key.replace("__", "."), "value": value} for key, value in properties.items()]
    return {"matcher": {"id": "byName", "options": field}, "properties": listed}


def override_type(kind: str, **properties: Any) -> Json:
    """Properties of all columns of one type: time, number, string, boolean."""
    return override("", **properties) | {"matcher": {"id": "byType", "options": kind}}


def override_names(names: str, **properties: Any) -> Json:
    """Properties of the columns of these names, with | between them; not each table has them."""
    return override("", **properties) | {"matcher": {"id": "byRegexp", "options": f"/^({names})$/"}}


def link(title: str, uid: str, variables: Mapping[str, str], own_time: str = TIME) -> Json:
    """A link of a value or a row to another dashboard; ``variables``: name → column of the row."""
    given = "&".join(f'var-{name}=${{__data.fields["{column}"]:percentencode}}' for name, column in variables.items())
    return {"title": title, "url": f"/d/{uid}?{given}&{own_time}", "targetBlank": False}


def query_variable(name: str, label: str, sql: str, *, multi: bool = False, every: bool = False, hide: int = 0) -> Json:
    """A variable whose values come from SQL; ``hide`` 2 shows nothing of it."""
    chosen: Json = {"text": ["All"], "value": ["$__all"]} if every and multi else {}
    return {
        "type": "query",
        "name": name,
        "label": label,
        "datasource": DATASOURCE,
        "definition": sql,
        "query": sql,
        "refresh": 1,  # when the dashboard is opened
        "regex": "",
        "sort": 0,  # as the query sorts
        "multi": multi,
        "includeAll": every,
        "allValue": None,
        "current": chosen,
        "options": [],
        "hide": hide,
        "skipUrlSync": hide == 2,
    }


def custom_variable(name: str, label: str, choices: Sequence[tuple[str, str]]) -> Json:
    """A variable of given (text, value) pairs; the first is chosen."""
    options = [{"text": text, "value": value, "selected": index == 0} for index, (text, value) in enumerate(choices)]
    return {
        "type": "custom",
        "name": name,
        "label": label,
        "query": ", ".join(f"{text} : {value}" for text, value in choices),
        "multi": False,
        "includeAll": False,
        "current": options[0],
        "options": options,
        "hide": 0,
        "skipUrlSync": False,
    }


def target(sql: str, ref: str = "A", form: str = "table") -> Json:
    """One query of a panel; ``form`` is table or time_series."""
    return {
        "refId": ref,
        "datasource": DATASOURCE,
        "editorMode": "code",
        "format": form,
        "rawQuery": True,
        "rawSql": sql,
    }


def annotation(name: str, color: str, sql: str) -> Json:
    """Bands or marks in all time series of a dashboard: columns time, timeEnd, text, tags."""
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": color,
        "target": target(sql, "Annotations"),
    }
