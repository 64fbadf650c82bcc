"""Minutes that the writer accumulates are those that the database makes of the same samples, to the bit."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import asyncpg
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.samples import NO_SAMPLES, Samples
from core.timestamps import MINUTE_US, microseconds, timestamp
from ingest.writer.minutes.accumulator import Accumulator, ClosedMinute
from ingest.writer.minutes.rollup_rows import Kinds
from ingest.writer.transaction.rows import GapStarts
from tests.sample_tables import DAY_US, HOUR_US, Sample, bits, copy

_SETTINGS = settings(
    max_examples=75, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
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


@dataclass(frozen=True, slots=True)
class Recorded:
    """Courses of some channels, gaps, and where groups of them end (µs since the day began)."""

    courses: list[list[Sample]]
    gaps: list[tuple[int, int | None]]  # since when, and of which channel; None: of all
    ends: list[int]
    wraps_at: list[float | None]  # of channels, as of counters


@st.composite
def _plants(draw: st.DrawFn) -> Recorded:
    courses = draw(st.lists(_course(), min_size=1, max_size=3))
    times = sorted({time for course in courses for time, *_ in course})
    near = st.builds(
        int.__add__, st.sampled_from(times), st.sampled_from([0, 0, 1, -1, 2_000_000, MINUTE_US, HOUR_US])
    ).map(lambda at: max(at, 0))
    channels = st.sampled_from([None, *range(len(courses))])
    gaps = draw(st.lists(st.tuples(near, channels), max_size=12, unique=True))
    ends = draw(st.lists(st.sampled_from(times), max_size=8, unique=True))
    wraps_at = [draw(st.sampled_from([None, 4.0, 1000.0])) for _ in courses]
    return Recorded(courses, gaps, [*sorted(ends), 2**60], wraps_at)


def _columns(samples: list[tuple[int, int, int, int]]) -> Samples:
    """(channel, µs since the day began, bits, status) of a group, sorted."""
    channel, time, value, status = zip(*sorted(samples), strict=True)
    times, values = np.array(time, np.int64) + DAY_US, np.array(value, np.uint64).view(np.float64)
    return Samples(np.array(channel, np.int32), times, values, np.array(status, np.uint32))


def _accumulated(
    samples: list[tuple[int, int, int, int]], gaps: list[tuple[int, int]], ends: list[int], kinds: Kinds
) -> list[ClosedMinute]:
    """Every minute, of samples and gaps (µs since the day began, channel) that come in groups."""
    made = Accumulator()
    made.kinds = kinds
    minutes: set[int] = set()
    for begin, end in itertools.pairwise([-1, *ends]):
        group = [s for s in samples if begin < s[1] <= end]
        some = [gap for gap in gaps if begin < gap[0] <= end]
        if group or some:
            columns = _columns(group) if group else NO_SAMPLES
            at, channel = np.array(some, np.int64).reshape(-1, 2).T
            times = np.concatenate((columns.time, at + DAY_US))
            touched = np.unique(times // MINUTE_US).tolist()
            made.fold(columns, touched, GapStarts(channel.astype(np.int32), at + DAY_US))
            minutes.update(touched)
    return [made.close(minute) for minute in sorted(minutes)]


def _bits(number: float | None) -> int | None:
    return None if number is None else bits(number)


Minutes = dict[tuple[int, int], Any]
States = dict[tuple[int, int, int], Any]


def _found(closed: list[ClosedMinute]) -> tuple[Minutes, States, Minutes]:
    minutes, states, increases = {}, {}, {}
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
        for channel, increase in zip(*(column.tolist() for column in minute.increases), strict=True):
            increases[channel, minute.begin] = bits(increase)
    return minutes, states, increases


async def _expected(owner: asyncpg.Connection[Any], channels: list[int], last: int) -> tuple[Minutes, States, Minutes]:
    """Rollups that the database computes, a day at a time."""
    minutes, states, increases = {}, {}, {}
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
        for row in await owner.fetch("SELECT * FROM plant.increase_minutes_of($1, $2, $3)", channels, *bounds):
            increases[row["channel_id"], microseconds(row["bucket"])] = bits(row["increase"])
    return minutes, states, increases


async def _store(owner: asyncpg.Connection[Any], plant: Recorded) -> list[int]:
    """Samples and gaps; the ids of the channels."""
    source = await owner.fetchval(
        "INSERT INTO plant.source (name, kind, address) VALUES (gen_random_uuid()::text, 'push', '') RETURNING id"
    )
    query = """
        INSERT INTO plant.channel (name, source_id, address, kind, attributes)
        VALUES (gen_random_uuid()::text, $1, '', 'discrete', jsonb_build_object('wraps_at', $2::float8)) RETURNING id"""
    channels = [await owner.fetchval(query, source, wraps_at) for wraps_at in plant.wraps_at]
    for channel, course in zip(channels, plant.courses, strict=True):
        await copy(owner, channel, course)
    of_gap = "INSERT INTO plant.gap (source_id, channel_id, from_time, reason) VALUES ($1, $2, $3, 'stale')"
    of_channel = [None if place is None else channels[place] for _, place in plant.gaps]
    begins = [timestamp(DAY_US + at) for at, _ in plant.gaps]
    rows = [(source, channel, begin) for channel, begin in zip(of_channel, begins, strict=True)]
    await owner.executemany(of_gap, rows)
    return channels


@pytest.mark.slow
@_SETTINGS
@given(_plants())
async def test_minutes_equal_those_of_the_database(owner: asyncpg.Connection[Any], plant: Recorded) -> None:
    channels = await _store(owner, plant)
    each = list(zip(channels, plant.courses, strict=True))
    samples = [(channel, *sample) for channel, course in each for sample in course]
    gaps = [(at, c) for at, place in plant.gaps for c in (channels if place is None else [channels[place]])]
    ids = np.array(channels, np.int32)
    kinds = Kinds(ids, ids, np.array(plant.wraps_at, np.float64))  # of both, so that both are tested with all
    minutes, states, increases = _found(_accumulated(samples, gaps, plant.ends, kinds))
    expected = await _expected(owner, channels, max(time for _, time, *_ in samples))
    # Of the first minute of a channel it is not known what was before.
    began = {
        channel: min([course[0][0], *(at for at, c in gaps if c == channel)]) // MINUTE_US * MINUTE_US
        for channel, course in each
    }
    first = {(channel, DAY_US + minute) for channel, minute in began.items()}
    assert minutes == {key: row for key, row in expected[0].items() if key not in first}
    assert states == {key: row for key, row in expected[1].items() if key[:2] not in first}
    assert increases == {key: row for key, row in expected[2].items() if key not in first}
