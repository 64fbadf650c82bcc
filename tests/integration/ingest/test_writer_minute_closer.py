"""Minutes that a running writer closes, compared with their samples, whatever comes between and whoever else writes."""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from core.batch import Gap, GapBatch, SampleBatch
from core.timestamps import timestamp
from schema.queries import load
from tests.database import Database, connected
from tests.minute_writer import (
    CHANNELS,
    MINUTE_US,
    SECOND,
    Clock,
    Running,
    assert_exact,
    batch,
    clock,
    dirty_channels,
    minute_of,
    minutes_made,
    other_dsn,
    refreshed,
    registered_channels,
    running,
    without,
)
from tests.sample_tables import DAY_US
from tests.waiting import until

__all__ = ["clock", "other_dsn", "registered_channels", "running"]  # fixtures


async def test_minutes_in_order_are_not_refreshed_again(owner: asyncpg.Connection[Any], running: Running) -> None:
    opened = "SELECT bool_and(open_since IS NOT NULL) FROM plant.rollup_dirty WHERE NOT hours"
    for minute in range(4):
        await running.send_minute(minute)
        await until(lambda: owner.fetchval(opened))
        assert await minutes_made(owner, minute) == 0
        await running.close(owner, minute)
        if minute == 0:  # nobody knows what was before
            assert await minutes_made(owner, minute) == 0
            await refreshed(owner)
        assert await minutes_made(owner, minute) == CHANNELS
        assert await owner.fetch("SELECT * FROM plant.rollup_dirty WHERE NOT hours") == []
    assert await owner.fetchval("SELECT count(*) FROM plant.rollup_dirty") <= 1  # the hour
    await running.stop()
    await assert_exact(owner)


async def test_minutes_of_a_backlog_are_not_refreshed_again(
    database: Database, owner: asyncpg.Connection[Any], running: Running, clock: Clock
) -> None:
    """All that comes is hours late, as after an outage of the database, or from a gateway that was cut off."""
    some = random.Random(1)
    clock.now = DAY_US + 200 * MINUTE_US
    for minute in range(6):
        for one in minute_of(minute, some):
            await running.send(one)
            clock.now += SECOND  # some four times as fast as they came to be
        if 0 < minute < 4:  # of the first minutes it is not known what was before, nor which channels are discrete
            await until(
                partial(
                    owner.fetchval, "SELECT plant.first_open_minute() >= $1", timestamp(DAY_US + minute * MINUTE_US)
                )
            )
            await refreshed(owner)
    clock.now += MINUTE_US + 50 * SECOND
    await until(lambda: minutes_made(owner, 5))
    assert [await minutes_made(owner, minute) for minute in range(6)] == [CHANNELS] * 6
    assert await owner.fetch("SELECT * FROM plant.rollup_dirty WHERE NOT hours") == []
    await running.stop()
    await assert_exact(owner)


async def test_minutes_close_although_maintenance_is_late(owner: asyncpg.Connection[Any], running: Running) -> None:
    """The first whole minute does not follow on the one before it, which is not made: it is made anew, no other is."""
    for minute in range(5):
        await running.send_minute(minute)
        await running.close(owner, minute)
    assert [await minutes_made(owner, minute) for minute in range(5)] == [0, *[CHANNELS] * 4]
    assert [len(await dirty_channels(owner, minute)) for minute in range(5)] == [CHANNELS, CHANNELS, 0, 0, 0]
    assert await owner.fetchval("SELECT minutes FROM plant.rollup_closed") == 3
    await running.stop()
    await assert_exact(owner)


async def test_lost_transaction_holds_its_minutes_open(
    database: Database,
    owner: asyncpg.Connection[Any],
    running: Running,
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The database has it, but nobody was told: maintenance does not wait for a writer that knows nothing of it."""
    other = Running(tmp_path / "2", database, clock)
    for minute in range(2):
        await running.send_minute(minute)
        if minute == 1:
            await other.send(batch([(5, MINUTE_US + 30 * SECOND + 1, 3.0, 0)]))
            await other.kill(monkeypatch)
        await running.close(owner, minute)
        await refreshed(owner)
    await running.stop()
    await assert_exact(owner)


async def test_late_samples_refresh_their_minutes(owner: asyncpg.Connection[Any], running: Running) -> None:
    for minute in range(4):
        await running.send_minute(minute)
        if minute == 2:
            await running.send(batch([(5, minute * MINUTE_US + 30 * SECOND, 3.0, 0)]))
        await running.close(owner, minute)
        if minute == 2:
            assert await dirty_channels(owner, minute) == [5]
        await refreshed(owner)
    await running.stop()
    await assert_exact(owner)


@pytest.mark.parametrize("what", ["a gap", "a deletion"])
async def test_changed_held_value_refreshes_later_minutes(
    owner: asyncpg.Connection[Any], running: Running, clock: Clock, what: str
) -> None:
    """Where maintenance is done with it before the next minute that has samples is closed."""
    for minute in range(6):
        batches = running.minute(minute)
        if minute in (2, 3):  # channel 7 is silent, with a value that holds
            last = batch([(7, 2 * MINUTE_US + 1, 7.0, 0)] if minute == 2 else [(8, minute * MINUTE_US + 1, 0.0, 0)])
            batches = [last, *(without(full, 7) for full in batches)]
        await running.send(*batches)
        if minute == 3:
            if what == "a gap":
                await running.send(GapBatch(1, clock.now, [Gap(DAY_US + 3 * MINUTE_US + 1, None, "stale", (7,))]))
            else:
                begin = timestamp(DAY_US + 2 * MINUTE_US)
                query = "SELECT plant.delete_samples('{7}', $1::timestamptz, $1 + INTERVAL '1 minute', 'test')"
                assert await owner.fetchval(query, begin) == 1
            await refreshed(owner)
        await running.close(owner, minute)
        await refreshed(owner)
        assert minute < 1 or await minutes_made(owner, minute) >= CHANNELS - 1
    await running.stop()
    await assert_exact(owner)


async def test_older_snapshot_refreshes_nothing(
    database: Database, owner: asyncpg.Connection[Any], running: Running
) -> None:
    """Refreshing with a snapshot from before a minute was closed would not see its rows, nor make them dirty."""
    async with connected(database.owner_dsn) as other:
        outcomes = []
        for minute in range(3):
            await running.send_minute(minute)
            snapshot = other.transaction(isolation="repeatable_read")
            await snapshot.start()
            await other.fetchval("SELECT count(*) FROM plant.rollup_dirty")
            if minute < 2:
                await running.close(owner, minute)
                await running.send(batch([(2, minute * MINUTE_US + 59 * SECOND + 1, 2.0, 0)]))  # late
            outcomes.append(await other.fetchval("SELECT plant.refresh_closed(now())"))
            await snapshot.rollback()
        assert outcomes == [None, None, True]
    await running.stop()
    await assert_exact(owner)


async def test_long_refresh_blocks_neither_ingest_nor_the_next_minute(
    database: Database, owner: asyncpg.Connection[Any], running: Running, clock: Clock
) -> None:
    """Writers that wait to close a minute have it before the next portion; nothing is left to maintenance."""
    other = await asyncpg.connect(database.owner_dsn)
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype <> 'advisory'"
    begin, portion = "BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT plant.refresh_closed(now()) AS done"
    for minute in range(4):
        await running.send_minute(minute)
        await refreshed(owner)
        await other.execute(begin)
        assert await other.fetchval(portion) is False
        clock.now = DAY_US + minute * MINUTE_US + 110 * SECOND

        async def waits() -> bool:
            return bool(await owner.fetchval(waiting))

        await until(waits)
        stored = await owner.fetchval("SELECT count(*) FROM plant.samples_raw")
        await running.send(batch([(1, (minute + 1) * MINUTE_US, 1.0, 0)]))
        assert await owner.fetchval("SELECT count(*) FROM plant.samples_raw") == stored + 1
        await until(waits)
        await other.execute(f"COMMIT; {begin}; CREATE TEMP TABLE outcome AS {portion}")
        assert await other.fetchval("SELECT done FROM outcome") is None, "the writer was first"
        await other.execute("COMMIT; DROP TABLE outcome")
        await running.close(owner, minute)
    assert await owner.fetchval("SELECT minutes FROM plant.rollup_closed") == 3, "all but the first"
    await other.close()
    await running.stop()
    await assert_exact(owner)


async def test_minutes_of_a_killed_writer(
    database: Database,
    owner: asyncpg.Connection[Any],
    running: Running,
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for minute in range(2):
        await running.send_minute(minute)
        await running.close(owner, minute)
        await refreshed(owner)
    batches = running.minute(2)
    clock.now = DAY_US + 2 * MINUTE_US + 30 * SECOND
    await running.send(*batches[:8])
    await running.kill(monkeypatch)
    await refreshed(owner)
    assert await minutes_made(owner, 2) == 0  # it may come back
    again = Running(tmp_path / "1", database, clock)

    async def left() -> bool:
        return not await owner.fetchval("SELECT count(*) FROM plant.rollup_dirty WHERE open_since IS NOT NULL")

    await until(left)  # it came back, and does not have them
    await refreshed(owner)
    assert await minutes_made(owner, 2) == CHANNELS
    await again.send(*batches[8:])
    await again.send(*minute_of(3, random.Random(3)))
    await owner.execute("UPDATE plant.rollup_dirty SET open_since = open_since - plant.open_minute_limit()")
    await refreshed(owner)
    await again.send(batch([(1, 2 * MINUTE_US + 59 * SECOND + 1, 7.0, 0)]))  # after its minute was taken
    clock.now = DAY_US + 5 * MINUTE_US
    await again.stop()
    await assert_exact(owner)


def recorded_gaps(some: random.Random, now: int, newest: int, gaps: list[Gap]) -> list[Gap]:
    """A new gap, in order or late, or another version of one of ``gaps``: ended, empty, open again, or backfilled."""
    if some.random() < 0.3:
        began = some.choice((newest, now - some.randrange(100) * SECOND)) + some.choice((0, 1, 1000))
        channels = None if some.random() < 0.1 else (some.randrange(1, 13),)
        gaps.append(Gap(began, some.choice((None, began + 3 * SECOND)), "stale", channels))
        return gaps[-1:]
    if some.random() < 0.1 and gaps:
        gap = some.choice(gaps)
        ends = some.choice((gap.from_time, gap.from_time + SECOND, None))
        return [replace(gap, to_time=ends, backfilled=some.random() < 0.2)]
    return []


async def test_minutes_of_another_installation_stay_open(
    owner: asyncpg.Connection[Any], running: Running, other_dsn: str
) -> None:
    """A writer that starts, or that closes the same minute first, releases its own only."""
    async with connected(other_dsn) as other:
        await other.execute(load("write")["insert_open_minutes"], [timestamp(DAY_US)])
    held = "SELECT count(*) FROM plant.rollup_dirty WHERE open_since IS NOT NULL AND held_by = $1"
    own, others = "plantlog_ingest", "plantlog_ingest_other"
    await owner.execute(
        "INSERT INTO plant.rollup_dirty (from_time, to_time, open_since, held_by)"
        " VALUES ($1, $2, clock_timestamp(), $3)",
        timestamp(DAY_US),
        timestamp(DAY_US + MINUTE_US),
        own,
    )
    await running.send_minute(0)
    assert await owner.fetchval(held, own) > 1
    await running.close(owner, 0, own)
    assert [await owner.fetchval(held, login) for login in (own, others)] == [0, 1]
    await running.stop()
    assert await owner.fetchval("SELECT plant.first_open_minute()") == timestamp(DAY_US)
    await owner.execute("UPDATE plant.rollup_dirty SET open_since = NULL")
    await assert_exact(owner)


async def _pause(done: asyncio.Event, seconds: float) -> None:
    """Wait for a time, but not beyond the end of the test."""
    with suppress(TimeoutError):
        await asyncio.wait_for(done.wait(), seconds)


@pytest.mark.parametrize("seed", range(4))
async def test_minutes_are_exact_under_random_interference(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path, clock: Clock, other_dsn: str, seed: int
) -> None:
    """Two writers of the same channels, late samples, replays, conflicts, gaps, deletions, and refreshing."""
    some = random.Random(seed)
    if seed == 0:
        await owner.execute("DELETE FROM plant.setting WHERE key = 'lateness'")
    dsns = ("", other_dsn if seed % 2 else "")  # of one installation, or of two
    writers = [Running(tmp_path / str(i), database, clock, dsn) for i, dsn in enumerate(dsns)]
    done = asyncio.Event()

    async def maintenance() -> None:
        async with connected(database.owner_dsn) as connection:
            while not done.is_set():
                await connection.execute("CALL plant.refresh_rollups()")
                await _pause(done, some.choice((0.05, 3.0)) * some.random())

    async def deletions() -> None:
        async with connected(database.owner_dsn) as connection:
            while not done.is_set():
                begin = clock.now - some.randrange(1, 90) * SECOND
                query = "SELECT plant.delete_samples($1, $2, $3, 'test')"
                await connection.execute(
                    query, [some.randrange(1, 13)], timestamp(begin), timestamp(begin + 9 * SECOND)
                )
                await _pause(done, 1.5 * some.random())

    others = [asyncio.create_task(work()) for work in (maintenance, deletions)]
    sent: list[SampleBatch] = []
    gaps: list[Gap] = []
    kinds = itertools.count(DAY_US)
    for minute in range(6):
        clock.now = DAY_US + minute * MINUTE_US + 59 * SECOND
        for whole in minute_of(minute, some):
            one = whole
            if some.random() < 0.1 and sent:  # again, and with other values
                old = some.choice(sent)
                old = old.part(old.samples.channel == some.randrange(1, 13))
                higher = replace(old.samples, value=old.samples.value + 1)
                await writers[0].spool.append(some.choice((old, SampleBatch(1, clock.now, higher))))
            newest = int(sent[-1].samples.time.max()) if sent else clock.now
            for gap in recorded_gaps(some, clock.now, newest, gaps):
                await writers[some.choice((0, 0, 0, 1))].spool.append(GapBatch(1, next(kinds), [gap]))
            if some.random() < 0.1:
                at = max(0, minute * MINUTE_US - some.randrange(100 * SECOND))
                await writers[0].spool.append(batch([(some.randrange(1, 13), at, 5.0, 0)]))
            sent.append(one)
            if some.random() < 0.1:
                other = some.randrange(1, 13)
                await writers[1].spool.append(one.part(one.samples.channel == other))
                one = without(one, other)
            await writers[0].spool.append(one)
        for writer in writers:
            await writer.send()
        if some.random() < 0.8:
            await writers[0].close(owner, minute)  # and so does the other one
    done.set()
    await asyncio.gather(*others)
    for writer in writers:
        await writer.stop()
    await assert_exact(owner)
