"""A sample's life: written, closed, late, replayed, refused; while others read, write, and compress too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from core.database import FAILURES
from ops.maintenance.packing import compress_before
from tests.database import connected
from tests.integration.conformance.plant import CHANNELS, LOOK, MINUTE, NEXT_DAY, ConformancePlant
from tests.sample_tables import DAY, bits, float_of, samples_in_view
from tests.samples import T0, batch
from tests.waiting import PATIENCE, until

_SPECIAL = (0, 1 << 63, 0x7FF0000000000000, 0x7FF8000000000001, 0x7FF4000000000002, 1, bits(0.1 + 0.2))
_T0_DAY = (DAY.timestamp() * 1_000_000 - T0) // 1  # µs from tests.samples' epoch to DAY


@asynccontextmanager
async def readers(plant: ConformancePlant) -> AsyncIterator[list[tuple[int, int, int]]]:
    """Look in all ways, again and again; yields what was seen."""
    looks: list[tuple[int, int, int]] = []
    done = asyncio.Event()

    async def read(relation: str) -> None:
        async with connected(plant.database.reader_dsn) as connection:
            while not done.is_set():
                row = await connection.fetchrow(LOOK.format(relation, CHANNELS))
                assert row is not None
                looks.append((row["rows"], row["keys"], row["digest"]))

    channels = f"ARRAY(SELECT generate_series(1, {CHANNELS}))"
    relations = (
        "plant.samples",
        f"plant.samples_between({channels}, '{DAY}', '{NEXT_DAY}')",
        f"plant.samples_between('{DAY}', '{NEXT_DAY}')",
    )
    async with asyncio.TaskGroup() as group:
        for relation in relations:
            group.create_task(read(relation))
        try:
            await until(lambda: len(looks) >= 3)
            yield looks
            seen = len(looks)
            await until(lambda: len(looks) >= seen + 6)
        finally:
            done.set()


async def test_all_values_round_trip_to_the_bit(plant: ConformancePlant) -> None:
    sent = [(i * 10_000_000, _SPECIAL[i % len(_SPECIAL)], 0x80050000 if i % 5 == 0 else 0) for i in range(2000)]
    await plant.copy(1, sent)
    assert await plant.everywhere(1) == sent
    await plant.compress()
    assert {form for _, form in await plant.form_of_days()} <= {await plant.closed_form(), "rows"}
    assert await plant.everywhere(1) == sent
    assert await plant.everywhere(1, DAY + timedelta(hours=1), DAY + timedelta(hours=2)) == sent[360:720]


async def test_readers_see_each_sample_once_while_days_close(plant: ConformancePlant) -> None:
    await plant.fill(minutes=240)
    whole = await plant.look()
    assert whole[0] == whole[1] == 240 * CHANNELS
    async with readers(plant) as looks:
        for hour in (1, 2, 3, 4, 24):
            seen = len(looks)
            await plant.compress(DAY + timedelta(hours=hour))
            await until(lambda seen=seen: len(looks) >= seen + 3)
    assert set(looks) == {whole}


async def test_readers_see_late_samples_once_while_they_are_merged(plant: ConformancePlant) -> None:
    """Of another channel than those that are counted."""
    await plant.fill(minutes=240)
    await plant.compress()
    whole = await plant.look()
    late = [(n * MINUTE + 7, bits(n / 8), 0) for n in range(240)]

    async def write() -> None:
        for first in range(0, len(late), 8):
            await plant.copy(CHANNELS + 1, late[first : first + 8])

    async with readers(plant) as looks:
        writing = asyncio.create_task(write())
        while not writing.done():
            await plant.compress()
        await writing
        await plant.compress()
    assert set(looks) == {whole}
    assert await samples_in_view(plant.owner, CHANNELS + 1) == late


async def test_older_snapshot_misses_nothing(plant: ConformancePlant) -> None:
    """It is older than the closing and the merging, and reads the day only then."""
    await plant.fill(minutes=240)
    views: list[tuple[asyncpg.Connection, tuple[int, int, int]]] = []

    async def older_view() -> None:
        connection = await asyncpg.connect(plant.database.reader_dsn)
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.fetchval("SELECT 1 FROM plant.channel LIMIT 1")  # takes the snapshot, touches no chunk
        views.append((connection, await plant.look()))

    await older_view()
    await plant.compress()
    await plant.compress()
    for late in range(1, 3):
        await plant.copy(1, [(n * MINUTE + late, bits(0.5), 0) for n in range(240)])
        await older_view()
        await plant.compress()
        await plant.compress()
    for connection, expected in views:
        row = await connection.fetchrow(LOOK.format("plant.samples", CHANNELS))
        assert row is not None
        assert tuple(row) == expected
        await connection.close()
    await plant.close_days()
    assert (await plant.look())[0] == 240 * (CHANNELS + 2)
    assert await plant.form_of_days() == {(DAY, await plant.closed_form())}


async def test_compression_ended_at_any_moment_continues(plant: ConformancePlant) -> None:
    for day in range(3):
        await plant.fill(DAY + timedelta(days=day))
    whole = await plant.look()
    before = DAY + timedelta(days=3)
    for _ in range(3):
        connection = await asyncpg.connect(plant.database.owner_dsn)
        compressing = asyncio.create_task(compress_before(connection, before))
        await _at_work(plant, connection.get_server_pid())
        await plant.owner.execute("SELECT pg_terminate_backend($1)", connection.get_server_pid())
        with pytest.raises(FAILURES):
            await compressing
        assert await plant.look() == whole
    await plant.close_days(before)  # a session that was ended holds its lock for a moment more
    assert await plant.look() == whole


async def _at_work(plant: ConformancePlant, pid: int) -> None:
    """Wait until it holds the lock of those that compress."""
    locks = "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = $1 AND granted)"
    await until(partial(plant.owner.fetchval, locks, pid), every=0)


@pytest.mark.slow
async def test_concurrent_compression_does_no_harm(plant: ConformancePlant) -> None:
    await plant.fill()
    await plant.fill(NEXT_DAY)
    whole = await plant.look()
    others = [await asyncpg.connect(plant.database.owner_dsn) for _ in range(3)]
    calls = (compress_before(other, NEXT_DAY + timedelta(days=1)) for other in others)
    await asyncio.gather(*calls)
    for other in others:
        await other.close()
    await plant.close_days(NEXT_DAY + timedelta(days=1))
    assert await plant.look() == whole


async def test_compression_does_not_wait_long_for_sessions_on_a_day(plant: ConformancePlant) -> None:
    """A day that is in use is left for the next call; what was written there stays."""
    await plant.fill()
    async with connected(plant.database.ingest_dsn) as writer, writer.transaction():
        await writer.execute("INSERT INTO plant.samples_raw VALUES ($1, 1, 1, 0)", DAY + timedelta(seconds=1))
        await asyncio.wait_for(plant.compress(), PATIENCE)
    await plant.close_days()
    assert (await plant.look())[0] == 1440 * CHANNELS + 1
    assert await plant.form_of_days() == {(DAY, await plant.closed_form())}


async def test_writer_handles_late_replayed_and_conflicting_samples(plant: ConformancePlant, tmp_path: Path) -> None:
    """Into a closed day, and again: what is new lands, what is there is known, what differs in an hour is an event."""
    await plant.fill(minutes=120, channels=3)
    await plant.compress()
    kept = {channel: await plant.everywhere(channel) for channel in range(1, 4)}
    since = int(_T0_DAY)
    replay = batch([(c, since + t, float_of(v), s) for c in (1, 2) for t, v, s in kept[c]])
    late = batch([(c, since + n * MINUTE + 30_000_000, n / 4, 0) for c in (1, 2) for n in range(120)])
    differing = batch([(3, since + n * MINUTE, -1.5, 0x80050000) for n in range(0, 60, 6)])

    for attempt in ("first", "again"):
        writer = await plant.write(tmp_path / attempt, replay, late, differing)
        for channel in (1, 2):
            expected = sorted(kept[channel] + [(n * MINUTE + 30_000_000, bits(n / 4), 0) for n in range(120)])
            assert await plant.everywhere(channel) == expected
        assert await plant.everywhere(3) == kept[3]
        await plant.compress()
        await plant.compress()
        assert await plant.everywhere(3) == kept[3]
        (event,) = await plant.owner.fetch("SELECT time, channel_id, detail FROM plant.event WHERE type = 'conflict'")
        detail = json.loads(event["detail"])
        assert (event["channel_id"], event["time"], detail["refused"]) == (3, DAY, 10)
        assert datetime.fromisoformat(detail["to"]) == DAY + timedelta(minutes=54)
        assert (detail["kept_status"], detail["refused_status"]) == ("0x00000000", "0x80050000")
        assert float(detail["refused_value"]) == -1.5
        assert bits(float(detail["kept_value"])) == kept[3][0][1]
        assert writer.lag_seconds is not None
    await plant.close_days()


async def test_coverage_includes_closed_days(plant: ConformancePlant) -> None:
    await plant.owner.execute("UPDATE plant.channel SET attributes = '{\"expected_interval\": 60}'")
    await plant.fill()
    await plant.fill(NEXT_DAY, 600)
    query = "SELECT * FROM plant.coverage WHERE day IN ($1, $2) ORDER BY day, channel_id"
    before = await plant.owner.fetch(query, DAY, NEXT_DAY)
    assert [row["got"] for row in before] == [1440] * CHANNELS + [600] * CHANNELS
    await plant.compress()
    await plant.compress()
    assert await plant.owner.fetch(query, DAY, NEXT_DAY) == before


async def test_days_of_coverage_are_utc_when_the_clocks_change(plant: ConformancePlant) -> None:
    await plant.owner.execute("UPDATE plant.channel SET attributes = '{\"expected_interval\": 60}'")
    first = datetime(2026, 3, 28, tzinfo=UTC)  # on the 29th, a day has 23 hours in Berlin
    await plant.fill(first, 3 * 1440, channels=1)
    days = [(first + timedelta(days=n)).date() for n in range(3)]
    rows = "SELECT o.expected, o.got, o.missing FROM plant.coverage{} AS o WHERE {}"
    for day in days:
        whole = [(1440, 1440, 0)]
        assert await plant.owner.fetch(rows.format("", f"o.day = '{day}' AND o.channel_id = 1")) == whole
        assert await plant.owner.fetch(rows.format(f"_of('{day}')", "o.channel_id = 1")) == whole
    listed = await plant.owner.fetch("SELECT o.day FROM plant.coverage AS o WHERE o.channel_id = 1 AND o.got > 0")
    assert [row["day"] for row in listed] == days
