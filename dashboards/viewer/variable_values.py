"""Possible values of a variable: a limited number, matching a search, and those selected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

MAX_LISTED = 500  # per response, plus selected ones
_SQL = (Path(__file__).parent / "variable_values.sql").read_text(encoding="utf-8")


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
