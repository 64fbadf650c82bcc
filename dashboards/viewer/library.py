"""The dashboards that there are. The browser names a panel or variable; its SQL is looked up here and stays here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingest.errors import OperationError, QuestionError

_VARIABLE = re.compile(r"\$\{(\w+):")
FOLDER = Path(__file__).parents[1] / "json"


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel, or that of a variable or annotation."""

    ref: str
    sql: str
    time_series: bool = False  # rows are (time, names…, numbers…), to be turned into a column for each series


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One file."""

    uid: str
    title: str
    content: dict[str, Any]

    def panels(self) -> Iterator[dict[str, Any]]:
        """All panels, also those inside collapsed rows."""
        for panel in self.content["panels"]:
            yield panel
            yield from panel.get("panels", [])

    def panel(self, number: int) -> list[Query]:
        """A panel's queries. Raises QuestionError."""
        for panel in self.panels():
            if panel["id"] == number:
                return [_query(target) for target in panel.get("targets", [])]
        raise QuestionError(404, f"{self.uid} has no panel {number}")

    def variable(self, name: str) -> Query:
        """The query of a variable. Raises QuestionError."""
        for variable in self.content["templating"]["list"]:
            if variable["name"] == name and variable["type"] == "query":
                return Query(name, variable["query"])
        raise QuestionError(404, f"{self.uid} has no query variable {name}")

    def every(self) -> dict[str, str]:
        """Variables that may have all their values → SQL of these."""
        return {one["name"]: one["query"] for one in self.content["templating"]["list"] if one.get("includeAll")}

    def annotations(self) -> list[Query]:
        """The queries of bands and marks, by name."""
        return [
            Query(one["name"], one["target"]["rawSql"])
            for one in self.content["annotations"]["list"]
            if "rawSql" in one.get("target", {}) and one["enable"]
        ]

    def public(self) -> dict[str, Any]:
        """What the browser gets: the file without its SQL."""
        return _without_sql(self.content)  # type: ignore[no-any-return]


class Library:
    """All files of a folder."""

    def __init__(self, folder: Path = FOLDER) -> None:
        contents = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
        self._by_uid = {content["uid"]: Dashboard(content["uid"], content["title"], content) for content in contents}
        if not self._by_uid:
            raise OperationError(f"{folder} holds no dashboards: `python -m dashboards.build` writes them")

    def __iter__(self) -> Iterator[Dashboard]:
        return iter(self._by_uid.values())

    def dashboard(self, uid: str) -> Dashboard:
        """One dashboard. Raises QuestionError."""
        if uid not in self._by_uid:
            raise QuestionError(404, f"there is no dashboard {uid}")
        return self._by_uid[uid]


def _query(target: dict[str, Any]) -> Query:
    return Query(target["refId"], target["rawSql"], target["format"] == "time_series")


def _without_sql(value: Any) -> Any:
    """The same without SQL, and with the names of the variables that the SQL needs."""
    match value:
        case dict():
            of_variable = value.get("type") == "query"
            hidden = {"rawSql", "definition", "query"} if of_variable else {"rawSql"}
            sql = str(value["query"] if of_variable else value.get("rawSql", ""))
            shown = {key: _without_sql(part) for key, part in value.items() if key not in hidden}
            return shown | ({"needs": sorted(set(_VARIABLE.findall(sql)))} if sql else {})
        case list():
            return [_without_sql(part) for part in value]
    return value
