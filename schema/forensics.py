"""The questions of ``forensics/*.sql``: what their headers say, and their functions in the database.

A file makes the function of its own name in the schema ``plant``, and is run again when its text changes. Those that
begin with an underscore are what the others are built of.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg

from schema.renewal import renew

FOLDER = Path(__file__).parent / "forensics"
_SHOWN = "-- Shown first:"
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
    shown: tuple[str, ...]  # the columns of a table for people; empty: all


def read(path: Path) -> Question:
    """The question of a file. Raises ValueError where its header is not like those of the others."""
    sql = path.read_text(encoding="utf-8")
    name = path.stem.removeprefix("_")
    lines = sql.splitlines()
    title = re.fullmatch(rf"-- {name}: (.+)", lines[0])
    if title is None or "-- Parameters" not in lines:
        raise ValueError(f"{path.name} does not begin with '-- {name}: purpose', or has no '-- Parameters'")
    parameters = []
    for line in lines[lines.index("-- Parameters") + 1 :]:
        match = _PARAMETER.fullmatch(line)
        if match is None:
            break
        parameters.append(Parameter(match[1], match[2], match[3]))
    shown = next((line for line in lines if line.startswith(_SHOWN)), _SHOWN).removeprefix(_SHOWN)
    return Question(name, title[1], tuple(parameters), sql, tuple(shown.replace(",", " ").split()))


@cache
def questions() -> dict[str, Question]:
    """What can be asked, by name."""
    return {path.stem: read(path) for path in sorted(FOLDER.glob("[a-z]*.sql"))}


def _files(folder: Path) -> list[Question]:
    return [read(path) for path in sorted(folder.glob("*.sql"))]  # "_" sorts before letters


async def bring(connection: asyncpg.Connection[Any], folder: Path = FOLDER) -> list[str]:
    """Make the functions of new and changed files, drop those of files that are gone; returns whose they were."""
    files = {question.name: question.sql for question in _files(folder)}
    return await renew(connection, "forensics", files, drop_first=True)
