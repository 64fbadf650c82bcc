"""Errors of a field, with their place."""

from __future__ import annotations

from pathlib import Path

from core.config.explain import shown
from core.errors import OperationError, Problem


class BadField(Exception):  # noqa: N818  (caught where the line is known)
    """A text of a column is not what it has to be."""

    def __init__(self, place: int, found: str, legal: str) -> None:
        self.place = place  # in the column, from 0
        self.found = found
        self.legal = legal
        super().__init__(found)


def bad_input(file: Path, line: int | None, field: str, found: str, legal: str) -> OperationError:
    """An error that names file, line (from 1) and field."""
    return OperationError(str(Problem(str(file), line, field, shown(found), legal)))
