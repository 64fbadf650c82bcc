"""The available dashboards. The browser sends names of panels and variables; their SQL never leaves the server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from core.errors import QueryError
from dashboards.fill import OF_GRAFANA, OF_VIEWER, dashboards

_VARIABLE = re.compile(r"\$\{(\w+)[:}]")


@dataclass(frozen=True, slots=True)
class PanelQuestion:
    """A question of schema/questions that a panel asks."""

    name: str  # also a variable, such as ${question}
    channels: Sequence[str]  # names and patterns with variables, such as ${unit}/*
    within: timedelta  # before the end of the time range
    options: dict[str, str]  # parameters of the question as their types are written
    is_drawn: bool = False  # whether the channels of the answer are drawn above it

    def filled(self, variables: Mapping[str, Sequence[str]]) -> PanelQuestion:
        """The question with the values of the variables. Raises QueryError for one that has none."""
        return replace(
            self, name=", ".join(_filled([self.name], variables)), channels=_filled(self.channels, variables)
        )


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a panel, variable or annotation."""

    ref: str
    sql: str
    time_series: bool = False  # rows are (time, names…, numbers…), to be pivoted to one column per series
    question: PanelQuestion | None = None  # over whose answer the SQL is; None: over the database


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard, with its SQL."""

    uid: str
    title: str
    content: dict[str, Any]

    def panels(self) -> Iterator[dict[str, Any]]:
        """All panels, including those in collapsed rows."""
        for panel in self.content["panels"]:
            yield panel
            yield from panel.get("panels", [])

    def panel(self, number: int) -> list[Query]:
        """The queries of a panel. Raises QueryError."""
        for panel in self.panels():
            if panel["id"] == number:
                return [_query(target) for target in panel.get("targets", [])]
        raise QueryError(404, f"{self.uid} has no panel {number}")

    def variable_names(self) -> list[str]:
        """Names of the variables, in their order."""
        return [variable["name"] for variable in self.content["templating"]["list"]]

    def variable(self, name: str) -> Query:
        """The query of a variable. Raises QueryError."""
        for variable in self.content["templating"]["list"]:
            if variable["name"] == name and variable["type"] == "query":
                return Query(name, variable["query"])
        raise QueryError(404, f"{self.uid} has no query variable {name}")

    def all_values_sql(self) -> dict[str, str]:
        """Variable → SQL for all its values, if it may have all."""
        return {
            variable["name"]: variable["query"]
            for variable in self.content["templating"]["list"]
            if variable.get("includeAll")
        }

    def annotations(self) -> list[Query]:
        """Annotation queries by name."""
        return [
            Query(annotation["name"], annotation["target"]["rawSql"])
            for annotation in self.content["annotations"]["list"]
            if "rawSql" in annotation.get("target", {}) and annotation["enable"]
        ]

    def public(self) -> dict[str, Any]:
        """The dashboard for the browser, without SQL."""
        return _without_sql(self.content)  # type: ignore[no-any-return]


class Library:
    """All dashboards of some folders, by uid."""

    def __init__(self, *folders: Path) -> None:
        """``folders``: none: what the viewer shows."""
        by_file = dashboards(*(folders or (OF_GRAFANA, OF_VIEWER)))
        self._by_uid = {
            content["uid"]: Dashboard(content["uid"], content["title"], content) for content in by_file.values()
        }

    def __iter__(self) -> Iterator[Dashboard]:
        return iter(self._by_uid.values())

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    def dashboard(self, uid: str) -> Dashboard:
        """One dashboard. Raises QueryError."""
        if uid not in self._by_uid:
            raise QueryError(404, f"no such dashboard: {uid}")
        return self._by_uid[uid]


def _filled(texts: Sequence[str], variables: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Texts with each value of the variables that they name."""
    for name in sorted(set(_VARIABLE.findall(" ".join(texts)))):
        if name not in variables:
            raise QueryError(400, f"variable {name} has no value")
        texts = [text.replace(f"${{{name}}}", value) for text in texts for value in variables[name]]
    return texts


def _query(target: dict[str, Any]) -> Query:
    described = target.get("question")
    question = described and PanelQuestion(
        described["name"],
        described["channels"],
        timedelta(hours=described["hours"]),
        described["options"],
        described.get("drawn", False),
    )
    return Query(target["refId"], target["rawSql"], target["format"] == "time_series", question)


def _without_sql(value: Any) -> Any:
    """A copy without SQL, but with the names of the variables that the SQL uses."""
    match value:
        case dict():
            of_variable = value.get("type") == "query"
            hidden = {"rawSql", "query"} if of_variable else {"rawSql", "question"}
            sql = str(value["query"]) if of_variable else f"{value.get('rawSql', '')}{value.get('question', '')}"
            shown = {key: _without_sql(part) for key, part in value.items() if key not in hidden}
            return shown | ({"needs": sorted(set(_VARIABLE.findall(sql)))} if sql else {})
        case list():
            return [_without_sql(part) for part in value]
    return value
