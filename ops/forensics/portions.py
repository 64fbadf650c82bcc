"""Questions over archived days: by DuckDB, over archive and database together.

The samples of a large interval do not fit into memory. A question's rows are made of some channels at a time, which are
those of whole units of the plant if it compares these, and put in order at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from ops.answers import Answer
from ops.forensics.archived import Asked
from ops.forensics.judged import Interval, nothing_found
from ops.paths import State
from ops.sql.limits import Limits
from ops.sql.session import OutOfMemoryError, Session, opened
from ops.sql.workers import Workers
from schema.forensics import duckdb_forms
from schema.queries import load

_SAMPLES = 300_000_000  # of a portion: four hours of 20,000 channels, or two months of 50
_TOGETHER: Mapping[str, Callable[[tuple[str, str]], str]] = {  # by name and unit of the plant
    "channel": lambda one: one[0],
    "unit": lambda one: one[1],
    "namesake": lambda one: one[1].rpartition("/")[2],
    "all": lambda _: "",
}


def answer(
    state: State, asked: Asked, limits: Limits, workers: Workers | None = None
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Columns and rows. Raises OperationError or DatabaseError."""
    form = duckdb_forms()[asked.question.name]
    ends = time.monotonic() + limits.seconds
    with opened(state, limits, asked.installation, asked.question.name, workers) as session:
        first = True
        for portion in portions(asked, form.portions):
            _add(session, asked, portion, first, ends)
            first = False
        with session.rows(form.finish) as (columns, rows):
            return columns, list(rows)


def answer_with_note(state: State, asked: Asked, limits: Limits, workers: Workers) -> Answer:
    """The same, with why there are no rows if there are none."""
    columns, rows = answer(state, asked, limits, workers)
    if rows:
        return Answer(columns, rows)
    interval = Interval(asked.first, asked.values["since"], asked.values["until"])
    times = interval.first, interval.since, interval.until
    with opened(state, limits, asked.installation) as session:
        query = load("duckdb")["select_judged"]
        with session.rows(query, [asked.values["channels"], *times]) as (_, channels):
            return Answer(columns, rows, nothing_found(asked.question, interval, channels))


def _add(session: Session, asked: Asked, groups: Sequence[Sequence[str]], first: bool, ends: float) -> None:
    """Add the rows of a portion to those that were found. What needs too much memory is divided."""
    names = [name for group in groups for name in group]
    if len(names) == len(asked.channels) and asked.installation is None:  # all of them need not be listed
        names = asked.values["channels"]
    parameters = [(names if one.name == "channels" else asked.values[one.name]) for one in asked.question.parameters]
    call = ", ".join(f"${i}::{one.type}" for i, one in enumerate(asked.question.parameters, 1))
    add = "CREATE TEMP TABLE found AS" if first else "INSERT INTO found"
    try:
        with session.rows(f"{add} FROM {asked.question.name}_of({call})", parameters, ends) as (_, rows):
            list(rows)
    except OutOfMemoryError:
        if len(groups) == 1:
            raise
        half = len(groups) // 2
        _add(session, asked, groups[:half], first, ends)
        _add(session, asked, groups[half:], False, ends)


def portions(asked: Asked, by: str, samples: int = _SAMPLES) -> Iterator[list[list[str]]]:
    """Names of channels by what has to be together: groups for so many samples, at least one.

    If no channel is wanted there is one portion without any, so that the answer has columns.
    """
    size = max(1, int(samples / max(asked.rate * asked.seconds, 1e-9)))
    found: list[list[str]] = []
    names = 0
    for group in _groups(asked, by):
        if found and names + len(group) > size:
            yield found
            found, names = [], 0
        found.append(group)
        names += len(group)
    yield found


def _groups(asked: Asked, by: str) -> Iterator[list[str]]:
    for _, group in groupby(sorted(asked.channels, key=_TOGETHER[by]), _TOGETHER[by]):
        yield [name for name, _ in group]
