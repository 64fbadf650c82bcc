"""Grafana's macros and variables, turned into parameters of a statement: no text of a browser becomes SQL.

What Grafana's PostgreSQL data source makes of the same text, as literals: ``$__timeFrom()`` and ``$__timeTo()`` are the
bounds, ``$__timeFilter(column)`` is ``column BETWEEN`` them, ``$__interval_ms`` is the length of a point, and
``${name:sqlstring}`` the variable's values, quoted, with commas between. Where these are more than a browser lists, it
says ``$__all``: they are what the variable's own query gives.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from ingest.errors import QuestionError

_MACRO = re.compile(
    r"\$__timeFilter\((?P<column>[\w.\"]+)\)"
    r"|(?P<since>\$__timeFrom\(\))"
    r"|(?P<until>\$__timeTo\(\))"
    r"|(?P<interval>\$__interval_ms\b)"
    r"|\$\{(?P<variable>\w+):sqlstring\}"
    r"|(?P<unknown>\$__\w+|\$\{[^}]*\}?|\[\[)"
)
MOST_VALUES = 1000  # of one variable
_ALL = ["$__all"]
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Range:
    """The time that is looked at, and how much of it a point of a chart stands for."""

    since: datetime
    until: datetime
    interval_ms: int


def expand(
    sql: str, variables: Mapping[str, Sequence[str]], over: Range, every: Mapping[str, str] = _NONE
) -> tuple[str, list[object]]:
    """The statement and its parameters; ``every``: variables that may have all values → SQL of these.

    Raises QuestionError: a macro that is not known, a variable without value.
    """
    parameters: list[object] = []

    def bound(value: object, kind: str) -> str:
        parameters.append(value)
        return f"${len(parameters)}::{kind}"

    def replaced(match: re.Match[str]) -> str:
        if match["unknown"] is not None:
            raise QuestionError(400, f"{match['unknown']} is not known here")
        if match["column"] is not None:
            since, until = bound(over.since, "timestamptz"), bound(over.until, "timestamptz")
            return f"{match['column']} BETWEEN {since} AND {until}"
        if match["since"] is not None:
            return bound(over.since, "timestamptz")
        if match["until"] is not None:
            return bound(over.until, "timestamptz")
        if match["interval"] is not None:
            return str(int(over.interval_ms))
        if match["variable"] in every and variables.get(match["variable"]) == _ALL:
            return f"SELECT v.__value FROM ({_MACRO.sub(replaced, every[match['variable']])}) AS v"
        return ", ".join(bound(value, "text") for value in _values(match["variable"], variables))

    return _MACRO.sub(replaced, sql), parameters


def _values(name: str, variables: Mapping[str, Sequence[str]]) -> Sequence[str]:
    if name not in variables:
        raise QuestionError(400, f"variable {name} has no value")
    return variables[name] or [""]
