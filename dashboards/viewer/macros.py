"""Expands Grafana's macros and variables to statement parameters: no text from a browser becomes SQL.

Equivalent to the literals of Grafana's PostgreSQL data source: ``$__timeFrom()`` and ``$__timeTo()`` are the
bounds, ``$__timeFilter(column)`` is ``column BETWEEN`` them, ``$__interval_ms`` is the length of a point, and
``${name:sqlstring}`` the variable's values, quoted and separated by commas. If there are more than a browser lists, it
sends ``$__all``, which stands for the results of the variable's query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from core.errors import QueryError

_MACRO = re.compile(
    r"\$__timeFilter\((?P<column>[\w.\"]+)\)"
    r"|(?P<since>\$__timeFrom\(\))"
    r"|(?P<until>\$__timeTo\(\))"
    r"|(?P<interval>\$__interval_ms\b)"
    r"|\$\{(?P<variable>\w+):sqlstring\}"
    r"|(?P<unknown>\$__\w+|\$\{[^}]*\}?|\[\[)"
)
MAX_VALUES = 1000  # per variable
_ALL = ["$__all"]
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ChartRange:
    """A time range, and the length of a point in a chart."""

    since: datetime
    until: datetime
    interval_ms: int


def expand(
    sql: str, variables: Mapping[str, Sequence[str]], time_range: ChartRange, all_values: Mapping[str, str] = _NONE
) -> tuple[str, list[object]]:
    """The statement and its parameters; ``all_values``: variable → SQL for all its values.

    Raises QueryError for unknown macros and variables without value.
    """
    parameters: list[object] = []

    def bound(value: object, kind: str) -> str:
        parameters.append(value)
        return f"${len(parameters)}::{kind}"

    def replaced(match: re.Match[str]) -> str:
        if match["unknown"] is not None:
            raise QueryError(400, f"{match['unknown']} is not supported")
        if match["column"] is not None:
            since, until = bound(time_range.since, "timestamptz"), bound(time_range.until, "timestamptz")
            return f"{match['column']} BETWEEN {since} AND {until}"
        if match["since"] is not None:
            return bound(time_range.since, "timestamptz")
        if match["until"] is not None:
            return bound(time_range.until, "timestamptz")
        if match["interval"] is not None:
            return str(int(time_range.interval_ms))
        if match["variable"] in all_values and variables.get(match["variable"]) == _ALL:
            return f"SELECT v.__value FROM ({_MACRO.sub(replaced, all_values[match['variable']])}) AS v"
        return ", ".join(bound(value, "text") for value in _values(match["variable"], variables))

    return _MACRO.sub(replaced, sql), parameters


def _values(name: str, variables: Mapping[str, Sequence[str]]) -> Sequence[str]:
    if name not in variables:
        raise QueryError(400, f"variable {name} has no value")
    return variables[name] or [""]
