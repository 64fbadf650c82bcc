"""Requests of the page: dashboard, panel, time range and variables; and the search for a variable's values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from core.errors import QueryError
from dashboards.viewer.macros import MAX_VALUES, ChartRange

_MS_OF_YEAR_9999 = 253_402_300_799_000
_MAX_POINTS = 5000

_Value = Annotated[str, Field(max_length=300)]
_Milliseconds = Annotated[int, Field(ge=0, le=_MS_OF_YEAR_9999)]
MAX_LISTED = 500  # per response, plus selected ones
_SQL = (Path(__file__).parent / "variable_values.sql").read_text(encoding="utf-8")


class PanelQuery(BaseModel):
    """The body of every request. Times in ms since 1970; ``interval``: length of a point in ms."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    dashboard: Annotated[str, Field(max_length=100)]
    panel: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    variable: Annotated[str, Field(max_length=100)] | None = None
    search: Annotated[str, Field(max_length=300)] = ""  # words to find in a variable's values
    since: _Milliseconds
    until: _Milliseconds
    interval: Annotated[int, Field(ge=1)] = 1000
    variables: Annotated[
        dict[Annotated[str, Field(max_length=100)], Annotated[list[_Value], Field(max_length=MAX_VALUES)]],
        Field(max_length=50),
    ] = {}

    @model_validator(mode="after")
    def _ordered(self) -> PanelQuery:
        if self.since >= self.until:
            raise ValueError("since must be before until")
        return self

    @property
    def time_range(self) -> ChartRange:
        """The time range; the number of points is limited to what a screen can show."""
        least = max(self.interval, (self.until - self.since) // _MAX_POINTS, 1)
        return ChartRange(_datetime(self.since), _datetime(self.until), least)


def parse_query(body: bytes) -> PanelQuery:
    """Parse a request body. Raises QueryError."""
    try:
        return PanelQuery.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise QueryError(400, f"{where}: {first['msg']}" if where else first["msg"]) from None


def _datetime(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def search_values(
    query: str, parameters: Sequence[object], search: str, chosen: Sequence[str]
) -> tuple[str, list[object]]:
    """A statement for the values of a variable's ``query``, and its parameters.

    Columns ``__text``, ``__value`` and ``total``: the number of values whose texts contain all words of ``search``.
    """
    first = len(parameters) + 1
    places = {name: f"${first + i}" for i, name in enumerate(("words", "chosen", "most"))}
    sql = _SQL.format(query=query.rstrip().rstrip(";"), **places)
    return sql, [*parameters, search.lower().split(), list(chosen), MAX_LISTED]
