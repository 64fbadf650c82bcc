"""Minutes that the writer accumulates are those that the database makes of the same samples, to the bit."""

from __future__ import annotations

import itertools
from typing import Any

import asyncpg
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.writer.clock import microseconds, timestamp
from ingest.writer.counts import MINUTE_US
from ingest.writer.group import Columns
from ingest.writer.minutes import Accumulator, Closed
from tests.database import Database
from tests.packed import DAY_US, HOUR_US, Sample, bits, copy

_channels = itertools.count(1)
_SETTINGS = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
_SPECIAL = [bits(v) for v in (float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e300, -1e300, 1e280, 1e-290, 3e15)]
_STATUSES = (0, 0, 0, 0, 0, 0x40000000, 0x80050000)
_zeros = st.sampled_from([bits(0.0), bits(-0.0), bits(1.0)])
_kinds = (
    _zeros,
    st.integers(-3, 3).map(lambda number: bits(float(number))),  # states, which stay and come again
    st.integers(-(10**6), 10**6).map(lambda number: bits(number / 100)),
    st.floats(-1e12, 1e12).map(bits),
)
_runs = st.sampled_from(_kinds).flatmap(
    lambda kind: st.lists(st.one_of(*[kind] * 20, st.sampled_from(_SPECIAL)), min_size=1, max_size=40)
)
_steps = st.sampled_from([1, 7_919, 100_000, 333_333, 1_000_000, 10_000_000, MINUTE_US, 3 * MINUTE_US + 13])


@st.composite
def _course(draw: st.DrawFn) -> list[Sample]:
    """Samples of a channel, in order: runs of equal steps, and long pauses."""
    at, samples = draw(st.integers(0, MINUTE_US)), []
    for _ in range(draw(st.integers(1, 4))):
        step = draw(_steps)
        for value in draw(_runs):
            samples.append((at, value, draw(st.sampled_from(_STATUSES))))
            at += step
        at += draw(st.sampled_from([0, 5_000_000, MINUTE_US, 2 * HOUR_US, 25 * HOUR_US]))
    return samples


@st.composite
def _plants(draw: st.DrawFn) -> tuple[list[list[Sample]], list[int]]:
    """Courses of some channels, and where groups of them end (µs since the day began)."""
    courses = draw(st.lists(_course(), min_size=1, max_size=3))
    times = sorted({time for course in courses for time, *_ in course})
    ends = draw(st.lists(st.sampled_from(times), max_size=8, unique=True))
    return courses, [*sorted(ends), 2**60]


@pytest.fixture
async def owner(database: Database):  # type: ignore[no-untyped-def]
    connection = await asyncpg.connect(database.owner_dsn)
    yield connection
    await connection.close()


def _columns(samples: list[tuple[int, int, int, int]]) -> Columns:
    """(channel, µs since the day began, bits, status) of a group, sorted."""
    channel, time, value, status = zip(*sorted(samples), strict=True)
    times, values = np.array(time, np.int64) + DAY_US, np.array(value, np.uint64).view(np.float64)
    return Columns(np.array(channel, np.int32), times, values, np.array(status, np.uint32))


def _accumulated(samples: list[tuple[int, int, int, int]], ends: list[int]) -> list[Closed]:
    """Every minute, of samples that come in groups."""
    made = Accumulator()
    made.discrete = np.unique(np.array([channel for channel, *_ in samples], np.int32))
    minutes: set[int] = set()
    for begin, end in itertools.pairwise([-1, *ends]):
        if group := [s for s in samples if begin < s[1] <= end]:
            columns = _columns(group)
            touched = np.unique(columns.time // MINUTE_US).tolist()
            made.fold(columns, touched)
            minutes.update(touched)
    return [made.close(minute) for minute in sorted(minutes)]


def _bits(number: float | None) -> int | None:
    return None if number is None else bits(number)


def _found(closed: list[Closed]) -> tuple[dict[tuple[int, int], Any], dict[tuple[int, int, int], Any]]:
    minutes, states = {}, {}
    for minute in closed:
        rows = minute.rows
        for i, channel in enumerate(rows.channel_id.tolist()):
            value = {name: getattr(rows, name)[i].item() for name in rows.__slots__}
            good = value["n_good"] > 0
            of_good = [_bits(value[name]) if good else None for name in ("min", "max", "first", "last")]
            times = [value[name] if good else None for name in ("first_time", "last_time")]
            sums = [bits(value[name]) for name in ("sum", "area")]
            counts = [value[name] for name in ("n", "n_good", "known", "holds")]
            minutes[channel, minute.begin] = (*of_good, *times, *sums, *counts)
        for channel, state, entered, known in zip(*(column.tolist() for column in minute.states), strict=True):
            states[channel, minute.begin, bits(state)] = (entered, known)
    return minutes, states


async def _expected(
    owner: asyncpg.Connection[Any], channels: list[int], last: int
) -> tuple[dict[tuple[int, int], Any], dict[tuple[int, int, int], Any]]:
    """What the database makes, a day at a time as it does."""
    minutes, states = {}, {}
    for day in range(DAY_US, DAY_US + last + 1, 24 * HOUR_US):
        bounds = timestamp(day), timestamp(day + 24 * HOUR_US)
        for row in await owner.fetch("SELECT * FROM plant.minutes_of($1, $2, $3)", channels, *bounds):
            of_good = [_bits(row[name]) for name in ("min", "max", "first", "last")]
            times = [None if row[name] is None else microseconds(row[name]) for name in ("first_time", "last_time")]
            counts = [row[name] for name in ("n", "n_good", "known", "holds")]
            key = row["channel_id"], microseconds(row["bucket"])
            minutes[key] = (*of_good, *times, bits(row["sum"]), bits(row["area"]), *counts)
        for row in await owner.fetch("SELECT * FROM plant.state_minutes_of($1, $2, $3)", channels, *bounds):
            states[row["channel_id"], microseconds(row["bucket"]), bits(row["state"])] = (row["n"], row["known"])
    return minutes, states


@_SETTINGS
@given(_plants())
async def test_minutes_are_those_of_the_database(
    owner: asyncpg.Connection[Any], plant: tuple[list[list[Sample]], list[int]]
) -> None:
    courses, ends = plant
    channels = [next(_channels) for _ in courses]
    samples = [(channel, *sample) for channel, course in zip(channels, courses, strict=True) for sample in course]
    for channel, course in zip(channels, courses, strict=True):
        await copy(owner, channel, course)
    minutes, states = _found(_accumulated(samples, ends))
    expected = await _expected(owner, channels, max(time for _, time, *_ in samples))
    # Of the first minute of a channel it is not known what was before.
    first = {
        (channel, DAY_US + course[0][0] // MINUTE_US * MINUTE_US)
        for channel, course in zip(channels, courses, strict=True)
    }
    assert minutes == {key: row for key, row in expected[0].items() if key not in first}
    assert states == {key: row for key, row in expected[1].items() if key[:2] not in first}
