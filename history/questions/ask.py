"""The questions of ``schema/questions``, as commands and notebooks ask them."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import shlex
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from core.durations import parse_duration
from core.errors import OperationError
from core.installation import ALL
from core.paths import State
from history.questions.request import DAYS_BEFORE, HABITS, Request, prepare_archived
from history.sql.sources.execution import Limits
from history.sql.sources.processes import Processes
from schema.question_files import Question, names, question

if TYPE_CHECKING:
    from history.archive_days.plants import Plants
    from history.questions.drawing import Drawing

Result = TypeVar("Result")
_ZERO_DURATION = re.compile(r"0+(\.0+)?\s*(us|ms|s|m|h|d)")
LIMITS = Limits("2GiB", 2, 600)
_ADVICE = "narrow the question by --from, --to or --channel"
_CALM = "calm"  # as a reference: the last day in which departure finds nothing
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
    from history.archive_days.plants_file import plants_of  # noqa: PLC0415 (few questions need it)

    return plants_of(Path(file), names)


def find_question(name: str) -> Question:
    """One question. Raises OperationError with those that there are."""
    if name not in names():
        raise OperationError(f"unknown question {name!r}; known: {', '.join(names())}")
    return question(name)


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
    return options


def answer(
    state: State,
    question: Question,
    time_range: TimeRange,
    channels: Sequence[str],
    options: Mapping[str, str],
    installation: str = ALL,
    limits: Limits = LIMITS,
    plot: Path | None = None,
    plants: Plants | None = None,
) -> tuple[Any, str]:
    """The answer to a question as a table of Arrow, and lines about it for people.

    ``options``: of :func:`parse_options`. ``plot``: a file to draw it in, if it has rows. ``plants``: whose archives
    are asked, without a database. Raises OperationError for invalid parameters and limits, DatabaseError where the
    database fails.
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
    if "reference" in options:

        def depart(day: TimeRange) -> tuple[Any, str]:
            return answer(state, find_question("departure"), day, channels, {}, installation, limits, plants=plants)

        options = {**options, "reference": _reference(options["reference"], since, until - since, now, depart)}
    arguments = {"since": since.isoformat(), "until": until.isoformat(), **options}
    limits, archives = replace(limits, narrow=_ADVICE), None
    if plants is not None:
        if installation != ALL:
            raise OperationError("--installation cannot be combined with --plants: use --plant")
        request, archives = _run(prepare_archived(plants, question, arguments, list(channels) or None, limits))
    else:
        from history.questions.database_request import request_of  # noqa: PLC0415 (archives need no driver)

        request = _run(request_of(state, question, arguments, list(channels) or None, installation))
    with ExitStack() as stack:
        executor = limits.executor(state.root, None if plants is None else plants.questions)
        stack.callback(executor.shutdown, wait=False, cancel_futures=True)
        if request.reads_large_archive and isinstance(executor, Processes):
            executor.submit(int)  # its processes are ready when it is known where the samples are
        from history.questions import portions  # noqa: PLC0415 (DuckDB takes long to import: errors come first)

        with portions.answer_session(state, request, limits, executor, archives) as session:
            table = session.table("FROM answer")
            lines = [
                portions.notes(session, request),
                *(archives.notes(request.within[0]) if archives is not None else ()),
            ]
            if plot is not None and table.num_rows:
                drawing = portions.drawing(session, _title(question, request))
                if drawing.channels:
                    _draw(drawing, plot)
                else:
                    lines.append("not drawn: no row names a channel that has a curve")
            return table, "\n".join(filter(None, lines))


def _reference(
    text: str, since: datetime, length: timedelta, now: datetime, depart: Callable[[TimeRange], tuple[Any, str]]
) -> str:
    """Bounds of a reference in ISO 8601, of which one that has only a begin is as long as the interval; else a time
    before the interval, as it is. ``depart``: answers ``departure``. Raises OperationError."""
    if text == _CALM:
        return _last_calm_day(since, depart)
    begin_text, is_interval, end_text = text.partition("..")
    if is_interval:
        begin, end = (parse_time("--reference", one.strip(), now) for one in (begin_text, end_text))
    elif (moment := _iso_time(text)) is not None:
        begin, end = moment, moment + length
    else:
        return text
    return f"{begin.isoformat()}..{end.isoformat()}"


def _last_calm_day(since: datetime, depart: Callable[[TimeRange], tuple[Any, str]]) -> str:
    """Bounds of the last of the days before an interval in which no unit departed from the day before it."""
    from history.questions.portions import NOTHING_JUDGED  # noqa: PLC0415 (as above)

    for days in DAYS_BEFORE:
        begin, end = ((since - timedelta(days=n)).isoformat() for n in (days, days - 1))
        table, note = depart(TimeRange(begin, end))
        if not table.num_rows and not note.startswith(NOTHING_JUDGED):
            return f"{begin}..{end}"
    raise OperationError(
        f"--reference {_CALM}: in each of the seven days before {since.isoformat()}, departure found something or "
        "could not judge; legal: FROM..TO"
    )


def _title(question: Question, request: Request) -> str:
    since, until = (request.values[name] for name in ("since", "until"))
    return f"{question.name}: {since:%Y-%m-%d %H:%M:%S} to {until:%Y-%m-%d %H:%M:%S} UTC"


def _draw(drawing: Drawing, path: Path) -> None:
    try:
        drawing.write(path)
    except OSError as error:
        raise OperationError(f"--plot: {path} can't be written: {error.strerror}") from error


def tables(
    state: State, questions: Mapping[str, str], limits: Limits = LIMITS, plants: Plants | None = None
) -> tuple[dict[str, Any], list[str]]:
    """The answers to some questions as tables of Arrow, by the names of the questions, and lines about them for people.

    ``questions``: texts as behind ``plantlog ask``. Raises as :func:`answer`.
    """
    answers, notes = dict[str, Any](), list[str]()
    for name, text in questions.items():
        try:
            arguments, rest = _PARSER.parse_known_args(shlex.split(text))
        except ValueError as error:
            raise OperationError(f"--with {name}: {error}") from error
        question = find_question(arguments.question)
        interval = TimeRange(arguments.since, arguments.until, arguments.at, arguments.around)
        options = parse_options(question, rest)
        answers[name], note = answer(
            state, question, interval, arguments.channel, options, arguments.installation, limits, plants=plants
        )
        notes += [f"{name}: {line}" for line in note.splitlines()]
    return answers, notes


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run it and return its result. A notebook's thread has a running event loop already."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def describe(question: Question) -> str:
    """The header of the question's SQL file, and its options."""
    extra_options = [p.option for p in question.parameters if p.name not in _COMMON_PARAMETERS]
    option_names = "On the command line: since is --from, until is --to, channels is --channel. Further options: " + (
        ", ".join(extra_options) or "none"
    )
    lines = [question.header, option_names]
    if any(", " in parameter.automatic for parameter in question.parameters):
        lines.append("Where several durations stand behind NULL, it is the longest of them.")
    if any(parameter.name == HABITS for parameter in question.parameters):
        lines.append(
            "Of an interval up to a day, without --reference, rows are left out whose like came on two of the seven "
            "days before: within a quarter of an hour of the same time (UTC), as far and as long. For that, the same "
            "is asked of these days, of channels with rows. --habits true lists them, and asks once."
        )
    return "\n".join(lines)


def _iso_time(text: str) -> datetime | None:
    """Time (UTC) of a text in ISO 8601; None: it is none."""
    try:
        moment: datetime = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def parse_time(option: str, text: str, now: datetime) -> datetime:
    """Time (UTC) of the value of ``option``: ISO 8601, in UTC unless it has an offset, an age, or now.

    Raises OperationError.
    """
    if text == "now" or _ZERO_DURATION.fullmatch(text):
        return now
    if (moment := _iso_time(text)) is not None:
        return moment
    try:
        return now - parse_duration(option, text)
    except OperationError:
        raise OperationError(
            f"{option}: found {text!r}; legal: a time such as 2026-03-09T10:00:00Z, now, or an age such as 10m"
        ) from None
