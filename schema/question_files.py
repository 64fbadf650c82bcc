"""The questions of ``questions/*.sql``, which DuckDB answers over database and archive together.

A file has a header and two statements. The first makes the rows of some channels, from the parameters of the header by
their names; the second makes the answer of the table ``portion_rows``, which has those of all portions::

    -- NAME: which sensors …
    --
    -- Parameters
    --   since     timestamptz  from this moment on
    --   hold      interval     minimum time at one value [1 min]
    --   channels  text[]       names or patterns [NULL: all]
    -- Legal: hold 0 s..100 years
    -- Portions: unit
    SELECT …;

    SELECT * FROM portion_rows ORDER BY …;

Defaults stand in brackets, as their type is written; words behind NULL say what it means. NULL of an interval may be
``1 min``, ``10 sampling intervals``, ``a 300th of the interval`` or ``20 times the interval``; of several, the longest.
A parameter of the type ``reference`` is a time before since, or ``FROM..TO``; SQL has its bounds as a list. NULL of one
is such a length before since.
``Periods`` are those that a question can find, ``5 steps to a 10th of the interval``.
``Portions`` says which channels have to be together, so that the rows of several portions are those of all: those of a
channel (each alone), of a unit (of the plant), of a namesake (units whose last parts are the same), or of a sister
(units whose last parts are the same but for digits).
``Judges: analog channels`` says which channels can have rows, where the rows of portions have no verdicts on channels.
``Without rows: nothing is missing in {channels}`` is what an answer without rows says, where that is not that nothing
was found.

``ask`` joins tables as they are written: the samples come first, and what is few on the right.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REFERENCE = "reference"  # type of a parameter: the interval from which is learned what is usual
CHANNEL = "channel"  # type of a parameter: the name of one
FOLDER = Path(__file__).parent / "questions"
_SUMMARY_HEADER = "-- Shown first:"
_PORTIONS = re.compile(r"^-- Portions: (channel|unit|namesake|sister)$", re.MULTILINE)
_JUDGES = re.compile(r"^-- Judges: (analog|numeric) channels$", re.MULTILINE)
_PERIODS = re.compile(r"^-- Periods: (\d+) steps to a (\d+)th of the interval$", re.MULTILINE)
_NUMERIC = ("analog", "discrete", "counter")
_WITHOUT_ROWS = re.compile(r"^-- Without rows: (.+)$", re.MULTILINE)
_LEGAL = re.compile(r"^-- Legal: (.+)$", re.MULTILINE)
_RANGE = re.compile(r"(\w+) (\S.*)?\.\.(.*\S)?")
_WITH_RANGE = ("interval", "int", "int4", "float8")  # types
_OPTIONS = {"since": "--from", "until": "--to", "channels": "--channel"}  # of all questions
_DATABASE_TYPES = {REFERENCE: "timestamptz[]", CHANNEL: "text"}
_READS = re.compile(r"^-- Reads from: (\w+)(?: - (\w+))?$", re.MULTILINE)
_PARAMETER = re.compile(r"--   (\w+)\s+(\w+(?:\[\])?)\s+(.+?)( \[([^\[\]]+)\])?")


@dataclass(frozen=True, slots=True)
class Range:
    """Legal range of a parameter. Both ends are as the header has them: a value, or what it depends on; empty: open."""

    least: str
    most: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its SQL type in words, and what it means, with its default in brackets where it has one."""

    name: str
    type: str
    meaning: str
    default: str | None  # as its type is written; None: NULL, or that it is required
    required: bool
    automatic: str = ""  # what NULL means
    legal: Range | None = None  # of a number or an interval

    @property
    def option(self) -> str:
        """Its option on the command line."""
        return _OPTIONS.get(self.name, "--" + self.name.replace("_", "-"))

    @property
    def database_type(self) -> str:
        """Its type in DuckDB: a reference is its bounds."""
        return _DATABASE_TYPES.get(self.type, self.type)


@dataclass(frozen=True, slots=True)
class Question:
    """One file."""

    name: str
    purpose: str
    parameters: tuple[Parameter, ...]
    header: str  # for people
    portion: str  # SQL: the rows of some channels
    finish: str  # SQL: the answer, of the table ``portion_rows``, of all portions
    portions: str  # which channels have to be together
    summary_columns: tuple[str, ...]  # the columns of a table for people; empty: all
    reads_from: tuple[str, str | None]  # from when on it reads samples: a parameter, and an interval before that
    kinds: tuple[str, ...]  # of channels that it judges by their samples of the interval; empty: all
    periods: tuple[int, int] | None  # that it finds: steps of the shortest one, and how often the longest one is there
    without_rows: str  # what an answer without rows says of its {channels}

    @property
    def macro(self) -> str:
        """SQL of DuckDB: a function of the parameters, by position."""
        return f"CREATE MACRO {self.name}({', '.join(p.name for p in self.parameters)}) AS TABLE\n{self.portion}"


def read(path: Path) -> Question:
    """The question of a file. Raises ValueError where it is not like those of the others."""
    sql = path.read_text(encoding="utf-8")
    name = path.stem
    lines = sql.splitlines()
    title = re.fullmatch(rf"-- {name}: (.+)", lines[0])
    portions = _PORTIONS.search(sql)
    statements = [text.strip() for text in f"{sql}\n".split(";\n") if text.strip()]
    if title is None or "-- Parameters" not in lines or portions is None or len(statements) != 2:
        raise ValueError(
            f"{path.name} must begin with '-- {name}: purpose', contain '-- Parameters' and '-- Portions: ', and have "
            "two statements"
        )
    parameters, ranges = [], _ranges(sql)
    for line in lines[lines.index("-- Parameters") + 1 :]:
        match = _PARAMETER.fullmatch(line)
        if match is None:
            break
        default = None if match[5] is None or match[5].startswith("NULL: ") else match[5]
        automatic = (match[5] or "").removeprefix("NULL: ") if default is None else ""
        meaning = match[3] + (match[4] or "")
        legal = ranges.pop(match[1]) if match[2] in _WITH_RANGE and match[1] in ranges else None
        if legal is None and match[2] in _WITH_RANGE:
            raise ValueError(f"{path.name} must say what is legal of {match[1]}: '-- Legal: {match[1]} LEAST..MOST'")
        parameters.append(Parameter(match[1], match[2], meaning, default, match[4] is None, automatic, legal))
    if ranges:
        raise ValueError(f"{path.name} has no number or interval {', '.join(ranges)}, of which it says what is legal")
    summary_columns = next((line for line in lines if line.startswith(_SUMMARY_HEADER)), _SUMMARY_HEADER).removeprefix(
        _SUMMARY_HEADER
    )
    reads = _READS.search(sql)
    reads_from = ("since", None) if reads is None else (reads[1], reads[2])
    judges, periods, without_rows = (pattern.search(sql) for pattern in (_JUDGES, _PERIODS, _WITHOUT_ROWS))
    return Question(
        name=name,
        purpose=title[1],
        parameters=tuple(parameters),
        header="\n".join(line[3:] for line in lines[: next(i for i, line in enumerate(lines) if line[:2] != "--")]),
        portion=statements[0],
        finish=statements[1],
        portions=portions[1],
        summary_columns=tuple(summary_columns.replace(",", " ").split()),
        reads_from=reads_from,
        kinds=() if judges is None else _NUMERIC if judges[1] == "numeric" else (judges[1],),
        periods=None if periods is None else (int(periods[1]), int(periods[2])),
        without_rows="nothing found in {channels}" if without_rows is None else without_rows[1],
    )


def _ranges(sql: str) -> dict[str, Range]:
    """Legal ranges by parameter."""
    matches = (_RANGE.fullmatch(text) for line in _LEGAL.findall(sql) for text in line.split(", "))
    return {match[1]: Range(match[2] or "", match[3] or "") for match in matches if match is not None}


@cache
def names() -> tuple[str, ...]:
    """Names of the questions, in order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.sql")))


@cache
def question(name: str) -> Question:
    """The question with one of these names."""
    return read(FOLDER / f"{name}.sql")


@cache
def questions() -> dict[str, Question]:
    """Questions by name."""
    return {name: question(name) for name in names()}
