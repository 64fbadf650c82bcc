"""The values that a variable may have: as many as a person looks through, what is searched for, what is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

MOST = 500  # of one answer, beside those that are chosen
_SQL = (Path(__file__).parent / "options.sql").read_text(encoding="utf-8")


def among(query: str, parameters: Sequence[object], search: str, chosen: Sequence[str]) -> tuple[str, list[object]]:
    """The statement for the values that a variable's ``query`` gives, and its parameters.

    Columns ``__text``, ``__value`` and ``total``, the number of values whose texts have all words of ``search``.
    """
    first = len(parameters) + 1
    places = {name: f"${first + i}" for i, name in enumerate(("words", "chosen", "most"))}
    sql = _SQL.format(query=query.rstrip().rstrip(";"), **places)
    return sql, [*parameters, search.lower().split(), list(chosen), MOST]
