"""The writer against a real TimescaleDB: what is in the spool is in the table, once, and conflicts are on record."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import numpy as np
import pytest
from prometheus_client import REGISTRY

from core.batch import Event, EventBatch, SampleBatch
from core.config.model import WriterOptions
from core.samples import Samples
from core.timestamps import microseconds, now_us, timestamp
from ingest.spool.append import Spool
from ingest.writer.writer import Writer
from tests.database import Database, add_channels, add_sources
from tests.samples import T0, batch
from tests.spooling import Spooled, drained, spooled
from tests.waiting import PATIENCE, until

MIB = 1024**2
_METHODS = ("copy", "conflict")


@pytest.fixture(autouse=True)
async def registered_channels(owner: asyncpg.Connection) -> None:
    await add_sources(owner, "a", "b")
    await add_channels(owner, range(101))


async def stored(owner: asyncpg.Connection) -> list[tuple[int, int, str, int]]:
    rows = await owner.fetch("SELECT channel_id, time, value, status FROM plant.samples_raw ORDER BY 1, 2")
    return [(r[0], microseconds(r[1]) - T0, repr(r[2]), r[3] & 0xFFFFFFFF) for r in rows]


async def test_every_value_is_stored_to_the_bit(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    bits = np.array([0, 1 << 63, 0x7FF0000000000000, 0x7FF8000000000001, 0x7FF4000000000002, 1], np.uint64)
    values = bits.view(np.float64)
    n = len(values)
    sent = SampleBatch(
        1,
        T0,
        Samples(
            np.arange(n, dtype=np.int32),
            np.full(n, T0, np.int64),
            values,
            np.array([0, 0x40000000, 0x80050000, 0xFFFFFFFF, 1, 2], np.uint32),
        ),
    )
    await spooled(tmp_path, sent)
    await drained(Writer(tmp_path, database.ingest_dsn, WriterOptions(connections=1)))
    rows = await owner.fetch(
        "SELECT encode(float8send(value), 'hex') AS bits, status FROM plant.samples_raw ORDER BY channel_id"
    )
    assert [int(r["bits"], 16) for r in rows] == bits.tolist()
    assert [r["status"] & 0xFFFFFFFF for r in rows] == sent.samples.status.tolist()


async def test_a_replay_adds_nothing(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    samples = batch([(c, t, c + t / 10, 0) for c in range(20) for t in range(50)])
    events = EventBatch(1, T0, (Event("text", T0, 3, 0, "auto"), Event("text", T0 + 1, 3, 0, "auto")))
    for attempt in ("first", "again"):  # another spool file has other sequences: a source that sends all again
        await spooled(tmp_path / attempt, samples, events)
        writer = Writer(tmp_path / attempt, database.ingest_dsn, WriterOptions())
        await drained(writer)
    assert writer.written == 0
    assert await owner.fetchval("SELECT count(*) FROM plant.samples_raw") == 1000
    assert await owner.fetchval("SELECT count(*) FROM plant.event") == 2
    assert await owner.fetchval("SELECT sum(rows) FROM plant.ingest_batch WHERE kind = 'samples'") == 2000


async def test_conflicting_value_is_kept_out_and_recorded(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    await spooled(tmp_path / "1", batch([(1, 0, 1.5, 0), (2, 0, float("nan"), 0), (3, 0, 0.0, 0)]))
    await drained(Writer(tmp_path / "1", database.ingest_dsn, WriterOptions()))
    again = batch([(1, 0, 1.25, 0), (2, 0, float("nan"), 0), (3, 0, -0.0, 0x80050000), (4, 0, 9.0, 0)], source_id=2)
    await spooled(tmp_path / "2", again)
    await drained(Writer(tmp_path / "2", database.ingest_dsn, WriterOptions()))
    assert await stored(owner) == [(1, 0, "1.5", 0), (2, 0, "nan", 0), (3, 0, "0.0", 0), (4, 0, "9.0", 0)]
    conflicts = await owner.fetch(
        "SELECT channel_id, source_id, time, detail->>'kept_value' AS kept, detail->>'refused_value' AS refused"
        " FROM plant.event WHERE type = 'conflict' ORDER BY channel_id"
    )
    assert [(r["channel_id"], r["source_id"], r["kept"], r["refused"]) for r in conflicts] == [
        (1, 2, "1.5", "1.25"),
        (3, 2, "0.0", "-0.0"),
    ]
    assert {r["time"] for r in conflicts} == {timestamp(T0)}


async def test_conflicts_of_a_body_are_one_event_a_channel(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """However they come: against what is stored, by two ways of finding it, or within a group."""
    first = [(channel, n, 1.0, 0) for channel in (1, 2) for n in range(5000)]
    await spooled(tmp_path, batch(first))
    await drained(Writer(tmp_path, database.ingest_dsn, WriterOptions()))
    for value in (2.0, 3.0):
        await spooled(tmp_path, batch([(*row[:2], value, 0) for row in first]))
        writer = Writer(tmp_path, database.ingest_dsn, WriterOptions())
        await drained(writer)
    rows = await owner.fetch(
        "SELECT channel_id, detail ->> 'refused_value' AS value, (detail ->> 'refused')::int AS n, time,"
        " (detail ->> 'to')::timestamptz AS until FROM plant.event WHERE type = 'conflict' ORDER BY 2, 1"
    )
    assert [(row["channel_id"], row["value"], row["n"]) for row in rows] == [
        (1, "2.0", 5000), (2, "2.0", 5000), (1, "3.0", 5000), (2, "3.0", 5000),
    ]  # fmt: skip
    assert {(row["time"], row["until"]) for row in rows} == {(timestamp(T0), timestamp(T0 + 4999))}


async def test_many_batches_are_written_in_few_transactions(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    writer = Writer(
        tmp_path, database.ingest_dsn, WriterOptions(max_delay=20.0)
    )  # leaves time to gather also where a write takes a second
    running = asyncio.create_task(writer.run())
    spool = Spool(tmp_path / "opcua.sqlite", 512 * MIB)
    for n in range(40):
        await spool.append(batch([(c, 10 * n + k, 1.0, 0) for c in range(100) for k in range(10)]))
        await asyncio.sleep(0.02)

    async def all_written() -> bool:
        return writer.written == 40_000

    await until(all_written)
    writer.drain()
    await running
    await spool.close()
    transactions = await owner.fetchval("SELECT count(DISTINCT xmin::text) FROM plant.ingest_batch")
    assert transactions < 20


async def test_repeatedly_sent_samples_cost_one_error(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """A gateway whose time of one channel stands still, its values equal and not: the others go by COPY."""
    at_start = [REGISTRY.get_sample_value("plantlog_written_rows_total", {"method": m}) or 0.0 for m in _METHODS]
    writer = Writer(tmp_path, database.ingest_dsn, WriterOptions(connections=1))
    running = asyncio.create_task(writer.run())
    for n in range(12):
        value = float("nan") if n < 6 else float(n)
        await spooled(tmp_path, batch([(1, 0, value, 0), *((c, n, float(n), 0) for c in range(2, 42))]), name="push")
        await until(lambda at_least=40 * (n + 1) + 1: _written(writer, at_least))
    writer.drain()
    await asyncio.wait_for(running, PATIENCE)
    written = [REGISTRY.get_sample_value("plantlog_written_rows_total", {"method": m}) or 0.0 for m in _METHODS]
    assert [now - before for now, before in zip(written, at_start, strict=True)] == [1 + 40 * 11, 40]
    assert [row for row in await stored(owner) if row[0] == 1] == [(1, 0, "nan", 0)]
    conflicts = await owner.fetch(
        "SELECT detail ->> 'refused_value' FROM plant.event WHERE type = 'conflict' ORDER BY id"
    )
    assert sorted(row[0] for row in conflicts) == sorted(repr(float(n)) for n in range(6, 12))


async def _written(writer: Writer, at_least: int) -> bool:
    return writer.written >= at_least


async def test_batch_facts(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    await spooled(tmp_path, batch([(1, 5, 1.0, 0), (1, 9, 1.0, 0)]), name="modbus")
    await spooled(tmp_path, batch([(2, 7, 1.0, 0)], source_id=2), name="opcua")
    await drained(Writer(tmp_path, database.ingest_dsn, WriterOptions()))
    facts = await owner.fetch(
        "SELECT source_id, rows, first_time, last_time, received_at, written_at FROM plant.ingest_batch ORDER BY 1"
    )
    assert [tuple(f)[:5] for f in facts] == [
        (1, 2, timestamp(T0 + 5), timestamp(T0 + 9), timestamp(T0)),
        (2, 1, timestamp(T0 + 7), timestamp(T0 + 7), timestamp(T0)),
    ]
    assert all(f["written_at"] is not None for f in facts)


async def test_the_newest_source_state_wins(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    states = [
        Event("source_state", T0 + 2, text="disconnected", detail={"reason": "refused"}),
        Event("source_state", T0 + 1, text="connected"),
    ]
    await spooled(tmp_path, EventBatch(1, T0, states))
    await drained(Writer(tmp_path, database.ingest_dsn, WriterOptions()))
    row = await owner.fetchrow("SELECT state, state_since, reason FROM plant.source WHERE id = 1")
    assert row is not None
    assert tuple(row) == ("disconnected", timestamp(T0 + 2), "refused")


async def test_another_reason_is_not_another_state(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    states = [
        Event("source_state", T0, text="disconnected", detail={"reason": "closed"}),
        Event("source_state", T0 + 2, text="disconnected", detail={"reason": "not trusted", "since": T0}),
    ]
    await spooled(tmp_path, EventBatch(1, T0, states))
    await drained(Writer(tmp_path, database.ingest_dsn, WriterOptions()))
    row = await owner.fetchrow("SELECT state, state_since, reason FROM plant.source WHERE id = 1")
    assert row is not None
    assert tuple(row) == ("disconnected", timestamp(T0), "not trusted")


async def test_many_connections_lose_nothing(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    writer = Writer(tmp_path, database.ingest_dsn, WriterOptions(connections=4, max_rows=1000))
    running = asyncio.create_task(writer.run())
    spools = [Spool(tmp_path / f"{name}.sqlite", 512 * MIB) for name in ("opcua", "modbus")]
    await asyncio.gather(
        *(
            spools[i % 2].append(batch([(c, i, float(i), 0) for c in range(100)], source_id=1 + i % 2))
            for i in range(200)
        )
    )
    await until(lambda: _all_written(owner, 20_000))
    writer.drain()
    await asyncio.wait_for(running, PATIENCE)
    for spool in spools:
        assert await spool.depth() == (0, 0)
        await spool.close()


async def _all_written(owner: asyncpg.Connection, rows: int) -> bool:
    return bool(await owner.fetchval("SELECT count(*) FROM plant.samples_raw") == rows)


async def test_backends_killed_while_writing(database: Database, owner: asyncpg.Connection, tmp_path: Path) -> None:
    """pg_terminate_backend again and again: every row arrives, once."""
    for i in range(40):
        await spooled(tmp_path, batch([(c, i, float(i), 0) for c in range(100)]))
    writer = Writer(tmp_path, database.ingest_dsn, WriterOptions(connections=2, max_rows=1000))
    running = asyncio.create_task(writer.run())
    kills = 0

    async def killed_and_done() -> bool:
        nonlocal kills
        kills += await owner.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE application_name = 'plantlog writer' AND $1",
            kills < 6,
        )
        return kills >= 6 and await _all_written(owner, 4000)

    await until(killed_and_done)
    writer.drain()
    await asyncio.wait_for(running, PATIENCE)
    assert Spooled(tmp_path / "opcua.sqlite").depth() == (0, 0)


def _live(at: int, channel: int = 90, rows: int = 1) -> SampleBatch:
    return replace(batch([(channel, at + i, 1.0, 0) for i in range(rows)], source_id=2), received_at=now_us())


async def _histories(folder: Path, batches: int) -> None:
    spool = Spool(folder / "opcua.backfill.sqlite", 512 * MIB)
    for k in range(batches):
        await spool.append(batch([(c, 1000 * k + t, 0.5, 0) for c in range(10) for t in range(300)]))
    await spool.close()


async def test_history_is_written_when_nothing_else_waits(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    await _histories(tmp_path, 60)
    for channel, name in ((90, "modbus"), (91, "push")):  # before and behind it in the alphabet
        await spooled(tmp_path, *(_live(400 * i, channel, 400) for i in range(10)), name=name)
    await drained(Writer(tmp_path, database.ingest_dsn, WriterOptions(connections=1, max_rows=1000)))
    transactions = await owner.fetch(
        "SELECT array_agg(DISTINCT source_id) AS sources, sum(rows)::int AS rows, min(written_at) AS at"
        " FROM plant.ingest_batch GROUP BY xmin::text ORDER BY at"
    )
    sources = [t["sources"] for t in transactions]
    live = sources.count([2])
    assert live > 1
    assert sources == [[2]] * live + [[1]] * 60, "live first, and never together"
    assert await owner.fetchval("SELECT count(*) FROM plant.samples_raw WHERE channel_id < 10") == 180_000


async def test_future_sample_does_not_affect_the_lag(database: Database, tmp_path: Path) -> None:
    three_years = 3 * 365 * 86_400_000_000
    await spooled(tmp_path, replace(batch([(1, now_us() - T0 + three_years, 1.0, 0)]), received_at=now_us()))
    writer = Writer(tmp_path, database.ingest_dsn, WriterOptions(future_limit=1e9))
    await drained(writer)
    assert writer.lag_seconds is not None
    assert 0 <= writer.lag_seconds < PATIENCE


@pytest.mark.parametrize("connections", [1, 3])
async def test_history_does_not_delay_live_data(
    database: Database, owner: asyncpg.Connection, tmp_path: Path, connections: int
) -> None:
    await _histories(tmp_path, 160)
    writer = Writer(tmp_path, database.ingest_dsn, WriterOptions(connections=connections))
    running = asyncio.create_task(writer.run())
    spool = Spool(tmp_path / "opcua.sqlite", 512 * MIB)
    durable: list[datetime] = []
    for at in range(5):
        lag = writer.lag_seconds
        await spool.append(_live(at))
        durable.append(datetime.now(UTC))
        await until(lambda lag=lag: writer.lag_seconds != lag)
        assert await _has_live(owner, at + 1)
    lag = writer.lag_seconds
    writer.drain()
    await asyncio.wait_for(running, PATIENCE)
    await spool.close()
    assert await owner.fetchval("SELECT count(*) FROM plant.samples_raw WHERE channel_id < 10") == 480_000
    assert writer.lag_seconds == lag, "history is late by nature"
    rows = await owner.fetchval(
        "SELECT max(t.sum) FROM (SELECT sum(rows) FROM plant.ingest_batch GROUP BY xmin::text) AS t"
    )
    assert rows == 48_000, "as many of its batches as are not more than 50,000 rows"
    # Between being in the spool and being written a live batch waits for what was at work, and what was just taken.
    waited = await owner.fetchval(
        "SELECT max(n) FROM (SELECT spooled.place, count(DISTINCT history.xmin::text) AS n"
        " FROM unnest($1::timestamptz[]) WITH ORDINALITY AS spooled (at, place)"
        " JOIN (SELECT row_number() OVER (ORDER BY b.sequence) AS place, b.written_at"
        "  FROM plant.ingest_batch AS b WHERE b.source_id = 2) AS live USING (place)"
        " JOIN plant.ingest_batch AS history ON history.source_id = 1"
        "  AND history.written_at BETWEEN spooled.at AND live.written_at"
        " GROUP BY spooled.place) AS t",
        durable,
    )
    assert (waited or 0) <= 2


async def _has_live(owner: asyncpg.Connection, rows: int) -> bool:
    return bool(await owner.fetchval("SELECT count(*) FROM plant.samples_raw WHERE channel_id = 90") == rows)
