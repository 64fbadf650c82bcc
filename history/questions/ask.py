"""The questions of ``schema/questions``: ``plantlog ask``, and :func:`ask` for notebooks."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shlex
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import asyncpg
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from core.database import connected, database_errors
from core.durations import parse_duration
from core.errors import OperationError
from core.formatting import wide
from core.installation import ALL, chosen
from core.paths import State
from history.questions.request import Request, prepare, prepare_archived
from history.sql.sources.execution import Limits
from schema.question_files import Question, questions

if TYPE_CHECKING:
    from history.archive_days.plants import Plants
    from history.questions.drawing import Drawing

Result = TypeVar("Result")
_ZERO_DURATION = re.compile(r"0+(\.0+)?\s*(us|ms|s|m|h|d)")
_LIMITS = Limits("2GiB", 2, 600)
_ADVICE = "narrow the question by --from, --to or --channel"
_TABLE_NAME = re.compile(r"[A-Za-z_]\w*")
_COMMON_PARAMETERS = ("since", "until", "channels")  # parameters with an option of their own


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise OperationError(f"--with: {message}")


_PARSER = _Parser(prog="--with", add_help=False, allow_abbrev=False)
_PARSER.add_argument("question")
for _option, _name, _default in (
    ("--from", "since", None),
    ("--to", "until", None),
    ("--at", "at", None),
    ("--around", "around", "5m"),
    ("--installation", "installation", ALL),
):
    _PARSER.add_argument(_option, dest=_name, default=_default)
_PARSER.add_argument("--channel", "-c", action="append", default=[])


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The time range of a question: from and to, or around a time. Texts as typed."""

    since: str | None = None
    until: str | None = None
    at: str | None = None
    around: str = "5m"

    @property
    def is_empty(self) -> bool:
        """Return whether no bound of the interval is named."""
        return self.since is self.until is self.at is None

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


def chosen_plants(file: str | Path | None, names: Sequence[str]) -> Plants | None:
    """The plants with some names (none: all) of a file, or of the one that PLANTLOG_PLANTS names; None: neither file
    nor names. Raises OperationError."""
    file = file or (os.environ.get("PLANTLOG_PLANTS") if names else None)
    if file is None:
        if names:
            raise OperationError("--plant requires --plants FILE, or PLANTLOG_PLANTS in the environment")
        return None
    from history.archive_days.plants import Plants  # noqa: PLC0415 (few questions need it)

    return Plants.of_file(Path(file), names)


def find_question(name: str) -> Question:
    """One question. Raises OperationError with those that there are."""
    known_questions = questions()
    if name not in known_questions:
        raise OperationError(f"unknown question {name!r}; known: {', '.join(known_questions)}")
    return known_questions[name]


def parse_options(question: Question, arguments: Sequence[str]) -> dict[str, str]:
    """``--max-lag 1m --step=10s`` as parameters of a question. Raises OperationError with the legal ones."""
    extra_options = {p.name: p for p in question.parameters if p.name not in _COMMON_PARAMETERS}
    options: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        key, equals, value = argument.removeprefix("--").partition("=")
        name = key.replace("-", "_")
        if not argument.startswith("--") or name not in extra_options:
            legal = ", ".join(one.option for one in extra_options.values()) or "none"
            raise OperationError(f"{question.name} has no option {argument!r}; legal: {legal}")
        if not equals:
            if not rest:
                raise OperationError(
                    f"{argument} needs a value: {extra_options[name].type}, {extra_options[name].meaning}"
                )
            value = rest.pop(0)
        options[name] = value
    for name, parameter in extra_options.items():
        if parameter.required and name not in options:
            raise OperationError(f"{question.name} needs {parameter.option}: {parameter.meaning}")
    return options


def ask(
    question: str,
    *,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    channels: Sequence[str] = (),
    installation: str = ALL,
    state: State | None = None,
    limits: Limits = _LIMITS,
    plants: str | Path | None = None,
    plant: str | Sequence[str] = (),
    **options: object,
) -> Any:
    """The answer to a question as a table of Arrow, for notebooks and programs.

    ``since``, ``until``: times, or texts as the command line takes them (``--from``, ``--to``; until: None: now);
    ``channels``: names or patterns (none: all); ``installation``: its id, the beginning of it, or its plant, or
    ``all``; ``state``: of the appliance (None: the current one); ``plants``: a file of plants, whose archives are asked
    in place of the appliance, and ``plant``: which of them (docs/archive.md; none: all); ``options``: the question's
    own, such as ``hold="2 min"``, ``least_score=10`` or ``times=[one, another]``.

    Raises OperationError for invalid parameters and limits, DatabaseError where the database fails.
    """
    definition = find_question(question)
    interval = TimeRange(None if since is None else _text(since), None if until is None else _text(until))
    words = (f"--{name.replace('_', '-')}={_text(value)}" for name, value in options.items() if value is not None)
    return answer(
        state or State.current(),
        definition,
        interval,
        channels,
        parse_options(definition, [*words]),
        installation,
        limits,
        plants=chosen_plants(plants, [plant] if isinstance(plant, str) else plant),
    )[0]


def answer(
    state: State,
    question: Question,
    time_range: TimeRange,
    channels: Sequence[str],
    options: Mapping[str, str],
    installation: str = ALL,
    limits: Limits = _LIMITS,
    plot: Path | None = None,
    plants: Plants | None = None,
) -> tuple[Any, str]:
    """The answer to a question as a table of Arrow, and lines about it for people. Raises as :func:`ask`.

    ``options``: of :func:`parse_options`. ``plot``: a file to draw it in, if it has rows. ``plants``: whose archives
    are asked, without a database.
    """
    if plot is not None:
        from history.questions.drawing import require_format  # noqa: PLC0415

        require_format(plot)
    now = datetime.now(UTC)
    if "times" in options:
        if not time_range.is_empty:
            raise OperationError("--times cannot be combined with --from, --to and --at")
        times = sorted(parse_time("--times", text.strip(), now) for text in options["times"].split(","))
        since, until = times[0], times[-1] + timedelta(microseconds=1)
        options = {**options, "times": ",".join(time.isoformat() for time in times)}
    else:
        since, until = time_range.interval(now)
    if ".." in (reference := options.get("reference", "")):
        bounds = (parse_time("--reference", text.strip(), now).isoformat() for text in reference.split("..", 1))
        options = {**options, "reference": "..".join(bounds)}
    arguments = {"since": since.isoformat(), "until": until.isoformat(), **options}
    archives = None
    if plants is not None:
        if installation != ALL:
            raise OperationError("--installation cannot be combined with --plants: use --plant")
        request, archives = _run(prepare_archived(plants, question, arguments, list(channels) or None))
    else:
        with database_errors():
            try:
                request = _run(_request(state.dsn("reader"), question, arguments, channels, installation))
            except asyncpg.DataError as error:
                raise OperationError(f"{question.name}: {error}") from error
    with ExitStack() as stack:
        executor = limits.executor(state.root, None if plants is None else plants.questions)
        stack.callback(executor.shutdown, wait=False, cancel_futures=True)
        if request.reads_large_archive:
            executor.submit(int)  # its processes are ready when it is known where the samples are
        from history.questions import portions  # noqa: PLC0415 (DuckDB takes long to import: errors come first)

        with portions.answer_session(state, request, replace(limits, narrow=_ADVICE), executor, archives) as session:
            table = session.table("FROM answer")
            lines = [portions.notes(session, request), *(archives.notes(request.first) if archives is not None else ())]
            if plot is not None and table.num_rows:
                _draw(portions.drawing(session, _title(question, request)), plot)
            return table, "\n".join(filter(None, lines))


def _title(question: Question, request: Request) -> str:
    since, until = (request.values[name] for name in ("since", "until"))
    return f"{question.name}: {since:%Y-%m-%d %H:%M:%S} to {until:%Y-%m-%d %H:%M:%S} UTC"


def _draw(drawing: Drawing, path: Path) -> None:
    try:
        drawing.write(path)
    except OSError as error:
        raise OperationError(f"--plot: {path} can't be written: {error.strerror}") from error


def tables(
    state: State, texts: Sequence[str], limits: Limits = _LIMITS, plants: Plants | None = None
) -> dict[str, Any]:
    """The answers to ``NAME=QUESTION OPTIONS``, as tables of Arrow by these names. Raises as :func:`ask`.

    ``QUESTION OPTIONS``: as behind ``plantlog ask``.
    """
    answers = dict[str, Any]()
    for text in texts:
        name, _, words = text.partition("=")
        if not _TABLE_NAME.fullmatch(name) or not words.strip():
            raise OperationError(f"--with: found {text!r}; legal: NAME='QUESTION --from TIME …', as for `plantlog ask`")
        try:
            arguments, rest = _PARSER.parse_known_args(shlex.split(words))
        except ValueError as error:
            raise OperationError(f"--with {name}: {error}") from error
        question = find_question(arguments.question)
        interval = TimeRange(arguments.since, arguments.until, arguments.at, arguments.around)
        options = parse_options(question, rest)
        answers[name], _ = answer(
            state, question, interval, arguments.channel, options, arguments.installation, limits, plants=plants
        )
    return answers


async def _request(
    dsn: str, question: Question, arguments: Mapping[str, str], channels: Sequence[str], installation: str
) -> Request:
    async with connected(dsn, "plantlog ask") as connection:
        installation_row = await chosen(connection, installation)
        return await prepare(connection, question, arguments, list(channels) or None, installation_row)


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run it and return its result. A notebook's thread has a running event loop already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _text(value: object) -> str:
    """A value as PostgreSQL reads it."""
    match value:
        case timedelta():
            return f"{value // timedelta(microseconds=1)} microseconds"
        case datetime():
            return value.isoformat()
        case list() | tuple():
            return ",".join(map(_text, value))
    return str(value)


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
    extra_options = [p.option for p in question.parameters if p.name not in _COMMON_PARAMETERS]
    option_names = "On the command line: since is --from, until is --to, channels is --channel. Further options: " + (
        ", ".join(extra_options) or "none"
    )
    return f"{question.header}\n{option_names}"


def parse_time(option: str, text: str, now: datetime) -> datetime:
    """Time (UTC) of the value of ``option``: ISO 8601, in UTC unless it has an offset, an age, or now.

    Raises OperationError.
    """
    if text == "now" or _ZERO_DURATION.fullmatch(text):
        return now
    try:
        moment: datetime = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        pass
    try:
        return now - parse_duration(option, text)
    except OperationError:
        raise OperationError(
            f"{option}: found {text!r}; legal: a time such as 2026-03-09T10:00:00Z, now, or an age such as 10m"
        ) from None
