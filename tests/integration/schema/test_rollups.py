"""Rollups equal those made in plain Python from all samples, to the bit, whatever came in which order."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import numpy as np
import pytest

from core.batch import Batch, Gap, GapBatch, SampleBatch
from core.samples import Samples
from core.time_limits import TimeLimits
from core.timestamps import microseconds, now_us, timestamp
from history.rollups import verify
from history.sql.kernels.courses import Configuration
from ingest.spool.format import SpooledBatch
from ingest.writer.transaction.group import assemble
from ingest.writer.transaction.write import RepeatingChannels, write
from ops.maintenance.packing import compress_before, pack_minutes
from schema.queries import load
from tests.database import Database, add_channels, add_sources, connected
from tests.expected_rollups import Rollups, rollups
from tests.sample_tables import DAY_US, HOUR_US
from tests.unit.history.aggregates_of import Channel, aggregates

MINUTE_US = 60_000_000
SECOND = 1_000_000
_COLUMNS = "n, min, max, sum, area, first, last, known, first_time, last_time, n_good, holds"
Rows = list[tuple[int, int, float, int]]  # channel, µs, value, status


class WrittenSamples:
    """Written samples, and the newest revision of each gap."""

    def __init__(self) -> None:
        self.samples: dict[int, dict[int, tuple[float, int]]] = {}
        self.gaps: dict[tuple[int, int], tuple[int, Gap]] = {}
        self._revision = 0

    async def write(self, connection: asyncpg.Connection[Any], samples: Rows) -> None:
        """Through the writer's own transaction; what is there already stays."""
        for channel, time, value, status in samples:
            self.samples.setdefault(channel, {}).setdefault(time, (value, status))
        channel_id, times, values, statuses = zip(*samples, strict=True)
        batch = SampleBatch(
            1,
            DAY_US,
            Samples(
                np.array(channel_id, np.int32),
                np.array(times, np.int64),
                np.array(values, np.float64),
                np.array(statuses, np.uint32),
            ),
        )
        await self.write_batch(connection, batch)

    async def say(self, connection: asyncpg.Connection[Any], gap: Gap) -> None:
        """A gap of some channels, or what became of it."""
        assert gap.channel_ids is not None
        for channel in gap.channel_ids:
            self.gaps[channel, gap.from_time] = (channel, gap)
        self._revision += 1
        await self.write_batch(connection, GapBatch(1, DAY_US + self._revision, [gap]))

    async def write_batch(self, connection: asyncpg.Connection[Any], batch: Batch) -> None:
        """Whatever it is; gaps are not kept in mind."""
        times = batch.samples.time if isinstance(batch, SampleBatch) else np.array([DAY_US])
        spooled = SpooledBatch(1, int(times.min()), int(times.max()), batch)
        group = assemble([(PATH, [spooled])], TimeLimits(1e9, 1e9))
        await write(connection, group, (), RepeatingChannels())

    def expected(self) -> Rollups:
        """All rollups, states of even channels."""
        made = rollups(self.samples, self.gaps.values())
        made.state_minutes = {key: value for key, value in made.state_minutes.items() if key[0] % 2 == 0}
        made.state_hours = {key: value for key, value in made.state_hours.items() if key[0] % 2 == 0}
        return made


PATH = Path("a.sqlite")
COUNTERS = {5: None, 7: 100.0}  # channels, and where they wrap


@pytest.fixture(autouse=True)
async def registered_channels(owner: asyncpg.Connection) -> None:
    await add_sources(owner, "a")
    await add_channels(owner, range(1, 9), discrete=True)
    counter = "UPDATE plant.channel SET kind = 'counter', attributes = jsonb_build_object('wraps_at', $2::float8)"
    await owner.executemany(f"{counter} WHERE id = $1", COUNTERS.items())
    await owner.execute(load("write")["create_staging"])


_Work: TypeAlias = "Callable[[asyncpg.Connection[Any]], Awaitable[object]]"


async def refresh(connection: asyncpg.Connection[Any]) -> None:
    """Until nothing is dirty; then some minutes are packed, as by the job of maintenance."""
    await connection.execute("CALL plant.refresh_rollups()")
    await pack_minutes(connection, timestamp(now_us() - 24 * HOUR_US), portions=1)


async def stored(connection: asyncpg.Connection[Any]) -> Rollups:
    """Rollups in the database."""
    made = Rollups()
    for relation, rows in (("rollup_minutes", made.minutes), ("rollup_1h", made.hours)):
        for row in await connection.fetch(f"SELECT channel_id, bucket, {_COLUMNS} FROM plant.{relation}"):
            rows[row[0], microseconds(row[1])] = tuple(
                microseconds(value) if isinstance(value, datetime) else value for value in row[2:]
            )
    for relation, states in (("rollup_states_1m", made.state_minutes), ("rollup_states_1h", made.state_hours)):
        for row in await connection.fetch(f"SELECT channel_id, bucket, state, n, known FROM plant.{relation}"):
            states[row[0], microseconds(row[1]), row[2]] = (row[3], row[4])
    for width, word in ((MINUTE_US, "minute"), (HOUR_US, "hour")):
        query = "SELECT * FROM plant.held_buckets($1::text::interval, '-infinity', 'infinity')"
        for row in await connection.fetch(query, f"1 {word}"):
            made.held[width, row["channel_id"], microseconds(row["bucket"])] = (
                row["value"],
                row["known"],
                row["holds"],
            )
    return made


async def assert_exact(connection: asyncpg.Connection[Any], plant: WrittenSamples) -> None:
    """Nothing is dirty, and all is as it would be made from scratch."""
    assert await connection.fetch("SELECT * FROM plant.rollup_dirty") == []
    found, expected = await stored(connection), plant.expected()
    for name in ("minutes", "hours", "state_minutes", "state_hours", "held"):
        there, right = getattr(found, name), getattr(expected, name)
        assert there.keys() == right.keys(), name
        wrong = {key: (there[key], right[key]) for key in right if there[key] != right[key]}
        assert not wrong, (name, len(wrong), next(iter(wrong.items())))
    for width, view in ((MINUTE_US, "increases_1m"), (HOUR_US, "increases_1h")):
        rows = await connection.fetch(f"SELECT channel_id, bucket, increase, seconds FROM plant.{view}")
        increases = {(row[0], microseconds(row[1])): row["increase"] for row in rows}
        assert increases == pytest.approx(expected_increases(plant, width), rel=1e-12, abs=1e-9), view
        assert all(row["seconds"] >= 0 for row in rows)


async def assert_exact_after_refresh(connection: asyncpg.Connection[Any], plant: WrittenSamples) -> None:
    await refresh(connection)
    await assert_exact(connection, plant)


def expected_increases(plant: WrittenSamples, width: int) -> dict[tuple[int, int], float]:
    """Increases by counter and bucket (µs), as the aggregate ``increase`` has them."""
    expected = {}
    configuration = Configuration(treat_uncertain_as_bad=False)
    for channel in sorted(COUNTERS.keys() & plant.samples.keys()):
        samples = [(at, *sample) for at, sample in sorted(plant.samples[channel].items())]
        gaps = [at for of, at in plant.gaps if of == channel]
        counter = Channel(samples, gaps, "counter", wraps_at=COUNTERS[channel])
        window = samples[0][0] // width * width, samples[-1][0] // width * width + width
        [rows] = aggregates([counter], window, width, configuration, ["increase"])
        readings = {at // width * width for at, value, status in samples if not (status >> 31 or math.isnan(value))}
        for begin, (increase, *_) in zip(range(*window, width), rows, strict=True):
            if begin in readings:
                expected[channel, begin] = increase
    return expected


def random_samples(some: random.Random, channels: Sequence[int], hours: int, n: int) -> Rows:
    """Dense and sparse intervals, with what values and qualities there are."""
    samples: Rows = []
    while len(samples) < n:
        channel = some.choice(channels)
        at = DAY_US + some.randrange(hours * HOUR_US)
        step = some.choice((SECOND, 10 * SECOND, MINUTE_US, 7 * MINUTE_US + 13, 333_333))
        at -= at % some.choice((1, SECOND, MINUTE_US))
        for i in range(some.randrange(1, 90)):
            value = some.choice((0.0, 1.0, 2.0, round(some.gauss(50, 20), 2), some.gauss(0, 1)))
            if some.random() < 0.04 and channel not in COUNTERS:
                value = some.choice((math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e300, -1e300, 1e-290, 3e15))
            status = some.choice((0, 0, 0, 0, 0, 0, 0, 0x40000000, 0x80050000, 0x800A0000)) if channel % 3 else 0
            samples.append((channel, at + i * step, value, status))
    return samples


async def test_rollups_of_one_channel_equal_a_hand_computation(
    database: Database, owner: asyncpg.Connection[Any]
) -> None:
    plant = WrittenSamples()
    at = DAY_US + HOUR_US
    rows = [(0, 10.0, 0), (30, 20.0, 0), (90, 40.0, 0), (100, 0.0, 0x80050000), (110, 60.0, 0), (119, math.nan, 0)]
    await plant.write(owner, [(1, at + s * SECOND, value, status) for s, value, status in rows])
    await assert_exact_after_refresh(owner, plant)
    query = "SELECT n, n_good, min, max, avg, twa, seconds, first, last, holds FROM plant.samples_{} ORDER BY bucket"
    minutes, hours = (query.format(width).replace("ORDER", "WHERE n > 0 ORDER") for width in ("1m", "1h"))
    assert [tuple(row) for row in await owner.fetch(minutes)] == [
        (2, 2, 10, 20, 15, 15, 60, 10, 20, True),
        (4, 2, 40, 60, 50, (30 * 20 + 10 * 40 + 9 * 60) / 49, 49, 40, 60, False),
    ]
    assert [tuple(row) for row in await owner.fetch(hours)] == [
        (6, 4, 10, 60, 32.5, (30 * 10 + 60 * 20 + 10 * 40 + 9 * 60) / 109, 109, 10, 60, False)
    ]


async def test_gap_ends_a_held_value(owner: asyncpg.Connection[Any]) -> None:
    plant = WrittenSamples()
    at = DAY_US + HOUR_US
    await plant.write(owner, [(channel, at + s * SECOND, 1.0, 0) for channel in (1, 2) for s in (0, 600, 7200 - 1)])
    await assert_exact_after_refresh(owner, plant)
    seconds = "SELECT twa, seconds FROM plant.samples_1h WHERE channel_id = 1 AND n > 0 ORDER BY bucket"
    assert [tuple(row) for row in await owner.fetch(seconds)] == [(1, 3600), (1, 3600)]
    gap = Gap(at + 900 * SECOND, None, "stale", (1,))
    for change in (gap, replace(gap, to_time=at + 7000 * SECOND)):
        await plant.say(owner, change)
        await assert_exact_after_refresh(owner, plant)
        assert [tuple(row) for row in await owner.fetch(seconds)] == [(1, 900), (1, 1)]
    await plant.say(owner, replace(gap, to_time=at + 7000 * SECOND, backfilled=True))
    await assert_exact_after_refresh(owner, plant)
    assert [tuple(row) for row in await owner.fetch(seconds)] == [(1, 3600), (1, 3600)]
    state = "SELECT seconds, n FROM plant.states_1h WHERE channel_id = 2 ORDER BY bucket"
    assert [tuple(row) for row in await owner.fetch(state)] == [(3600, 1), *[(3600, 0)] * 24, (3599, 0)]


async def test_states_hold_in_buckets_without_samples(owner: asyncpg.Connection[Any]) -> None:
    plant = WrittenSamples()
    begin = DAY_US + 10 * MINUTE_US
    samples = [(0, 1.0, 0), (10, 1.0, 0x80050000), (20, 1.0, 0), (310, 0.0, 0)]  # minute, value, status
    await plant.write(owner, [(2, begin + minute * MINUTE_US, value, status) for minute, value, status in samples])
    await assert_exact_after_refresh(owner, plant)
    for view, hour in (("1m", 60), ("1h", 1)):
        states = f"SELECT sum(seconds), max(seconds) FROM plant.states_{view} WHERE channel_id = 2 AND state = 1"
        (found,) = await owner.fetch(states)
        assert tuple(found) == (18_000, 3600 / hour)
        means = (
            f"SELECT DISTINCT twa, n FROM plant.samples_{view} WHERE channel_id = 2 AND bucket >= $1 AND bucket < $2"
        )
        hours = timestamp(DAY_US + HOUR_US), timestamp(DAY_US + 5 * HOUR_US)
        assert [tuple(row) for row in await owner.fetch(means, *hours)] == [(1.0, 0)]
    # late data, and a gap, while their buckets are still to be recomputed and after
    await plant.write(owner, [(2, begin + 100 * MINUTE_US, 0.0, 0)])
    await plant.say(owner, Gap(begin + 200 * MINUTE_US + 7, None, "stale", (2,)))
    late = "SELECT min(bucket), max(bucket) FROM plant.held_buckets('1 minute', $1, $2) WHERE channel_id = 2"
    bounds = timestamp(begin + 50 * MINUTE_US), timestamp(begin + 300 * MINUTE_US)
    (pending,) = await owner.fetch(late, *bounds)
    assert tuple(pending) == (bounds[0], timestamp(begin + 99 * MINUTE_US))
    await assert_exact_after_refresh(owner, plant)
    (exact,) = await owner.fetch(late, *bounds)
    assert tuple(exact) == (bounds[0], timestamp(begin + 200 * MINUTE_US))


async def test_too_large_values_are_told_apart_from_a_mean(owner: asyncpg.Connection[Any]) -> None:
    plant = WrittenSamples()
    samples = [(0, 5.0), (30, math.inf), (90, 7.0), (120, -1e308), (150, 1e308), (600, 1.0)]  # s, value
    await plant.write(owner, [(2, DAY_US + s * SECOND, value, 0) for s, value in samples])
    await assert_exact_after_refresh(owner, plant)
    query = "SELECT n, n_good, min, max, avg, twa, seconds FROM plant.samples_1m WHERE bucket < $1 ORDER BY bucket"
    assert [tuple(row) for row in await owner.fetch(query, timestamp(DAY_US + 600 * SECOND))] == [
        (2, 2, 5, math.inf, None, 5, 30),
        (1, 1, 7, 7, 7, 7, 30),
        (2, 2, -1e308, 1e308, None, None, 0),
    ]
    assert {row["state"] for row in await owner.fetch("SELECT state FROM plant.states_1m")} == {5, 7, 1}


async def test_a_late_sample_changes_the_next_bucket_that_has_samples(owner: asyncpg.Connection[Any]) -> None:
    plant = WrittenSamples()
    await plant.write(owner, [(1, DAY_US, 1.0, 0), (1, DAY_US + 20 * HOUR_US + 5, 2.0, 0), (2, DAY_US, 1.0, 0)])
    await assert_exact_after_refresh(owner, plant)
    for late in (3 * HOUR_US, 19 * HOUR_US, 15 * HOUR_US, 20 * HOUR_US):
        await plant.write(owner, [(1, DAY_US + late, late / 1e9, 0)])
        await assert_exact_after_refresh(owner, plant)


@pytest.mark.slow
async def test_rollups_are_exact_in_any_order_of_operations(owner: asyncpg.Connection[Any]) -> None:
    some = random.Random(0)
    plant = WrittenSamples()
    hours = some.choice((3, 30))
    samples = random_samples(some, range(1, 8), hours, 4000)
    for _ in range(8):
        part = [some.choice(samples) for _ in range(some.randrange(1, 700))]
        await plant.write(owner, part)
        for _ in range(some.randrange(4)):
            channel, at, _, _ = some.choice(samples)
            at += some.choice((0, 1, SECOND))
            gap = Gap(at, some.choice((None, at, at + 1, at + 100 * SECOND)), "stale", (channel,))
            await plant.say(owner, replace(gap, backfilled=some.random() < 0.3))
        if some.random() < 0.7:
            await assert_exact_after_refresh(owner, plant)
        if some.random() < 0.4:
            await compress_before(owner, timestamp(DAY_US + some.randrange(hours * HOUR_US)))
    await assert_exact_after_refresh(owner, plant)


async def test_deleting_is_exact_and_leaves_an_event(database: Database, owner: asyncpg.Connection[Any]) -> None:
    some = random.Random(5)
    plant = WrittenSamples()
    await plant.write(owner, random_samples(some, (1, 2, 3), 30, 3000))
    await refresh(owner)
    await compress_before(owner, timestamp(DAY_US + 26 * HOUR_US))  # a whole day, too
    for channels in ([1], [2, 3]):
        begin = DAY_US + some.randrange(25 * HOUR_US)
        end = begin + 3 * HOUR_US + 1234
        doomed = {(c, at) for c in channels for at in plant.samples[c] if begin <= at < end}
        assert doomed
        why = f"test of {channels}"
        query = "SELECT plant.delete_samples($1, $2, $3, $4)"
        assert await owner.fetchval(query, channels, timestamp(begin), timestamp(end), why) == len(doomed)
        for channel, at in doomed:
            del plant.samples[channel][at]
        await assert_exact_after_refresh(owner, plant)
        event = await owner.fetchrow("SELECT * FROM plant.event WHERE type = 'deleted' AND text = $1", why)
        assert event is not None
        detail = json.loads(event["detail"])
        assert (detail["samples"], detail["channels"]) == (len(doomed), channels)
        assert detail["by"] == await owner.fetchval("SELECT session_user")
        left = await owner.fetchval(
            "SELECT count(*) FROM plant.samples_between($1, $2, $3)", channels, timestamp(begin), timestamp(end)
        )
        assert left == 0
    assert await owner.fetchval("SELECT count(*) FROM plant.samples") == sum(map(len, plant.samples.values()))
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await owner.fetchval("SELECT plant.delete_samples('{1}', '-infinity', 'infinity', ' ')")
    for dsn in (database.reader_dsn, database.ingest_dsn):
        async with connected(dsn) as connection:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute("SELECT plant.delete_samples('{1}', '-infinity', 'infinity', 'x')")


@pytest.mark.slow
async def test_rollups_are_exact_under_concurrency(database: Database, owner: asyncpg.Connection[Any]) -> None:
    """Four writers with late data, replays and conflicts, a packer, two refreshers; at rest all is exact."""
    some = random.Random(11)
    plant = WrittenSamples()
    hours = 20
    samples = random_samples(some, range(1, 8), hours, 6_000)
    done = False
    # Each writer has channels of its own, so that the plant knows which of two values came first.
    lanes = [[s for s in samples if s[0] % 4 == lane] for lane in range(4)]

    async def writing(lane: Rows) -> None:
        async with connected(database.owner_dsn) as connection:
            await connection.execute(load("write")["create_staging"])
            for i in range(0, len(lane), 200):
                again = [some.choice(lane[: i + 200]) for _ in range(40)]
                await plant.write(connection, lane[i : i + 200] + [(c, at, value + 1, 0) for c, at, value, _ in again])

    async def calling(work: _Work) -> int:
        async with connected(database.owner_dsn) as connection:
            calls = 0
            while not done:
                await work(connection)
                calls += 1
                await asyncio.sleep(0)
        return calls

    before = timestamp(DAY_US + hours * HOUR_US)
    works: list[_Work] = [refresh, refresh, partial(compress_before, before=before)]
    callers = [asyncio.create_task(calling(work)) for work in works]
    await asyncio.gather(*map(writing, lanes))
    done = True
    assert all(calls > 0 for calls in await asyncio.gather(*callers))
    await compress_before(owner, before)
    await assert_exact_after_refresh(owner, plant)
    verified = await verify(owner)
    assert (verified.channels, verified.differences) == (8, [])
