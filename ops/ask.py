"""``plantlog ask``: the questions of ``schema/forensics``, put to the database as the reader."""

from __future__ import annotations

import asyncio
import csv
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ingest.config.quantities import DURATION_LEGAL, Duration
from ingest.errors import DatabaseError, OperationError
from ops.paths import State
from ops.spool.kept_out import dsn
from schema.forensics import Question, questions
from schema.queries import load

_CONNECT_SECONDS = 10.0
_WIDE = 160
_NO_TIME_AGO = re.compile(r"0+(\.0+)?\s*(us|ms|s|m|h|d)")
_GIVEN = ("since", "until", "channels")  # parameters with an option of their own


@dataclass(frozen=True, slots=True)
class When:
    """The interval asked about: from and to, or around a moment. Texts as they were typed."""

    since: str | None = None
    until: str | None = None
    at: str | None = None
    around: str = "5m"

    def interval(self, now: datetime) -> tuple[datetime, datetime]:
        """Beginning and end. Raises OperationError."""
        if self.at is not None:
            if self.since is not None or self.until is not None:
                raise OperationError("--at stands in place of --from and --to")
            middle, half = _moment("--at", self.at, now), _duration("--around", self.around)
            return middle - half, middle + half
        if self.since is None:
            raise OperationError("which time? --from TIME [--to TIME], or --at TIME [--around 5m]")
        since, until = _moment("--from", self.since, now), _moment("--to", self.until or "now", now)
        if since >= until:
            raise OperationError(f"--from {since.isoformat()} is not before --to {until.isoformat()}")
        return since, until


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of one question, in its order."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]] = field(default_factory=list)


def question(name: str) -> Question:
    """One question. Raises OperationError with those that there are."""
    known = questions()
    if name not in known:
        raise OperationError(f"no question {name!r}; there are {', '.join(known)}")
    return known[name]


def options(asked: Question, words: Sequence[str]) -> dict[str, str]:
    """``--max-lag 1m --step=10s`` as parameters of a question. Raises OperationError with those that it has."""
    own = {p.name: p for p in asked.parameters if p.name not in _GIVEN}
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        key, equals, value = word.removeprefix("--").partition("=")
        name = key.replace("-", "_")
        if not word.startswith("--") or name not in own:
            legal = ", ".join("--" + n.replace("_", "-") for n in own) or "none"
            raise OperationError(f"{asked.name} has no option {word!r}; its own are: {legal}")
        if not equals:
            if not rest:
                raise OperationError(f"{word} needs a value: {own[name].type}, {own[name].meaning}")
            value = rest.pop(0)
        found[name] = value
    for name, parameter in own.items():
        if parameter.required and name not in found:
            raise OperationError(f"{asked.name} needs --{name.replace('_', '-')}: {parameter.meaning}")
    return found


def ask(state: State, asked: Question, when: When, channels: Sequence[str], own: Mapping[str, str]) -> Answer:
    """Put a question. Raises OperationError where it can't be meant, DatabaseError where there is no answer."""
    since, until = when.interval(datetime.now(UTC))
    arguments = {"since": since.isoformat(), "until": until.isoformat(), **own}
    try:
        return asyncio.run(_answer(dsn(state, "reader"), asked.name, arguments, list(channels)))
    except asyncpg.DataError as error:
        raise OperationError(f"{asked.name}: {error}") from error
    except asyncpg.QueryCanceledError as error:
        raise OperationError(f"{error}: narrow it with --from, --to or --channel") from error
    except asyncpg.UndefinedFunctionError as error:
        raise OperationError(f"{error}: is the database of another version? `plantlog up` renews it") from error
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise DatabaseError(f"the database does not answer: {str(error) or type(error).__name__}") from error


async def _answer(where: str, name: str, arguments: dict[str, str], channels: list[str]) -> Answer:
    queries = load("ask")
    # Compiling such long statements takes longer than it saves.
    settings = {"jit": "off", "timezone": "UTC", "application_name": "plantlog ask"}
    connection = await asyncpg.connect(where, timeout=_CONNECT_SECONDS, server_settings=settings)
    try:
        if channels:
            unmatched = [row["pattern"] for row in await connection.fetch(queries["unmatched"], channels)]
            if unmatched:
                raise OperationError(f"no channel is called {', '.join(unmatched)} (* stands for any text)")
            arguments["channels"] = await connection.fetchval(queries["array"], channels)
        if "target" in arguments and await connection.fetch(queries["unmatched"], [arguments["target"]]):
            raise OperationError(f"no channel is called {arguments['target']}")
        statement = await connection.prepare(
            await connection.fetchval(queries["statement"], name, json.dumps(arguments))
        )
        rows = await statement.fetch()
        return Answer(tuple(a.name for a in statement.get_attributes()), [tuple(row) for row in rows])
    finally:
        connection.terminate()


def list_questions(console: Console) -> None:
    """Print what can be asked."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for one in questions().values():
        table.add_row(f"[bold]{one.name}[/]", escape(one.purpose))
    wide = _wide(console)
    wide.print(table)
    wide.print(
        "\nplantlog ask NAME --from TIME --to TIME [--channel 'unit/*'] …; plantlog ask NAME --describe", style="dim"
    )


def describe(asked: Question) -> str:
    """What the question's file says of it."""
    lines = []
    for line in asked.sql.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line[3:])
    own = ["--" + p.name.replace("_", "-") for p in asked.parameters if p.name not in _GIVEN]
    spelled = "For ask: since is --from, until --to, channels --channel; its own options are " + (
        ", ".join(own) or "none"
    )
    return "\n".join([*lines, spelled])


def show(asked: Question, answer: Answer, limit: int, console: Console) -> None:
    """Print a table of the first ``limit`` rows (0: of all). Of a question with many columns one row has all of them,
    below each other, and several rows have those shown first."""
    if not answer.rows:
        console.print("no rows: nothing of the kind was found")
        return
    wide = _wide(console)
    if len(answer.rows) == 1 and len(answer.columns) > len(asked.shown or answer.columns):
        one = Table(box=None, show_header=False, pad_edge=False)
        for name, value in zip(answer.columns, answer.rows[0], strict=True):
            one.add_row(name.replace("_", " "), escape(_in_words(value)))
        wide.print(one)
        return
    table = Table(header_style="bold")
    places = [i for i, name in enumerate(answer.columns) if name in (asked.shown or answer.columns)]
    for i in places:
        number = all(isinstance(row[i], int | float) for row in answer.rows)
        # a space, so that a long name can be broken
        table.add_column(answer.columns[i].replace("_", " "), justify="right" if number else "left", overflow="fold")
    for row in answer.rows[: limit or None]:
        table.add_row(*(escape(_in_words(row[i])) for i in places))
    wide.print(table)
    if table.row_count < len(answer.rows):
        wide.print(f"{len(answer.rows) - table.row_count:,} more rows (--limit 0 prints all)", style="dim")
    if len(places) < len(answer.columns):
        others = len(answer.columns) - len(places)
        wide.print(f"{others} more columns with --csv or --json, or where one channel is asked for", style="dim")


def _wide(console: Console) -> Console:
    return console if console.is_terminal else Console(width=_WIDE)


def write_csv(answer: Answer) -> None:
    """Print CSV: times in ISO 8601, intervals in seconds."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows([_plain(value) for value in row] for row in answer.rows)


def write_json(answer: Answer) -> None:
    """Print a list of objects, one a row; times in ISO 8601, intervals in seconds."""
    rows = [{name: _plain(value) for name, value in zip(answer.columns, row, strict=True)} for row in answer.rows]
    sys.stdout.write(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")


def _moment(option: str, text: str, now: datetime) -> datetime:
    if text == "now" or _NO_TIME_AGO.fullmatch(text):
        return now
    try:
        moment: datetime = datetime.fromisoformat(text)  # without a zone: this machine's
        return moment.astimezone(UTC)
    except ValueError:
        pass
    try:
        return now - _duration(option, text)
    except OperationError:
        raise OperationError(
            f"{option}: found {text!r}; legal: a time such as 2026-03-09T10:00:00Z, now, or so long ago, such as 10m"
        ) from None


def _duration(option: str, text: str) -> timedelta:
    try:
        return timedelta(seconds=TypeAdapter(Duration).validate_python(text))
    except ValidationError:
        raise OperationError(f"{option}: found {text!r}; legal: {DURATION_LEGAL}") from None


def _in_words(value: object) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".") + "Z"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case _:
            return str(value)


def _plain(value: object) -> object:
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case float() if not math.isfinite(value):
            return None
        case _:
            return value
