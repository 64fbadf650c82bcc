"""What a browser may ask: which dashboard and panel, over which time, with which values of the variables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dashboards.viewer.expand import MOST_VALUES, Range
from ingest.errors import QuestionError

_MS_OF_YEAR_9999 = 253_402_300_799_000
_MOST_POINTS = 5000

_Value = Annotated[str, Field(max_length=300)]
_Milliseconds = Annotated[int, Field(ge=0, le=_MS_OF_YEAR_9999)]


class Asked(BaseModel):
    """The body of every question. Times in ms since 1970; ``interval`` is a point's length in ms."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    dashboard: Annotated[str, Field(max_length=100)]
    panel: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    variable: Annotated[str, Field(max_length=100)] | None = None
    search: Annotated[str, Field(max_length=300)] = ""  # words that a variable's values must have
    since: _Milliseconds
    until: _Milliseconds
    interval: Annotated[int, Field(ge=1)] = 1000
    variables: Annotated[
        dict[Annotated[str, Field(max_length=100)], Annotated[list[_Value], Field(max_length=MOST_VALUES)]],
        Field(max_length=50),
    ] = {}

    @model_validator(mode="after")
    def _ordered(self) -> Asked:
        if self.since >= self.until:
            raise ValueError("since must be before until")
        return self

    @property
    def over(self) -> Range:
        """The time asked about; points are never more than a screen could show."""
        least = max(self.interval, (self.until - self.since) // _MOST_POINTS, 1)
        return Range(_time(self.since), _time(self.until), least)


def asked(body: bytes) -> Asked:
    """What a body asks. Raises QuestionError."""
    try:
        return Asked.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise QuestionError(400, f"{where}: {first['msg']}" if where else first["msg"]) from None


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
