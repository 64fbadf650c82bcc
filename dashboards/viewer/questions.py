"""Questions in the queries of panels: which one is asked, and its rows in the place of the call.

A question over days that retention dropped is answered by DuckDB, as ``plantlog ask`` does. The rest of the panel's
query runs in the database as ever, over these rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schema.forensics import questions

_CALL = re.compile(r"\bplant\.(\w+)\(")
_PLACE = "answered_question"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a question in a query, both with macros."""

    question: str
    arguments: str
    text: str

    def taken_out(self, sql: str) -> str:
        """The query with a name in the place of the call."""
        return sql.replace(self.text, _PLACE)


@dataclass(frozen=True, slots=True)
class Rows:
    """What was answered: columns with their names and PostgreSQL's types."""

    names: Sequence[str]
    types: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def put_into(self, sql: str, parameters: list[object]) -> tuple[str, list[object]]:
        """A query of :meth:`Call.taken_out`, with these rows in that place, and its parameters."""
        columns: list[object] = [[row[i] for row in self.rows] for i in range(len(self.names))]
        first = len(parameters) + 1
        arrays = ", ".join(f"${first + i}::{kind}[]" for i, kind in enumerate(self.types))
        names = ", ".join(f'"{name}"' for name in self.names)
        given = f"(SELECT r.* FROM unnest({arrays}) AS r ({names}))"
        return sql.replace(_PLACE, given), [*parameters, *columns]


def find_call(sql: str) -> Call | None:
    """The question that a query asks; None: it asks none."""
    for found in _CALL.finditer(sql):
        if found[1] in questions():
            depth, end = 1, found.end()
            while depth:
                depth += {"(": 1, ")": -1}.get(sql[end], 0)
                end += 1
            return Call(found[1], sql[found.end() : end - 1], sql[found.start() : end])
    return None
