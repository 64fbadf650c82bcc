"""A question with its parameters, the channels that it is about, and how many samples it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from core.errors import OperationError
from schema.queries import load
from schema.question_files import Question

_MANY_SAMPLES = 10_000_000  # samples
_LIVE_RATE = 1.0  # samples a second of a channel, where no archived day tells


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
    def reads_large_archive(self) -> bool:
        """Return whether the question reads samples of the channel for a second and more."""
        return self.is_archived and self.rate * self.seconds * len(self.channels) > _MANY_SAMPLES


async def prepare(
    connection: asyncpg.Connection[Any],
    question: Question,
    arguments: Mapping[str, str],
    patterns: Sequence[str] | None,
    installation: UUID | None,
    *,
    strict: bool = True,
) -> Request:
    """A request; the session gets the setting plant.installation.

    ``arguments``: parameters as their types are written, which the database parses; the others have their defaults.
    ``patterns``: of channels; None: all. ``installation``: None: all. ``strict``: whether it is an error if no channel
    matches, or if samples that the question reads are nowhere any more.

    Raises OperationError for that, asyncpg.DataError for a value of another type.
    """
    queries = load("ask")
    await connection.execute(queries["set_installation"], installation)
    of_target = [arguments["target"]] if "target" in arguments else []
    rows = await connection.fetch(queries["select_unmatched_patterns"], [*(patterns or []), *of_target])
    if strict and (unmatched := [row["pattern"] for row in rows]):
        raise OperationError(f"no channel matches {', '.join(unmatched)} (* matches any text)")
    values = {**await _values(connection, question, arguments), "channels": patterns}
    first, until = first_read(question, values), values["until"]
    lost = await connection.fetch(queries["select_lost_days"], first, until, patterns) if strict else []
    if lost:
        raise OperationError(
            f"{question.name}: retention dropped samples of {_days(lost)}, which are not archived: ask for a time "
            f"after that (it reads from {first.isoformat()} on), or for other channels by --channel"
        )
    archived = await connection.fetch(queries["select_archived_days"], first, until)
    n = max(1, await connection.fetchval(queries["count_channels"]))
    rate = max((row["samples"] / 86400 / n for row in archived), default=_LIVE_RATE)
    channels = await connection.fetch(queries["select_portions"], patterns)
    names = [(row["name"], row["unit_path"]) for row in channels]
    return Request(question, values, first, names, rate, installation, bool(archived))


async def _values(
    connection: asyncpg.Connection[Any], question: Question, arguments: Mapping[str, str]
) -> dict[str, Any]:
    parameters = [parameter for parameter in question.parameters if parameter.name != "channels"]
    columns = (f"CAST(${i}::text AS {parameter.type}) AS {parameter.name}" for i, parameter in enumerate(parameters, 1))
    texts = [arguments.get(parameter.name, parameter.default) for parameter in parameters]
    return dict(await connection.fetchrow(f"SELECT {', '.join(columns)}", *texts) or {})


def first_read(question: Question, values: Mapping[str, Any]) -> datetime:
    """Time from which a question reads samples."""
    parameter, before = question.reads_from
    start = values[parameter]
    if start is None:  # before_since: as long before since as until is after it
        start = values["since"] - (values["until"] - values["since"])
    first: datetime = min(start - (values[before] if before else timedelta()), values["since"])
    return first


def _days(rows: Sequence[asyncpg.Record]) -> str:
    days = [row["day"] for row in rows]
    return str(days[0]) if len(days) == 1 else f"{len(days)} days from {days[0]} to {days[-1]}"
