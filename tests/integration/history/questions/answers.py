"""Answers that are to be the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from history.sql.sources.execution import Limits

LIMITS = Limits("1GiB", 2, 300)
_TOLERANCE = 1e-9  # of floats, relative and absolute: sums are made in another order, and what is left of 0 is not 0
Rows = list[dict[str, Any]]


def assert_same(found: Rows, expected: Iterable[Any]) -> None:
    """Same columns and rows in the same order."""
    rows = [dict(row) for row in expected]
    assert [[*row] for row in found] == [[*row] for row in rows]
    for one, other in zip(found, rows, strict=True):
        assert one == {name: _near(value) for name, value in other.items()}


def _near(value: Any) -> Any:
    return pytest.approx(value, rel=_TOLERANCE, abs=_TOLERANCE) if isinstance(value, float) else value
