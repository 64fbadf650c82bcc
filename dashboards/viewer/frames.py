"""Query results as columns for JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from core.errors import QueryError

MAX_CELLS = 2_000_000  # of a table with a column for each curve
MAX_BYTES = 16 * 1024**2  # of the texts of an answer
Kind: TypeAlias = Literal["time", "number", "boolean", "string"]

_KINDS: dict[str, Kind] = {
    "timestamptz": "time",
    "timestamp": "time",
    "date": "time",
    "int2": "number",
    "int4": "number",
    "int8": "number",
    "float4": "number",
    "float8": "number",
    "numeric": "number",
    "bool": "boolean",
}


@dataclass(slots=True)
class Frame:
    """Columns of equal length. Times in ms since 1970; NaN and infinity are None."""

    names: list[str]
    kinds: list[Kind]
    columns: list[list[Any]]
    notice: str = ""  # what the reader should know of it
    drawing: dict[str, Any] | None = None  # charts of what it is about
    is_unknown: bool = False  # whether it has no rows because nothing could be judged

    def json(self) -> dict[str, Any]:
        """The JSON for the page."""
        fields = [{"name": name, "type": kind} for name, kind in zip(self.names, self.kinds, strict=True)]
        more = {"notice": self.notice, "drawing": self.drawing, "unknown": self.is_unknown}
        return {"fields": fields, "columns": self.columns} | {name: value for name, value in more.items() if value}


def frame(names: Sequence[str], types: Sequence[str], rows: Sequence[Sequence[Any]]) -> Frame:
    """``types``: PostgreSQL type names."""
    kinds: list[Kind] = [_KINDS.get(kind, "string") for kind in types]
    columns = [[_plain(row[i]) for row in rows] for i in range(len(names))]
    return Frame(list(names), kinds, columns)


def text_bytes(rows: Iterable[Iterable[Any]]) -> int:
    """The size of the texts in rows, as characters."""
    return sum(len(value) for row in rows for value in row if isinstance(value, str))


def wide(long: Frame) -> Frame:
    """One column per series, by time: text columns name the series, as in Grafana's format ``time_series``."""
    at = next((i for i, kind in enumerate(long.kinds) if kind == "time"), None)
    texts = [i for i, kind in enumerate(long.kinds) if kind == "string"]
    values = [i for i, kind in enumerate(long.kinds) if kind in ("number", "boolean")]
    if at is None or not texts:
        return long
    times = sorted(set(long.columns[at]))
    place = {moment: row for row, moment in enumerate(times)}
    series = len(set(zip(*(long.columns[i] for i in texts), strict=True))) * len(values)
    if series * len(times) > MAX_CELLS:
        raise QueryError(504, f"{series:,} curves of {len(times):,} points: choose fewer channels")
    columns_by_name: dict[str, list[Any]] = {}
    for row, moment in enumerate(long.columns[at]):
        name_of_series = " ".join(str(long.columns[i][row]) for i in texts)
        for i in values:
            name = name_of_series if len(values) == 1 else f"{long.names[i]} {name_of_series}"
            columns_by_name.setdefault(name, [None] * len(times))[place[moment]] = long.columns[i][row]
    kinds: list[Kind] = ["time"]
    kinds += ["number"] * len(columns_by_name)
    return Frame([long.names[at], *columns_by_name], kinds, [times, *columns_by_name.values()], long.notice)


def _plain(value: object) -> object:
    for kinds, plain in _PLAIN:
        if isinstance(value, kinds):
            return plain(value)
    return str(value)


_PLAIN: tuple[tuple[type | tuple[type, ...], Callable[[Any], object]], ...] = (
    ((bool, int, str, type(None)), lambda value: value),
    (float, lambda value: value if math.isfinite(value) else None),
    (datetime, lambda value: (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000),
    (date, lambda value: datetime.combine(value, time(), UTC).timestamp() * 1000),
    (Decimal, lambda value: float(value) if value.is_finite() else None),
    (timedelta, lambda value: value.total_seconds()),
    (list, lambda value: ", ".join(f"{one:.6g}" if isinstance(one, float) else str(one) for one in value)),
)
