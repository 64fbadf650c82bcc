"""Answers of the viewer's panels, without a browser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from dashboards.viewer.frames import Frame
from dashboards.viewer.library import Library, Query
from dashboards.viewer.macros import ChartRange, expand
from dashboards.viewer.reader import ReaderPool

VALUES = {
    "installation": [""],
    "area": ["pump"],
    "unit": ["pump/house"],
    "measure": ["m"],
    "compare": ["600"],
    "question": ["change_points"],
}


class Panels:
    """Asks what a panel shows: column → values."""

    def __init__(self, reader: ReaderPool, now: datetime, interval_ms: int = 1000) -> None:
        self.reader = reader
        self.over = ChartRange(now - timedelta(minutes=30), now, interval_ms)

    async def ask(self, uid: str, title: str, ref: str = "A", **values: str) -> dict[str, list[Any]]:
        dashboard = Library().dashboard(f"plantlog-{uid}")
        (panel,) = (one for one in dashboard.panels() if one["title"] == title and one["type"] != "row")
        (query,) = (one for one in dashboard.panel(panel["id"]) if one.ref == ref)
        return await self.rows(query, **values)

    async def rows(self, query: Query, **values: str) -> dict[str, list[Any]]:
        variables = VALUES | {name: [value] for name, value in values.items()}
        answer = await frame_of(self.reader, query, variables, self.over, *expand(query.sql, variables, self.over))
        return dict(zip(answer.names, answer.columns, strict=True))


async def frame_of(
    reader: ReaderPool,
    query: Query,
    variables: Mapping[str, Sequence[str]],
    over: ChartRange,
    sql: str,
    parameters: list[object],
) -> Frame:
    """The rows of a query: of the database, or over the answer to its question."""
    if query.question is None:
        return await reader.query(sql, parameters)
    return await reader.ask(query.question.filled(variables), over, sql, parameters)


def rows(found: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    return (dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True))
