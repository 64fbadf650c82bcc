"""Habits: what an answer leaves out as it came at the same time on days before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import duckdb
import numpy as np
import pytest

from core.batch import Float64s
from history.questions.request import DAYS_BEFORE
from history.sql.kernels.columns import Channels
from history.sql.kernels.movers import Movers
from history.sql.kernels.resampled import Grid
from schema.queries import load
from schema.question_files import questions
from tests.sample_tables import DAY
from tests.unit.history.sql_samples import columns
from tests.unit.history.test_request import HOUR, request
from tests.unit.history.test_sql_resampled import channel_fields

_MINUTE_US, _QUARTER_US, _DAY_US = 60_000_000, 900_000_000, 86_400_000_000
_DAY_MINUTES, _SINCE, _UNTIL = 1440, 300, 600  # minutes of a day: the interval of each question
_N = 9  # days of a recording, the last of which is asked about
_MINUTES = np.arange(_N * _DAY_MINUTES)
_OF_DAY, _DAYS = _MINUTES % _DAY_MINUTES, _MINUTES // _DAY_MINUTES
_LAST = np.arange(_N) == _N - 1
Occurrence = tuple[str, int, int, float | None]  # kind, begins, ends (µs), size


def habits(rows: list[tuple[str, Occurrence]], before: Mapping[int, list[tuple[str, Occurrence]]]) -> list[bool]:
    """A bool for each row of an answer: it is a habit. ``before``: rows by how many days ago."""
    queries = load("duckdb")
    kind = "STRUCT(kind VARCHAR, begins BIGINT, ends BIGINT, size DOUBLE)"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TEMP TABLE portion_rows (channel VARCHAR, occurrence {kind})")
        connection.execute(queries["create_days_before"])
        connection.execute(queries["create_habits"])
        for channel, occurrence in rows:
            connection.execute(f"INSERT INTO portion_rows VALUES (?, row(?, ?, ?, ?)::{kind})", [channel, *occurrence])
        for day, earlier in before.items():
            for channel, occurrence in earlier:
                add = f"INSERT INTO days_before VALUES (?, ?, row(?, ?, ?, ?)::{kind})"
                connection.execute(add, [day, channel, *occurrence])
        numbers = {number for (number,) in connection.execute("SELECT number FROM habits").fetchall()}
    return [number in numbers for number in range(len(rows))]


def moves(values: Float64s) -> Iterator[tuple[int, tuple[str, Occurrence]]]:
    """Moves of a channel by how many days ago, as first_mover finds them by the day before. ``values``: by minute."""
    samples = columns([(0, int(at) * _MINUTE_US, float(value), 0) for at, value in zip(_MINUTES, values, strict=True)])
    for ago in range(_N - 1):
        start = (_N - 1 - ago) * _DAY_MINUTES
        since, until, begin = ((start + at) * _MINUTE_US for at in (_SINCE, _UNTIL, _SINCE - _DAY_MINUTES))
        grid = Grid(Channels.of_fields([channel_fields(0, [], until)]), begin, _MINUTE_US)
        within = slice(*np.searchsorted(samples.time, [begin, until]).tolist())
        found = Movers(grid, {}, (begin, since), since, 20.0 * (until - since)).compute(samples.part(within))
        for row in np.flatnonzero(found["verdict"] == 0):
            at, size = int(found["time"][row]), float(found["value"][row] - found["usual"][row])
            yield ago, ("fan", ("move", at, at, size))


@pytest.mark.parametrize(
    ("starts", "speed", "n"),
    [
        (np.full(_N, 360), np.full(_N, 50.0), 0),
        (np.where(_LAST, 365, 360), np.where(_LAST, 55.0, 50.0), 0),  # a bit later and faster
        (np.where(np.isin(np.arange(_N), [5, 6, 7]), 1441, 360), np.full(_N, 50.0), 0),  # after days without
        (np.where(_LAST, 480, 360), np.full(_N, 50.0), 1),  # two hours late
        (np.full(_N, 360), np.where(_LAST, 80.0, 50.0), 1),  # much faster than ever
        (np.where(_LAST, 360, 1441), np.full(_N, 50.0), 1),  # on no day before
        (np.where(np.arange(_N) < _N - 2, 1441, 360), np.full(_N, 50.0), 1),  # on one
    ],
)
def test_start_of_each_day_is_a_habit(starts: Float64s, speed: Float64s, n: int) -> None:
    """A fan is on from some minute of each day on until the evening."""
    noise = np.random.default_rng(1).normal(0, 0.3, len(_MINUTES))
    is_on = (starts[_DAYS] <= _OF_DAY) & (_OF_DAY < 1080)
    found = list(moves(np.where(is_on, speed[_DAYS] + noise, 0.0)))
    rows = [row for ago, row in found if not ago]
    assert len(rows) == 1
    assert habits(rows, {day: [row for ago, row in found if ago == day] for day in DAYS_BEFORE}).count(False) == n


def earlier(kind: str = "move", begins: int = 0, ends: int = 0, size: float = 10.0, channel: str = "fan") -> Any:
    """Two days before that have such a row; times in µs after that of the row of the answer."""
    return {day: [(channel, (kind, begins - day * _DAY_US, ends - day * _DAY_US, size))] for day in (1, 7)}


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (earlier(), True),
        (earlier(begins=_QUARTER_US, ends=_QUARTER_US), True),
        (earlier(begins=_QUARTER_US + 1), False),
        (earlier(begins=-_QUARTER_US, ends=-_QUARTER_US), True),
        (earlier(begins=-_QUARTER_US - 1), False),
        (earlier(ends=-_QUARTER_US - 1), False),  # it lasts longer than then
        (earlier(ends=10 * _QUARTER_US), True),
        (earlier(size=100.0), True),
        (earlier(size=10 / 1.2 + 0.01), True),
        (earlier(size=10 / 1.2 - 0.01), False),
        (earlier(size=-10.0), False),
        (earlier(kind="jump"), False),
        (earlier(channel="pump"), False),
        ({1: earlier()[1] * 2}, False),  # twice on one day
        ({}, False),
    ],
)
def test_like_is_at_the_same_time_as_far_and_no_shorter(before: Any, expected: bool) -> None:
    assert habits([("fan", ("move", 0, 0, 10.0))], before) == [expected]


@pytest.mark.parametrize(("n", "expected"), [(1000, True), (1001, False)])
def test_a_flood_of_rows_is_no_habit(n: int, expected: bool) -> None:
    assert set(habits([("fan", ("jump", 0, 0, 10.0))] * n, earlier("jump"))) == {expected}


def test_what_has_no_size_is_no_habit() -> None:
    assert habits([("fan", ("move", 0, 0, None))], earlier()) == [False]


def test_days_before_are_asked_where_nobody_chose_what_is_usual() -> None:
    asking = [name for name, question in questions().items() if any(p.name == "habits" for p in question.parameters)]
    assert {"first_mover", "timeline", "change_points", "episodes", "what_changed"} == {*asking}
    assert request("first_mover", 24 * HOUR, habits=False).compares_days
    assert not request("first_mover", 25 * HOUR, habits=False).compares_days
    assert not request("first_mover", HOUR, habits=True).compares_days
    assert not request("first_mover", HOUR, habits=False, reference=[DAY - HOUR, DAY]).compares_days
    assert not request("departure", HOUR).compares_days


def test_request_of_a_day_before_is_the_same_but_earlier() -> None:
    of_plant = request("first_mover", HOUR, habits=False).with_sampling(1.0)
    one = of_plant.of_day_before(3, [("fan", "")])
    back = timedelta(days=3)
    assert one.windows == [(since - back, until - back) for since, until in of_plant.windows]
    assert one.first == of_plant.first - back
    assert one.values["channels"] == ["fan"]
