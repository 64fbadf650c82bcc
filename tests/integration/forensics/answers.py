"""Both forms of a question: PostgreSQL's and DuckDB's answer the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from ops.paths import State
from ops.sql.limits import Limits
from ops.sql.session import opened

LIMITS = Limits("1GiB", 2, 300)
_TOLERANCE = 1e-9  # of floats, relative and absolute: sums are made in another order, and what is left of 0 is not 0
Rows = list[dict[str, Any]]


def asked(state: State, call: str, arguments: Sequence[Any]) -> Rows:
    """The rows of ``plantlog sql``, for a call as PostgreSQL has it."""
    query = re.sub(r"'\{(.*?)\}'", lambda found: str(found[1].split(",")), call)
    with opened(state, LIMITS) as session, session.rows(f"FROM {query}", arguments) as (columns, rows):
        return [dict(zip(columns, row, strict=True)) for row in rows]


def assert_same(found: Rows, expected: Iterable[Any]) -> None:
    """Same columns and rows in the same order."""
    rows = [dict(row) for row in expected]
    assert [[*row] for row in found] == [[*row] for row in rows]
    for one, other in zip(found, rows, strict=True):
        assert one == {name: _near(value) for name, value in other.items()}


def _near(value: Any) -> Any:
    return pytest.approx(value, rel=_TOLERANCE, abs=_TOLERANCE) if isinstance(value, float) else value
