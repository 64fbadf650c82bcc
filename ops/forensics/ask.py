"""``plantlog ask``: the questions of ``schema/routines/forensics``, put to the database as the reader, or to database
and archive together if samples that they read are archived.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ingest.database import connect, database_errors
from ingest.durations import DURATION_LEGAL, seconds_of
from ingest.errors import OperationError
from ops.answers import Answer
from ops.forensics import archived, judged
from ops.formatting import wide
from ops.paths import State
from ops.registration.installation import ALL, chosen
from ops.sql.limits import Limits
from ops.sql.workers import Workers
from schema.forensics import Question, questions
from schema.queries import load

_ZERO_DURATION = re.compile(r"0+(\.0+)?\s*(us|ms|s|m|h|d)")
_LIMITS = Limits("2GiB", 2, 600)
_NARROW = "narrow the question by --from, --to or --channel"
_COMMON_PARAMETERS = ("since", "until", "channels")  # parameters with an option of their own


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The time range of a question: from and to, or around a time. Texts as typed."""

    since: str | None = None
    until: str | None = None
    at: str | None = None
    around: str = "5m"

    def interval(self, now: datetime) -> tuple[datetime, datetime]:
        """Start and end. Raises OperationError."""
        if self.at is not None:
            if self.since is not None or self.until is not None:
                raise OperationError("--at cannot be combined with --from and --to")
            center, half = parse_time("--at", self.at, now), parse_duration("--around", self.around)
            return center - half, center + half
        if self.since is None:
            raise OperationError("a time range is required: --from TIME [--to TIME], or --at TIME [--around 5m]")
        since, until = parse_time("--from", self.since, now), parse_time("--to", self.until or "now", now)
        if since >= until:
            raise OperationError(f"--from {since.isoformat()} is not before --to {until.isoformat()}")
        return since, until


def find_question(name: str) -> Question:
    """One question. Raises OperationError with those that there are."""
    known = questions()
    if name not in known:
        raise OperationError(f"unknown question {name!r}; known: {', '.join(known)}")
    return known[name]


def options(question: Question, arguments: Sequence[str]) -> dict[str, str]:
    """``--max-lag 1m --step=10s`` as parameters of a question. Raises OperationError with those that it has."""
    extra_options = {p.name: p for p in question.parameters if p.name not in _COMMON_PARAMETERS}
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        key, equals, value = argument.removeprefix("--").partition("=")
        name = key.replace("-", "_")
        if not argument.startswith("--") or name not in extra_options:
            legal = ", ".join("--" + n.replace("_", "-") for n in extra_options) or "none"
            raise OperationError(f"{question.name} has no option {argument!r}; legal: {legal}")
        if not equals:
            if not rest:
                raise OperationError(
                    f"{argument} needs a value: {extra_options[name].type}, {extra_options[name].meaning}"
                )
            value = rest.pop(0)
        found[name] = value
    for name, parameter in extra_options.items():
        if parameter.required and name not in found:
            raise OperationError(f"{question.name} needs --{name.replace('_', '-')}: {parameter.meaning}")
    return found


def ask(
    state: State,
    question: Question,
    time_range: TimeRange,
    channels: Sequence[str],
    extra_options: Mapping[str, str],
    installation: str = ALL,
    limits: Limits = _LIMITS,
) -> Answer:
    """Run a question. Raises OperationError for invalid parameters, DatabaseError where the database fails.

    ``installation``: its id, the beginning of it, or its plant; or ``all``. ``limits``: for archived days.
    """
    since, until = time_range.interval(datetime.now(UTC))
    arguments = {"since": since.isoformat(), "until": until.isoformat(), **extra_options}
    with database_errors():
        try:
            found = asyncio.run(_answer(state.dsn("reader"), question, arguments, list(channels), installation))
        except asyncpg.DataError as error:
            raise OperationError(f"{question.name}: {error}") from error
        except asyncpg.QueryCanceledError as error:
            raise OperationError(f"{error}: narrow the query with --from, --to or --channel") from error
        except asyncpg.UndefinedFunctionError as error:
            raise OperationError(f"{error}: the schema may be outdated; run `plantlog up`") from error
    if isinstance(found, Answer):
        return found
    with closing(Workers(limits.threads)) as workers:
        if found.is_much:
            workers.start()  # they are ready when it is known where the samples are
        from ops.forensics import portions  # noqa: PLC0415 (DuckDB, which other questions don't need)

        return portions.answer_with_note(state, found, replace(limits, narrow=_NARROW), workers)


async def _answer(
    dsn: str, question: Question, arguments: dict[str, str], channels: list[str], installation: str
) -> Answer | archived.Asked:
    queries = load("ask")
    # Compiling such long statements takes longer than it saves.
    settings = {"jit": "off"}
    connection = await connect(dsn, "plantlog ask", settings)
    try:
        own = await chosen(connection, installation)
        await connection.execute(queries["set_installation"], own)
        if channels:
            unmatched = [
                row["pattern"] for row in await connection.fetch(queries["select_unmatched_patterns"], channels)
            ]
            if unmatched:
                raise OperationError(f"no channel matches {', '.join(unmatched)} (* matches any text)")
            arguments["channels"] = await connection.fetchval(queries["format_array"], channels)
        if "target" in arguments and await connection.fetch(
            queries["select_unmatched_patterns"], [arguments["target"]]
        ):
            raise OperationError(f"no channel matches {arguments['target']}")
        statement = await connection.prepare(
            await connection.fetchval(queries["format_call"], question.name, json.dumps(arguments))
        )
        if asked := await archived.over_archive(connection, question, json.dumps(arguments), own):
            return asked
        rows = [tuple(row) for row in await statement.fetch()]
        note = "" if rows else await _note(connection, question, json.dumps(arguments))
        return Answer(tuple(a.name for a in statement.get_attributes()), rows, note)
    finally:
        connection.terminate()


async def _note(connection: asyncpg.Connection[Any], question: Question, arguments: str) -> str:
    """Why there are no rows."""
    values = await archived.values_of(connection, question, arguments)
    interval = judged.Interval(archived.first_read(question, values), values["since"], values["until"])
    times = interval.first, interval.since, interval.until
    rows = await connection.fetch(load("ask")["select_judged"], values["channels"], *times)
    return judged.nothing_found(question, interval, [tuple(row) for row in rows])


def list_questions(console: Console) -> None:
    """Print the questions."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for item in questions().values():
        table.add_row(f"[bold]{item.name}[/]", escape(item.purpose))
    console = wide(console)
    console.print(table)
    console.print(
        "\nplantlog ask NAME --from TIME --to TIME [--channel 'unit/*'] …; plantlog ask NAME --describe", style="dim"
    )


def describe(question: Question) -> str:
    """The header of the question's SQL file, and its options."""
    lines = []
    for line in question.sql.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line[3:])
    extra_options = ["--" + p.name.replace("_", "-") for p in question.parameters if p.name not in _COMMON_PARAMETERS]
    option_names = "On the command line: since is --from, until is --to, channels is --channel. Further options: " + (
        ", ".join(extra_options) or "none"
    )
    return "\n".join([*lines, option_names])


def parse_time(option: str, text: str, now: datetime) -> datetime:
    """Time (UTC) of the value of ``option``: ISO 8601, in UTC unless it has an offset, an age, or now.

    Raises OperationError.
    """
    if text == "now" or _ZERO_DURATION.fullmatch(text):
        return now
    try:
        moment: datetime = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except ValueError:
        pass
    try:
        return now - parse_duration(option, text)
    except OperationError:
        raise OperationError(
            f"{option}: found {text!r}; legal: a time such as 2026-03-09T10:00:00Z, now, or an age such as 10m"
        ) from None


def parse_duration(option: str, text: str) -> timedelta:
    """The duration that ``text`` means as the value of ``option``. Raises OperationError."""
    try:
        return timedelta(seconds=seconds_of(text))
    except ValueError:
        raise OperationError(f"{option}: found {text!r}; legal: {DURATION_LEGAL}") from None
