"""The questions of ``routines/forensics/*.sql``: what their headers say.

Some of the files are no questions, but what the others and the dashboards are built of: their headers say so.

``duckdb/NAME.sql`` has the same question for days that are archived, as two macros. ``NAME_of``, with values of the
question's types, makes the rows of some channels; NAME, with its defaults, is those of all of them in the question's
order::

    -- Portions: unit
    CREATE MACRO NAME_of(since, until, channels, …) AS TABLE …;
    CREATE MACRO NAME(since, until, channels := NULL, …) AS TABLE
    WITH found AS (
        FROM NAME_of(since::TIMESTAMPTZ, until::TIMESTAMPTZ, channels::TEXT[], …)
    )
    SELECT … FROM found ORDER BY …;

``Portions`` says which channels have to be together, so that the rows of several portions are those of all: those of a
channel (each alone), of a unit (of the plant), of a namesake (units whose last parts are the same), or all.

``ask`` joins tables as they are written: the samples come first, and what is few on the right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "routines" / "forensics"
_NO_QUESTION = "-- Not a question"
_SUMMARY_HEADER = "-- Shown first:"
_PORTIONS = re.compile(r"^-- Portions: (channel|unit|namesake|all)$", re.MULTILINE)
_FINISH = re.compile(
    r"^CREATE MACRO (\w+)\([^;]*?\) AS TABLE\nWITH found AS \(\n    FROM \1_of\([^;]*?\)\n\)\n([^;]*);\s*\Z",
    re.MULTILINE,
)
_JUDGES = re.compile(r"^-- Judges: (analog|numeric) channels( with samples before since)?$", re.MULTILINE)
_NUMERIC = ("analog", "discrete", "counter")
_READS = re.compile(r"^-- Reads from: (\w+)(?: - (\w+))?$", re.MULTILINE)
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
    reads_from: tuple[str, str | None]  # from when on it reads samples: a parameter, and an interval before that
    kinds: tuple[str, ...]  # of channels that it judges by their samples of the interval; empty: it judges all channels
    compares: bool  # whether it needs samples before since, too


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
    reads = _READS.search(sql)
    reads_from = ("since", None) if reads is None else (reads[1], reads[2])
    judges = _JUDGES.search(sql)
    kinds = () if judges is None else _NUMERIC if judges[1] == "numeric" else (judges[1],)
    compares = judges is not None and judges[2] is not None
    summary = tuple(summary_columns.replace(",", " ").split())
    return Question(name, title[1], tuple(parameters), sql, summary, reads_from, kinds, compares)


@dataclass(frozen=True, slots=True)
class DuckdbForm:
    """A question as DuckDB has it."""

    sql: str
    portions: str
    finish: str  # SQL that makes the answer of a table ``found``, which has the rows of all portions


def read_duckdb(path: Path) -> DuckdbForm:
    """The form of a file. Raises ValueError where it is not like those of the others."""
    sql = path.read_text(encoding="utf-8")
    name, portions, finish = path.stem, _PORTIONS.search(sql), _FINISH.search(sql)
    if portions is None or finish is None or finish[1] != name:
        raise ValueError(f"duckdb/{path.name} must contain '-- Portions: ' and end with a macro {name} over {name}_of")
    return DuckdbForm(sql, portions[1], finish[2])


@cache
def duckdb_forms() -> dict[str, DuckdbForm]:
    """Those questions that can be asked over archived days, by name."""
    return {path.stem: read_duckdb(path) for path in sorted(FOLDER.glob("duckdb/*.sql"))}


@cache
def questions() -> dict[str, Question]:
    """What can be asked, by name."""
    files = (read(path) for path in sorted(FOLDER.glob("*.sql")))
    return {file.name: file for file in files if _NO_QUESTION not in file.sql}
