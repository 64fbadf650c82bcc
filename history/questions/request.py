"""A question with its parameters, the channels that it is about, and how many samples it reads.

Durations that nobody chose follow the sampling interval of the channels, which is known once samples are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from core.formatting import duration
from core.patterns import Patterns, no_match, unmatched
from history.questions.values import cast_by_duckdb, parse_values, require_legal
from schema.question_files import CHANNEL, REFERENCE, Parameter, Question

if TYPE_CHECKING:
    from history.archive_days.plants import Plants
    from history.sql.sources.execution import Limits
    from history.sql.sources.plants import PlantArchives

_DAY = timedelta(days=1)
_EARLIER = _DAY  # than what is read: a reference may become longer once the sampling interval is known
HABITS = "habits"  # parameter: whether to list what comes at the same time each day
DAYS_BEFORE = range(1, 8)  # a week: after days on which a plant stands there are two on which it worked
_MANY_SAMPLES = 10_000_000  # samples
_SAMPLING = timedelta(seconds=1)  # where no channel has samples
_UNITS = {"s": timedelta(seconds=1), "min": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_MEANS = 100  # of a reference, at least
_FALSE_ALARMS = {"false_alarms": "all channels together", "alarm_every": "a unit"}  # accepted, by parameter
_RAREST = timedelta(days=100_000_000)  # false alarm of a channel: DuckDB counts microseconds in 64 bits
_MAX_STEPS = 1_000_000  # of the time that is read
_TERM = re.compile(
    r"(the|\d+) sampling intervals?|an? (\d+)th of the interval|(?:(\d+) times )?the interval(?: up to (\d+) (h|d))?"
    r"|(\d+) (s|min|h)\b"
)


@dataclass(frozen=True, slots=True)
class Request:
    """Question about certain samples."""

    question: Question
    values: dict[str, Any]  # parameters as Python has PostgreSQL's types, with defaults
    first: datetime  # from which on samples are read
    channels: Sequence[tuple[str, str]]  # name, unit of the plant
    rate: float  # samples a second of one channel
    installation: UUID | None
    is_archived: bool  # whether there are archived days of that time

    @property
    def seconds(self) -> float:
        """Length (s) of the interval whose samples are read."""
        return float((self.values["until"] - self.first).total_seconds())

    @property
    def needs_sampling(self) -> bool:
        """Return whether there are durations that follow the sampling interval of the channels."""
        return any(True for _ in self._automatic())

    @property
    def compares_days(self) -> bool:
        """Return whether rows are left out whose like came at the same time on days before.

        A reference that somebody chose says what is usual, and a longer interval has such days in it.
        """
        is_short = self.values["until"] - self.values["since"] <= _DAY
        return self.values.get(HABITS) is False and self.values[REFERENCE] is None and is_short

    @property
    def within(self) -> tuple[datetime, datetime]:
        """Bounds of all samples that are read: of the interval, of what it is compared with, and of days before."""
        before = DAYS_BEFORE[-1] * _DAY if self.compares_days else timedelta()
        ends = (end for _, end in self.windows)
        return self.first - before, max(ends)

    def of_day_before(self, days: int, channels: Sequence[tuple[str, str]]) -> Request:
        """The request about some of its channels, so many days earlier."""
        back, values = timedelta(days=days), dict(self.values)
        values["since"], values["until"] = self.values["since"] - back, self.values["until"] - back
        values[REFERENCE] = [bound - back for bound in self.values[REFERENCE]]
        values["channels"] = [name for name, _ in channels]
        if values.get("false_alarms") is not None:  # a channel's share stays
            values["false_alarms"] *= len(self.channels) / len(channels)
        return replace(self, values=values, first=self.first - back, channels=channels)

    def with_sampling(self, seconds: float | None) -> Request:
        """The request with all durations. ``seconds``: the sampling interval of its channels; None: no samples."""
        sampling = _SAMPLING if seconds is None else timedelta(seconds=seconds)
        values, automatic = dict(self.values), list(self._automatic())
        for parameter in sorted(automatic, key=lambda one: one.type != REFERENCE):
            values[parameter.name] = _value(parameter, values, sampling)
        first = first_read(self.question, values)
        if values.get("step") is not None and any(one.name == "step" for one in automatic):
            values["step"] = max(values["step"], (values["until"] - first) / _MAX_STEPS)
        for parameter in self.question.parameters:
            if parameter not in automatic:
                require_legal(parameter, values)
        return replace(self, values=values, first=first)

    def notes(self) -> Iterator[str]:
        """Lines for people: the durations that the answer depends on, and what is usual."""
        values, lengths = self.values, list[str]()
        for parameter in self.question.parameters:
            value = values[parameter.name]
            if parameter.type == REFERENCE and value is not None:
                begin, end = value
                before = " before" if end == values["since"] else ""
                lengths.append(f"reference: {_text(end - begin)}{before} ({time_text(begin)} to {time_text(end)})")
            elif parameter.name in _FALSE_ALARMS and value is not None:
                lengths.append(f"one false alarm of {_FALSE_ALARMS[parameter.name]} in {_text(value)}")
            elif _follows(parameter) and value is not None:
                lengths.append(f"{parameter.name.replace('_', ' ')} {_text(value)}")
        if self.question.periods is not None:
            steps, times = self.question.periods
            longest = (values["until"] - values["since"]) / times
            lengths.append(f"periods from {_text(steps * values['step'])} to {_text(longest)}")
        if lengths:
            yield ", ".join(lengths)

    @property
    def windows(self) -> list[tuple[datetime, datetime]]:
        """Interval that the answer is learned from or compared with, if there is one, and the one that it is about."""
        since, until = self.values["since"], self.values["until"]
        reference = self.values.get("reference")
        begin, end = reference if isinstance(reference, list) else (min(self.first, since), since)
        return [*([(begin, end)] if begin < end else []), (since, until)]

    def parameter_values(self) -> dict[str, Any]:
        """Values as the question's SQL has them: false alarms are shared by the channels."""
        values = dict(self.values)
        if values.get("false_alarms") is not None:
            values["false_alarms"] = min(values["false_alarms"] * max(1, len(self.channels)), _RAREST)
        return values

    def _automatic(self) -> Iterator[Parameter]:
        """Parameters that nobody chose, and that follow the sampling interval or the length of the interval."""
        for parameter in self.question.parameters:
            if _follows(parameter) and self.values[parameter.name] is None:
                yield parameter

    @property
    def reads_large_archive(self) -> bool:
        """Return whether the question reads samples of the channel for a second and more."""
        return self.is_archived and self.rate * self.seconds * len(self.channels) > _MANY_SAMPLES


async def prepare_archived(
    plants: Plants, question: Question, arguments: Mapping[str, str], patterns: Sequence[str] | None, limits: Limits
) -> tuple[Request, PlantArchives]:
    """A request about the archives of plants, and what is read of them. Raises OperationError, also if time is up.

    The parameters are those of :func:`history.questions.database_request.prepare`.
    """
    from history.sql.sources.plants import PlantArchives  # noqa: PLC0415 (few questions need it)

    values = {**await parse_values(cast_by_duckdb(), question, arguments), "channels": patterns}
    request = Request(question, values, first_read(question, values), (), 0.0, None, True)
    since, until = request.within
    archives = PlantArchives(plants, since - _EARLIER, until, limits)
    names = {row["name"]: row["unit_path"] for row in archives.channels}
    named = named_channels(question, arguments, patterns)
    if unknown := unmatched(named, names):
        hint = "; names begin with PLANT/" if any(plant.prefix for plant in plants.plants) else ""
        raise no_match(", ".join({named[one]: None for one in unknown}), unknown, hint)
    wanted = Patterns(patterns)
    channels = [(name, unit) for name, unit in sorted(names.items()) if name in wanted]
    return replace(request, channels=channels, rate=archives.rate), archives


def named_channels(question: Question, arguments: Mapping[str, str], patterns: Sequence[str] | None) -> dict[str, str]:
    """Names and patterns of channels that a request has, each of which has to match one, and their options."""
    single = (one for one in question.parameters if one.type == CHANNEL and one.name in arguments)
    return {**dict.fromkeys(patterns or (), "--channel"), **{arguments[one.name]: one.option for one in single}}


def first_read(question: Question, values: Mapping[str, Any]) -> datetime:
    """Time from which a question reads samples; at the earliest, where the sampling interval is not known yet."""
    start, before = question.reads_from
    since: datetime = values["since"]
    of_name = {parameter.name: _value(parameter, values, timedelta()) for parameter in question.parameters}
    begin = of_name[start][0] if start == REFERENCE else since
    return min(begin - of_name[before] if before else begin, since)


def _value(parameter: Parameter, values: Mapping[str, Any], sampling: timedelta) -> Any:
    """Value of a parameter, also where nobody chose it and it follows from others."""
    since, until = values["since"], values["until"]
    if (value := values[parameter.name]) is not None or not _follows(parameter):
        return value
    length = until - since
    if parameter.name == "step" and (reference := values.get(REFERENCE)):  # of a short one, too, there are enough means
        length = min(length, 500 * (reference[1] - reference[0]) / _MEANS)
    length = max(_terms(parameter.automatic, sampling, length))
    if parameter.name == "step" and sampling:  # else some means would have a sample more than others
        length -= length % sampling
    return [since - length, since] if parameter.type == REFERENCE else length


def _follows(parameter: Parameter) -> bool:
    """Return whether a parameter without a value follows the sampling interval or the length of the interval."""
    is_length = parameter.type in ("interval", REFERENCE) and "interval" in parameter.automatic
    return is_length and _TERM.search(parameter.automatic) is not None


def _terms(text: str, sampling: timedelta, length: timedelta) -> Iterator[timedelta]:
    for samples, part, times, most, most_unit, number, unit in _TERM.findall(text):
        if number:
            yield int(number) * _UNITS[unit]
        elif samples:
            yield sampling * (1 if samples == "the" else int(samples))
        elif part:
            yield length / int(part)
        else:
            yield min(length * int(times or 1), int(most) * _UNITS[most_unit] if most else timedelta.max)


def _text(length: timedelta) -> str:
    return duration(length.total_seconds())


def time_text(moment: datetime) -> str:
    """A time (UTC) as lines for people have it: ``2026-03-09 10:00:00Z``."""
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"
