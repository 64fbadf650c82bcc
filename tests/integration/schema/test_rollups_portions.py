"""Portions of a refresh: each dirty minute once, and little else."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from core.batch import Gap, GapBatch
from tests.database import add_channels
from tests.integration.schema.test_rollups import SECOND, WrittenSamples, assert_exact, refresh, registered_channels
from tests.sample_tables import DAY_US, HOUR_US

__all__ = ["registered_channels"]  # a fixture

# What is made, in minutes of channels, and which hours.
_COUNTED = """
CREATE TABLE made (minutes float8, hour timestamptz);
ALTER FUNCTION plant.refresh_minutes RENAME TO refresh_minutes_of;
CREATE FUNCTION plant.refresh_minutes(ids int[], everyone int[], "from" timestamptz, "to" timestamptz) RETURNS void
LANGUAGE sql AS $$
INSERT INTO public.made (minutes) VALUES (cardinality(ids) * extract(epoch FROM "to" - "from") / 60);
SELECT plant.refresh_minutes_of(ids, everyone, "from", "to");
$$;
ALTER FUNCTION plant.refresh_hour RENAME TO refresh_hour_of;
CREATE FUNCTION plant.refresh_hour(hour timestamptz) RETURNS void
LANGUAGE sql AS $$
INSERT INTO public.made (hour) VALUES (hour);
SELECT plant.refresh_hour_of(hour);
$$;
"""

# Chunks of a day or a week that this transaction opened.
_CHUNKS_LOCKED = """
SELECT count(DISTINCT l.relation)
FROM pg_locks AS l
JOIN pg_class AS c ON c.oid = l.relation
JOIN timescaledb_information.chunks AS k ON k.chunk_name = c.relname
WHERE l.pid = pg_backend_pid() AND k.hypertable_name IN ('samples_raw', 'rollup_1m', 'rollup_states_1m')
"""


async def test_gap_of_a_source_without_channels_is_skipped(owner: asyncpg.Connection[Any]) -> None:
    await owner.execute(
        "INSERT INTO plant.source (id, name, kind, address) OVERRIDING SYSTEM VALUE VALUES (2, 'silent', 'push', '')"
    )
    plant = WrittenSamples()
    await plant.write_batch(owner, GapBatch(2, DAY_US, [Gap(DAY_US, None, "stale")]))
    await plant.write(owner, [(c, DAY_US + i * 60 * SECOND, 1.0, 0) for c in range(1, 9) for i in range(60)])
    portions = 0
    while await owner.fetchval("SELECT plant.refresh_portion(now())"):
        portions += 1
        assert portions < 20, await owner.fetch("SELECT * FROM plant.rollup_dirty")
    await assert_exact(owner, plant)


@pytest.mark.slow
async def test_gaps_refresh_their_minutes_and_each_hour_once(owner: asyncpg.Connection[Any]) -> None:
    channels, hours, gaps = 100, 3, 60
    await add_channels(owner, range(9, 8 + channels + 1), discrete=True)
    plant = WrittenSamples()
    ids = range(9, 9 + channels)
    await plant.write(owner, [(c, DAY_US + i * 60 * SECOND + c, float(i), 0) for c in ids for i in range(hours * 60)])
    await refresh(owner)
    await owner.execute(_COUNTED)
    some = random.Random(1)
    places = {(some.choice(ids), DAY_US + some.randrange(hours * HOUR_US)) for _ in range(gaps)}
    for channel, begins in sorted(places):
        await plant.say(owner, Gap(begins, begins + 5 * SECOND, "overflow", (channel,)))
    await refresh(owner)
    made = await owner.fetchval("SELECT sum(minutes) FROM made")
    assert made < 30 * len(places), f"{made:,.0f} minutes of channels for {len(places)} gaps"
    assert await owner.fetchval("SELECT max(n) FROM (SELECT count(hour) AS n FROM made GROUP BY hour) AS h") == 1
    await assert_exact(owner, plant)


async def test_a_portion_is_planned_over_its_own_chunks(owner: asyncpg.Connection[Any]) -> None:
    """A sample a day: each portion looks at a day or two, however many days there are."""
    days = 40
    plant = WrittenSamples()
    await plant.write(owner, [(1 + d % 2, DAY_US - d * 24 * HOUR_US, float(d), 0) for d in range(days)])
    portions, most = 0, 0
    while True:
        async with owner.transaction(isolation="repeatable_read"):
            done = not await owner.fetchval("SELECT plant.refresh_portion(now())")
            most = max(most, await owner.fetchval(_CHUNKS_LOCKED))
        if done:
            break
        portions += 1
    assert portions == 2 * days  # a minute and its hour each
    assert most <= 6, f"{most} chunks of days were opened for one portion"
    await assert_exact(owner, plant)


async def test_portion_of_many_channels_is_limited(owner: asyncpg.Connection[Any]) -> None:
    """A minute, and an hour, of all channels at once would keep a writer from closing minutes for too long."""
    channels = 108
    await add_channels(owner, range(9, channels + 1), discrete=True)
    for function, many, few in (("refresh_portion", "5000", "50"), ("refresh_hour", "2000", "20")):
        definition = await owner.fetchval("SELECT pg_get_functiondef(('plant.' || $1)::regproc)", function)
        assert many in definition
        await owner.execute(definition.replace(many, few))
    plant = WrittenSamples()
    for minute in range(3):
        await plant.write(owner, [(c, DAY_US + minute * 60 * SECOND + c, float(c), 0) for c in range(1, 1 + channels)])
    most = {"rollup_1m": 0, "rollup_1h": 0}
    before = dict.fromkeys(most, 0)
    while await owner.fetchval("SELECT plant.refresh_closed(now())"):
        for relation, was in before.items():
            before[relation] = await owner.fetchval(f"SELECT count(*) FROM plant.{relation}")
            most[relation] = max(most[relation], before[relation] - was)
    assert most == {"rollup_1m": 50, "rollup_1h": 20}
    await assert_exact(owner, plant)


async def test_gap_followed_by_samples_refreshes_one_minute(owner: asyncpg.Connection[Any]) -> None:
    """Minutes that continue from there are unchanged. A gap without samples behind it has none."""
    plant = WrittenSamples()
    await plant.write(
        owner, [(c, DAY_US + i * 60 * SECOND + s * SECOND, 1.0, 0) for c in (1, 2) for i in range(9) for s in (0, 50)]
    )
    await refresh(owner)
    await owner.execute(_COUNTED)
    for seconds, minutes in ((20, 1), (55, 2)):
        gap = Gap(DAY_US + (120 + seconds) * SECOND, None, "stale", (1, 2))
        for change in (gap, replace(gap, to_time=gap.from_time + SECOND, backfilled=True)):
            await plant.say(owner, change)
            await refresh(owner)
            assert await owner.fetchval("SELECT sum(minutes) FROM made") == 2 * minutes
            await owner.execute("DELETE FROM made")
            await assert_exact(owner, plant)
