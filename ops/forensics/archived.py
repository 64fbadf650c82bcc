"""Which questions read days that are archived: the database alone would answer as if nothing had been there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from ingest.errors import OperationError
from schema.forensics import Question, duckdb_forms
from schema.queries import load

_MUCH = 10_000_000  # samples


@dataclass(frozen=True, slots=True)
class Asked:
    """A question over archived days."""

    question: Question
    values: dict[str, Any]  # parameters as Python has PostgreSQL's types, with defaults
    first: datetime  # from which on samples are read
    channels: Sequence[tuple[str, str]]  # name, unit of the plant
    rate: float  # samples a second of one channel
    installation: UUID | None
    dropped: bool  # whether samples of that time are in the archive only

    @property
    def seconds(self) -> float:
        """Of which samples are read."""
        return float((self.values["until"] - self.first).total_seconds())

    @property
    def is_much(self) -> bool:
        """Whether samples are read for a second and more."""
        return self.rate * self.seconds * len(self.channels) > _MUCH


async def over_archive(
    connection: asyncpg.Connection[Any], question: Question, arguments: str, installation: UUID | None
) -> Asked | None:
    """What DuckDB is to be asked; None: nothing that the question reads is archived, or it is in the database as well.

    ``arguments``: as JSON, of which the database takes the types. Raises OperationError where samples that the question
    reads are nowhere, or not where it can read them.
    """
    queries = load("ask")
    values = await values_of(connection, question, arguments)
    first, until, channels = first_read(question, values), values["until"], values["channels"]
    lost = [row["day"] for row in await connection.fetch(queries["select_lost_days"], first, until, channels)]
    if lost:
        raise OperationError(
            f"{question.name}: retention dropped samples of {_days(lost)}, which are not archived: ask for a time "
            f"after that (it reads from {first.isoformat()} on), or for other channels by --channel"
        )
    archived = await connection.fetch(queries["select_archived_days"], first, until)
    dropped = [row["day"] for row in archived if row["dropped"]]
    if question.name not in duckdb_forms():
        if not dropped:
            return None
        raise OperationError(
            f"{question.name}: samples of {_days(dropped)} are only in the archive, which this question can't read yet "
            f"(it reads from {first.isoformat()} on): ask for a time after that, or query them by `plantlog sql`"
        )
    if not archived:
        return None
    rows = await connection.fetch(queries["select_portions"], channels)
    of_all = await connection.fetchval(queries["count_channels"])
    rate = max(row["samples"] for row in archived) / 86400 / max(1, of_all)
    names = [(row["name"], row["unit_path"]) for row in rows]
    return Asked(question, values, first, names, rate, installation, bool(dropped))


async def values_of(connection: asyncpg.Connection[Any], question: Question, arguments: str) -> dict[str, Any]:
    """All parameters, with defaults, as Python has PostgreSQL's types."""
    select = await connection.fetchval(load("ask")["format_values"], question.name, arguments)
    return dict(await connection.fetchrow(select) or {})


def first_read(question: Question, values: dict[str, Any]) -> datetime:
    """From when on a question reads samples."""
    of, before = question.reads_from
    start = values[of]
    if start is None:  # before_since: as long before since as until is after it
        start = values["since"] - (values["until"] - values["since"])
    first: datetime = min(start - (values[before] if before else timedelta()), values["since"])
    return first


def _days(days: Sequence[date]) -> str:
    return str(days[0]) if len(days) == 1 else f"{len(days)} days from {days[0]} to {days[-1]}"
