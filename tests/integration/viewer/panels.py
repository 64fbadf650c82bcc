"""Answers of the viewer's panels, without a browser."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from dashboards.viewer.library import Library
from dashboards.viewer.macros import TimeRange, expand
from dashboards.viewer.reader import Reader

VALUES = {
    "installation": [""],
    "area": ["pump"],
    "unit": ["pump/house"],
    "measure": ["m"],
    "compare": ["600"],
}


class Panels:
    """Asks what a panel shows: column → values."""

    def __init__(self, reader: Reader, now: datetime, interval_ms: int = 1000) -> None:
        self.reader = reader
        self.over = TimeRange(now - timedelta(minutes=30), now, interval_ms)

    async def ask(self, uid: str, title: str, ref: str = "A", **values: str) -> dict[str, list[Any]]:
        dashboard = Library().dashboard(f"plantlog-{uid}")
        (panel,) = (one for one in dashboard.panels() if one["title"] == title and one["type"] != "row")
        (query,) = (one for one in dashboard.panel(panel["id"]) if one.ref == ref)
        return await self.sql(query.sql, **values)

    async def sql(self, sql: str, **values: str) -> dict[str, list[Any]]:
        variables = VALUES | {name: [value] for name, value in values.items()}
        answer = await self.reader.query(*expand(sql, variables, self.over))
        return dict(zip(answer.names, answer.columns, strict=True))


def rows(found: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    return (dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True))
