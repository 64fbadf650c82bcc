"""The questions of ``routines/forensics/*.sql``: what their headers say.

Some of the files are no questions, but what the others and the dashboards are built of: their headers say so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "routines" / "forensics"
_NO_QUESTION = "-- Not a question"
_SUMMARY_HEADER = "-- Shown first:"
_PARAMETER = re.compile(r"--   (\w+)\s+(\w+(?:\[\])?)\s+(.+)")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its SQL type in words, and what it means, with its default in brackets where it has one."""

    name: str
    type: str
    meaning: str

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return not self.meaning.endswith("]")


@dataclass(frozen=True, slots=True)
class Question:
    """One file."""

    name: str
    purpose: str
    parameters: tuple[Parameter, ...]
    sql: str
    summary_columns: tuple[str, ...]  # the columns of a table for people; empty: all


def read(path: Path) -> Question:
    """The question of a file. Raises ValueError where its header is not like those of the others."""
    sql = path.read_text(encoding="utf-8")
    name = path.stem
    lines = sql.splitlines()
    title = re.fullmatch(rf"-- {name}: (.+)", lines[0])
    if title is None or "-- Parameters" not in lines:
        raise ValueError(f"{path.name} must begin with '-- {name}: purpose' and contain '-- Parameters'")
    parameters = []
    for line in lines[lines.index("-- Parameters") + 1 :]:
        match = _PARAMETER.fullmatch(line)
        if match is None:
            break
        parameters.append(Parameter(match[1], match[2], match[3]))
    summary_columns = next((line for line in lines if line.startswith(_SUMMARY_HEADER)), _SUMMARY_HEADER).removeprefix(
        _SUMMARY_HEADER
    )
    return Question(name, title[1], tuple(parameters), sql, tuple(summary_columns.replace(",", " ").split()))


@cache
def questions() -> dict[str, Question]:
    """What can be asked, by name."""
    files = (read(path) for path in sorted(FOLDER.glob("*.sql")))
    return {file.name: file for file in files if _NO_QUESTION not in file.sql}
