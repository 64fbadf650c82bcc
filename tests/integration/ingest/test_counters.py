"""Counters against a real TimescaleDB: event_count_1m equals what was sent, whatever is killed, replayed or doubled."""

from __future__ import annotations

import asyncio
import random
import re
import shutil
from asyncio.subprocess import Process
from collections import Counter
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import pytest
from prometheus_client import REGISTRY

from core.batch import MAX_INCREMENT, Batch, Event, EventBatch, Gap, GapBatch
from core.config import token_file
from core.config.model import WriterOptions
from core.database import connect_writer
from core.paths import State
from core.time_limits import TimeLimits
from core.timestamps import MINUTE_US, microseconds, now_us
from ingest.spool.append import Spool
from ingest.spool.format import SpooledBatch
from ingest.writer.transaction.group import assemble
from ingest.writer.transaction.write import RepeatingChannels, write
from ingest.writer.writer import Writer
from ops.spool.retry import retry
from tests import children
from tests.config_in_force import activate
from tests.database import Database, add_channels, add_sources
from tests.ports import free_ports
from tests.sample_tables import compress
from tests.samples import T0, batch, count_batch
from tests.spooling import drained, spooled
from tests.states import claimed
from tests.waiting import until

MIB = 1024**2
MINUTE = T0 // MINUTE_US * MINUTE_US - T0  # µs since T0 of the minute that T0 is in
BAD, UNCERTAIN = 0x80050000, 0x40000000

Cell: TypeAlias = tuple[int, str, int]  # µs since T0, type, channel


@pytest.fixture(autouse=True)
async def registered_channels(owner: asyncpg.Connection) -> None:
    await add_sources(owner, "a")
    await add_channels(owner, range(1, 101))


async def written(folder: Path, database: Database, options: WriterOptions | None = None) -> Writer:
    return await drained(Writer(folder, database.ingest_dsn, options or WriterOptions()))


async def counted(owner: asyncpg.Connection[Any]) -> dict[Cell, int]:
    rows = await owner.fetch("SELECT bucket, type, channel_id, n FROM plant.event_count_1m")
    return {(microseconds(r["bucket"]) - T0, r["type"], r["channel_id"]): r["n"] for r in rows}


def added(of: str) -> float:
    return REGISTRY.get_sample_value("plantlog_increments_total", {"of": of}) or 0


async def test_repeated_events_and_samples_count_once(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    samples = batch([(1, 0, 0.0, BAD), (1, 1, 0.0, UNCERTAIN), (1, 2, 1.5, 0), (2, 0, 0.0, BAD), (2, 1, 0.0, BAD)])
    events = EventBatch(1, T0, (Event("channel_state", T0, 1, text="bad"), Event("source_state", T0, text="degraded")))
    before = [added(of) for of in ("events", "quality", "counts")]
    # Each spool has sequences of its own: a source that sends all again.
    for attempt in ("first", "again", "and again"):
        await spooled(tmp_path / attempt, samples, events, samples)
        await written(tmp_path / attempt, database)
    # By the staging table only what is new: of these four a bad one that is there and one that is not.
    await spooled(tmp_path / "more", batch([(1, 2, 1.5, 0), (2, 0, 0.0, BAD), (2, 2, 0.0, BAD), (3, 0, 7.0, 0)]))
    writer = await written(tmp_path / "more", database)
    assert writer.written == 2
    assert await counted(owner) == {
        (MINUTE, "bad_quality", 1): 1,
        (MINUTE, "bad_quality", 2): 3,
        (MINUTE, "uncertain_quality", 1): 1,
        (MINUTE, "channel_state", 1): 1,
        (MINUTE, "source_state", 0): 1,
    }
    after = [added(of) for of in ("events", "quality", "counts")]
    assert [new - old for old, new in zip(before, after, strict=True)] == [2, 5, 0]


async def test_a_conflict_is_an_event_and_not_a_second_bad_sample(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    for attempt in ("first", "again"):
        await spooled(tmp_path / attempt, batch([(1, 0, 1.0, 0)]), batch([(1, 0, 0.0, BAD)]))
        await written(tmp_path / attempt, database, WriterOptions(max_rows=1000))
    assert await counted(owner) == {(MINUTE, "conflict", 1): 1}


async def test_replay_into_a_packed_hour_counts_nothing(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    samples = batch([(1, i * 1000, 0.0, BAD) for i in range(50)])
    await spooled(tmp_path / "first", samples)
    await written(tmp_path / "first", database)
    await compress(owner)
    if await owner.fetchval("SELECT count(*) FROM plant.samples_packed"):
        assert await owner.fetchval("SELECT count(*) FROM plant.samples_raw") == 0
    late = batch([(1, 7, 0.0, BAD)])
    await spooled(tmp_path / "again", samples, late)
    await written(tmp_path / "again", database)
    assert await counted(owner) == {(MINUTE, "bad_quality", 1): 51}


async def test_replayed_spool_adds_no_counts(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    """As after a crash between the commit and the spool's delete: the same batches under the same sequences."""
    batches = [count_batch([(i * MINUTE_US, "pulses.n", 1, 3), (0, "alarms.high", 0, 1)]) for i in range(40)]
    await spooled(tmp_path / "first", *batches)
    shutil.copytree(tmp_path / "first", tmp_path / "again")
    first = await written(tmp_path / "first", database)
    await spooled(tmp_path / "again", count_batch([(0, "pulses.n", 1, 100)]))
    again = await written(tmp_path / "again", database)
    assert (first.increments, again.increments) == (80, 1)
    found = await counted(owner)
    assert found.pop((MINUTE, "pulses.n", 1)) == 103
    assert found.pop((MINUTE, "alarms.high", 0)) == 40
    assert found == {(MINUTE + i * MINUTE_US, "pulses.n", 1): 3 for i in range(1, 40)}


async def test_repeated_body_digest_is_refused_from_any_spool(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    one, other = count_batch([(0, "pulses.n", 1, 1)], digest=-7), count_batch([(0, "pulses.n", 1, 10)], digest=-8)
    for attempt in ("first", "again"):
        await spooled(tmp_path / attempt, one, one, other)
        await written(tmp_path / attempt, database)
    assert await counted(owner) == {(MINUTE, "pulses.n", 1): 11}
    facts = await owner.fetch("SELECT sequence, kind, rows FROM plant.ingest_batch ORDER BY 1")
    assert [tuple(fact) for fact in facts] == [(-8, "counts", 1), (-7, "counts", 1)]


async def test_refused_counts_are_quarantined_and_the_rest_is_written(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    """A sum that no bigint holds, a text that is none, and a time limit; all are tried again later."""
    state = claimed(tmp_path / "state", owner=database.owner_dsn)
    await owner.execute(
        "INSERT INTO plant.event_count_1m VALUES (to_timestamp($1), 'full', 1, 9223372036854775807)",
        (T0 + MINUTE) // 1_000_000,
    )
    day = 86_400_000_000
    good = [(i * MINUTE_US, "pulses.n", c, 1) for i in range(5) for c in range(20)]
    bad = [(0, "full", 1, MAX_INCREMENT), (3, "a\0b", 2, 5), (2 * day, "early", 3, 6)]
    for attempt in ("first", "again"):
        batches = count_batch([*good, *bad], digest=-3), count_batch([(0, "other", 0, 2)], digest=-4)
        await spooled(tmp_path / attempt, *batches)
        await written(tmp_path / attempt, database)
    expected: Counter[Cell] = Counter({(MINUTE + t, kind, c): n for t, kind, c, n in good})
    expected[MINUTE, "full", 1] = 2**63 - 1
    expected[MINUTE, "other", 0] = 2
    assert await counted(owner) == expected
    kept = await owner.fetch("SELECT reason, channel_id, time_us, detail->>'sqlstate' AS state FROM plant.quarantine")
    assert sorted((r["channel_id"], r["reason"], r["time_us"] - T0, r["state"]) for r in kept) == [
        (1, "refused", MINUTE, "22003"),
        (2, "refused", MINUTE, "22021"),
        (3, "future", 2 * day, None),
    ]
    await owner.execute("UPDATE plant.event_count_1m SET n = 1 WHERE type = 'full'")
    for _ in range(2):
        counts = await asyncio.to_thread(retry, state, True)
        assert (counts["refused"], counts["outside_limits"]) == (1, 0)
    expected[MINUTE, "full", 1] = 1 + MAX_INCREMENT
    expected[(T0 + 2 * day) // MINUTE_US * MINUTE_US - T0, "early", 3] = 6
    assert await counted(owner) == expected


def _same_rows(what: str, turn: int, number: int, own: random.Random) -> Batch:
    """A batch that each connection has, in an order of its own."""
    if what == "counts":
        increments = [(c * MINUTE_US, f"type{k}", c, 1) for k in range(60) for c in range(20)]
        return count_batch(own.sample(increments, len(increments)), source_id=number)
    if what == "gaps":
        gaps = [Gap(T0 + c, T0 + c + turn, "stale", (c, c + 1)) for c in range(1, 60)]
        return GapBatch(1, T0 + 1000 * turn + number, own.sample(gaps, len(gaps)))
    events = [Event("trip", T0 + turn, c, text=str(c)) for c in range(600)]
    return EventBatch(1, T0, own.sample(events, len(events)))


@pytest.mark.parametrize("what", ["counts", "events", "gaps", "states"])
async def test_concurrent_writes_of_the_same_rows_do_not_deadlock(
    database: Database, owner: asyncpg.Connection[Any], what: str
) -> None:
    """Six connections at once, the same rows in an order of each one's own."""
    connections, turns = 6, 12
    limits = TimeLimits(86400.0, 3650 * 86400.0)
    opened = [await connect_writer(database.ingest_dsn, 60.0) for _ in range(connections)]
    together = asyncio.Barrier(connections)
    await owner.execute(
        "INSERT INTO plant.source (id, name, kind, address) OVERRIDING SYSTEM VALUE"
        " SELECT i, 's' || i, 'push', '' FROM generate_series(2, 50) i"
    )

    async def adds(number: int) -> None:
        own = random.Random(number)
        for turn in range(turns):
            batches = [_same_rows(what, turn, number, own)]
            if what == "states":
                states = (Event("source_state", T0 + 100 * turn + number, text="connected"),)
                batches = [EventBatch(source, T0, states) for source in own.sample(range(2, 51), 49)]
            taken = [SpooledBatch(turn, T0, T0, one) for one in batches]
            group = assemble([(Path("x"), taken)], limits)
            await together.wait()
            await write(opened[number], group, taken if what == "counts" else (), RepeatingChannels())

    await asyncio.gather(*(adds(number) for number in range(connections)))
    for connection in opened:
        await connection.close()
    assert await owner.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
    found = Counter(kind.rstrip("0123456789") for _, kind, _ in await counted(owner))
    of_each = set((await counted(owner)).values())
    if what == "counts":
        assert (found, of_each) == ({"type": 1200}, {connections * turns})
    elif what == "events":
        assert (found, of_each) == ({"trip": 600}, {turns})
    elif what == "states":
        assert (found, of_each) == ({"source_state": 1}, {49 * connections * turns})
    else:
        assert await owner.fetchval("SELECT count(*) FROM plant.gap") == 118


async def test_count_views_show_names_and_hours(
    database: Database, reader: asyncpg.Connection, owner: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    hour = 60 * MINUTE_US
    increments = [(0, "pulses.n", 1, 2), (hour, "pulses.n", 1, 3), (hour + MINUTE_US, "pulses.n", 1, 4)]
    await spooled(tmp_path, count_batch([*increments, (0, "alarms.high", 0, 1)]))
    await written(tmp_path, database)
    named = await reader.fetch(
        "SELECT type, channel, source, sum(n)::int FROM plant.event_count_named GROUP BY 1, 2, 3"
    )
    assert sorted(tuple(row) for row in named) == [("alarms.high", None, None, 1), ("pulses.n", "c1", "a", 9)]
    hours = await reader.fetch("SELECT bucket, type, n FROM plant.event_count_1h ORDER BY 1, 2")
    first = (T0 // hour) * hour
    assert [(microseconds(r["bucket"]) - first, r["type"], r["n"]) for r in hours] == [
        (0, "alarms.high", 1),
        (0, "pulses.n", 2),
        (hour, "pulses.n", 7),
    ]


async def test_count_hours_read_only_their_chunk(database: Database, owner: asyncpg.Connection[Any]) -> None:
    times = "generate_series(TIMESTAMPTZ '2026-01-01Z', '2026-03-01Z', '1 hour')"
    await owner.execute(f"INSERT INTO plant.event_count_1m SELECT t, 'a', 0, 1 FROM {times} AS t")
    query = "SELECT * FROM plant.event_count_1h WHERE bucket >= '2026-02-20Z' AND bucket < '2026-02-21Z'"
    assert len(await owner.fetch(query)) == 24
    plan = "\n".join(row[0] for row in await owner.fetch(f"EXPLAIN (COSTS OFF) {query}"))
    assert len(set(re.findall(r"_hyper_\d+_\d+_chunk", plan))) == 1, plan


# Killed


def writer_process(state: State) -> AbstractAsyncContextManager[Process]:
    """The writer as the supervisor starts it; killed behind the block."""
    activate(state.root, state.root / "plant.toml")
    return children.running("ingest", "writer", "--state", state.root)


class Stream:
    """Batches of counts, events and samples without end, some of them twice; and what the table must hold of them."""

    def __init__(self, spool: Spool) -> None:
        self.expected: Counter[Cell] = Counter()
        self.sent = 0
        self._spool = spool
        self._random = random.Random(7)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await asyncio.gather(*(self._spool.append(new_batch) for _ in range(5) for new_batch in self._next()))
            await asyncio.sleep(0.005)

    def _next(self) -> list[Batch]:
        self.sent += 1
        at, rolled = self.sent * 1000, self._random
        minute = (T0 + at) // MINUTE_US * MINUTE_US - T0
        increments = [
            (at, f"alarms.a{rolled.randrange(30)}", rolled.randrange(5), rolled.randrange(9)) for _ in range(200)
        ]
        digest = -self.sent if rolled.random() < 0.5 else None
        for _, kind, channel, n in increments:
            self.expected[minute, kind, channel] += n
        samples = [(c, at, 0.0, BAD if rolled.random() < 0.3 else 0) for c in range(1, 20)]
        for channel, _, _, status in samples:
            if status:
                self.expected[minute, "bad_quality", channel] += 1
        event = Event("trip", T0 + at, rolled.randrange(1, 5), text=str(self.sent))
        self.expected[minute, "trip", event.channel_id or 0] += 1
        counts = count_batch(increments, digest=digest)
        once: list[Batch] = [counts, batch(samples), EventBatch(1, T0, (event,))]
        twice = [b for b in once if (b is not counts or digest is not None) and rolled.random() < 0.4]
        return [replace(b, received_at=now_us()) for b in (*once, *twice)]


@pytest.mark.slow
async def test_counts_are_exact_over_repeated_kills(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    """SIGKILL of the writer, its backends terminated, its spool put back: counts are those of the stream."""
    state = claimed(tmp_path / "state", ingest=database.ingest_dsn)
    token_file.write(state.root / "edge.token", "token-of-edge-gateway")
    (state.root / "plant.toml").write_text(
        f'[plant]\nname = "demo"\n[health]\nport = {free_ports(5)}\n[writer]\nmax_rows = 5000\n'
        '[[source]]\nname = "edge"\nkind = "push"\ntoken_file = "edge.token"\nunknown = "create"\n'
    )
    spool = Spool(state.spool / "push.sqlite", 512 * MIB)
    stream, stop = Stream(spool), asyncio.Event()
    feeding = asyncio.create_task(stream.run(stop))
    for turn in range(4):
        before = await facts(owner)
        async with writer_process(state):
            for part in range(1, 4):
                await until(lambda n=before + part * 20: has_facts(owner, n))
                if turn % 2:
                    await owner.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE application_name = 'plantlog writer' AND datname = current_database()"
                    )
    stop.set()
    await feeding
    await spool.close()
    shutil.copytree(state.spool, tmp_path / "copy", ignore=shutil.ignore_patterns("*.wake"))
    async with writer_process(state):
        probe = Spool(state.spool / "push.sqlite", 512 * MIB)

        async def empty() -> bool:
            return (await probe.depth())[0] == 0

        await until(empty)
        await probe.close()
    await written(tmp_path / "copy", database)
    expected = {cell: n for cell, n in stream.expected.items() if n or cell in await counted(owner)}
    assert stream.sent > 100
    assert await counted(owner) == expected
    assert await owner.fetchval("SELECT count(*) FROM plant.quarantine") == 0


async def facts(owner: asyncpg.Connection[Any]) -> int:
    return int(await owner.fetchval("SELECT count(*) FROM plant.ingest_batch"))


async def has_facts(owner: asyncpg.Connection[Any], n: int) -> bool:
    return await facts(owner) >= n
