"""Gaps in minutes that a running writer closes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pytest

from core.batch import Batch, Gap, GapBatch, SampleBatch
from core.timestamps import timestamp
from tests.database import Database
from tests.minute_writer import (
    MINUTE_US,
    SECOND,
    Clock,
    Running,
    assert_exact,
    clock,
    dirty_channels,
    refreshed,
    registered_channels,
    running,
    without,
)
from tests.sample_tables import DAY_US
from tests.waiting import until

__all__ = ["clock", "registered_channels", "running"]  # fixtures


def without_those(one: SampleBatch, channels: tuple[int, ...], missing: list[range]) -> SampleBatch:
    """The batch without samples of these channels in the missing intervals (µs since the day began)."""
    gone = np.zeros(len(one), bool)
    for span in missing:
        gone |= (one.samples.time - DAY_US >= span.start) & (one.samples.time - DAY_US < span.stop)
    return one.part(~(gone & np.isin(one.samples.channel, channels)))


@pytest.mark.parametrize("channels", [(3, 4), None])
async def test_gap_in_order_refreshes_nothing(
    owner: asyncpg.Connection[Any], running: Running, clock: Clock, channels: tuple[int, ...] | None
) -> None:
    """As collectors say it: in one minute, from one into the next, and over one without any."""
    gaps = {
        2: (2 * MINUTE_US + 20 * SECOND + 20_000, 2 * MINUTE_US + 29 * SECOND),
        3: (3 * MINUTE_US + 50 * SECOND + 20_000, 4 * MINUTE_US + 10 * SECOND),
        5: (5 * MINUTE_US, 7 * MINUTE_US + 10 * SECOND),
    }
    missing = [range(*gap) for gap in gaps.values()]
    of = channels or tuple(range(1, 13))
    for minute in range(9):
        batches: list[Batch] = [without_those(one, of, missing) for one in running.minute(minute)]
        if minute in gaps:
            begin, end = (DAY_US + at for at in gaps[minute])
            opened, ended = (
                GapBatch(1, clock.now + i, [Gap(begin, to, "stale", channels)]) for i, to in enumerate((None, end))
            )
            behind = [b for b in batches if isinstance(b, SampleBatch) and len(b) and b.samples.time[0] > begin]
            batches.insert(len(batches) - len(behind), opened)
        await running.send(*(batch for batch in batches if len(batch)))
        if minute in gaps:
            await running.send(ended)
        await running.close(owner, minute)
        if minute == 0:
            await refreshed(owner)
        assert await owner.fetch("SELECT * FROM plant.rollup_dirty WHERE NOT hours") == []
    assert await owner.fetchval("SELECT minutes FROM plant.rollup_closed") == (8 if channels else 6)
    await running.stop()
    await assert_exact(owner)


@pytest.mark.parametrize("what", ["late", "closed", "none", "backfilled", "others"])
async def test_changed_gap_refreshes_its_minutes(
    owner: asyncpg.Connection[Any], running: Running, clock: Clock, what: str
) -> None:
    """Said behind later samples, when its minute is closed, or found to be none; or not by this writer."""
    began = 0
    for minute in range(5):
        batches: list[Batch] = [*running.minute(minute)]
        began = int(batches[3].samples.time.max()) + 1 if minute == 2 and isinstance(batches[3], SampleBatch) else began
        opened = GapBatch(1, clock.now, [Gap(began, None, "stale", (3, 4))])
        if minute == 2 and what not in ("late", "closed"):
            batches.insert(4, opened)
        if minute == 2 and what == "others":
            query = "INSERT INTO plant.gap (source_id, channel_id, from_time, reason) VALUES (1, 5, $1, 'stale')"
            await owner.execute(query, timestamp(began))
        await running.send(*batches)
        kinds = {"none": Gap(began, began, "stale", (3, 4)), "backfilled": Gap(began, None, "stale", (3, 4), "", True)}
        kinds["late"] = opened.gaps[0]
        if minute == 2 and what in kinds:
            await running.send(GapBatch(1, clock.now + 1, [kinds[what]]))
        await running.close(owner, minute)
        if minute == 2 and what == "closed":
            await running.send(opened)
        if minute == 2:
            assert await dirty_channels(owner, minute) == ([5] if what == "others" else [3, 4])
        if minute != 3:
            await refreshed(owner)
    await running.stop()
    await assert_exact(owner)


async def test_gap_of_another_writer_beside_an_own_one(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path, clock: Clock
) -> None:
    """The other one, which has no samples of the minute, closes it first."""
    one, other = (Running(tmp_path / str(i), database, clock) for i in range(2))
    *batches, last = one.minute(0)
    await one.send(*batches, without(last, 1))
    await other.send(last.part(last.samples.channel == 1))
    await one.close(owner, 0)
    await refreshed(owner)
    await one.send_minute(1)
    await one.close(owner, 1)
    await refreshed(owner)
    await one.send_minute(2)
    begin = DAY_US + 2 * MINUTE_US
    for writer, milliseconds in ((one, 59_500), (other, 58_500)):
        gap = Gap(begin + 1000 * milliseconds, None, "stale", (1,))
        await writer.send(GapBatch(1, clock.now, [gap]))
    clock.now = begin + MINUTE_US + 20 * SECOND  # late enough for the other one, whose samples were less late

    async def closed() -> bool:
        return bool(await owner.fetchval("SELECT minute = $1 FROM plant.rollup_closed", timestamp(begin)))

    await until(closed)
    await owner.execute("UPDATE plant.rollup_closed SET minute = '-infinity'")
    clock.now = begin + MINUTE_US + 50 * SECOND
    await until(closed)
    for writer in (one, other):
        await writer.stop()
    await assert_exact(owner)


@pytest.mark.parametrize("silent", [False, True])
async def test_gap_of_a_killed_writer(
    owner: asyncpg.Connection[Any], running: Running, clock: Clock, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    """Minutes that continue its minute are computed again, also where that minute itself has no row."""
    for minute in range(3):
        batches = [without(batch, 7) if silent and minute == 2 else batch for batch in running.minute(minute)]
        await running.send(*batches)
        if minute < 2:
            await running.close(owner, minute)
            await refreshed(owner)
    if silent:  # an other one made a later minute without a word on the gap
        await owner.execute(
            "INSERT INTO plant.samples_raw (time, value, channel_id, status) VALUES ($1, 1, 7, 0)",
            timestamp(DAY_US + 3 * MINUTE_US + 1),
        )
        query = """
            INSERT INTO plant.rollup_1m
            SELECT m.* FROM plant.minutes_of('{7}', $1::timestamptz, $1 + INTERVAL '1 minute') AS m"""
        await owner.execute(query, timestamp(DAY_US + 3 * MINUTE_US))
    await running.send(GapBatch(1, clock.now, [Gap(clock.now + 900_000, None, "stale", (7,))]))
    assert not await owner.fetchval("SELECT count(*) FROM plant.rollup_dirty WHERE open_since IS NULL AND NOT hours")
    await running.kill(monkeypatch)
    await owner.execute("UPDATE plant.rollup_dirty SET open_since = open_since - plant.open_minute_limit()")
    await assert_exact(owner)
