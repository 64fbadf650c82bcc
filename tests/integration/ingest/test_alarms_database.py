"""Alarms in the database: the newest record of each wins in whatever order they come; what people hear is queued."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pytest

from core.batch import Event, EventBatch
from core.config.load import load
from core.config.model import WriterOptions
from core.paths import CHECKOUT, State
from core.timestamps import timestamp
from ingest.alarms import checkpoint
from ingest.alarms.channel import AlarmChange
from ingest.alarms.columns import AlarmColumns
from ingest.alarms.limits import limits_of
from ingest.writer.writer import Writer
from ops.registration.register import register
from tests.alarms import SOURCE, batches
from tests.database import Database, add_sources
from tests.samples import T0
from tests.spooling import drained, spooled

MIB = 1024**2


@pytest.fixture
async def registered_channels(owner: asyncpg.Connection) -> None:
    await add_sources(owner, "plc", kind="modbus")
    await owner.executemany(
        "INSERT INTO plant.channel (id, name, source_id, address, kind, unit) OVERRIDING SYSTEM VALUE"
        " VALUES ($1, $2, 1, '', 'analog', 'm')",
        [(number, tag.name) for number, tag in enumerate(SOURCE.tags, 1)],
    )


def changes(seed: int) -> list[AlarmChange]:
    columns = AlarmColumns({number: limits_of(tag) for number, tag in enumerate(SOURCE.tags, 1)}, T0)
    return [change for batch in batches(seed) for change in columns.evaluate(batch)]


async def written(folder: Path, database: Database, parts: Sequence[Sequence[Event]]) -> None:
    await spooled(folder, *(EventBatch(1, T0, part) for part in parts))
    writer = await drained(Writer(folder, database.ingest_dsn, WriterOptions(connections=3, max_rows=1000)))
    assert writer.quarantined == 0


@pytest.mark.usefixtures("registered_channels")
async def test_newest_alarm_state_wins_in_any_order(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    all_changes = changes(7)
    events = [checkpoint.to_event(change) for change in all_changes]
    shuffled = random.Random(7).sample(events, len(events))
    parts = [shuffled[i : i + 9] for i in range(0, len(shuffled), 9)]
    await written(tmp_path / "1", database, parts)
    await written(tmp_path / "2", database, parts[: len(parts) // 2])  # a replay
    newest = {(change.channel_id, change.limit.name): change for change in all_changes}
    rows = await owner.fetch("SELECT * FROM plant.alarm ORDER BY channel_id, limit_name")
    assert [(r["channel_id"], r["limit_name"]) for r in rows] == sorted(newest)
    for row in rows:
        change = newest[row["channel_id"], row["limit_name"]]
        after = change.after
        assert (row["state"], row["active"], row["revision"]) == (after.state, after.active, after.revision)
        assert (row["since"], row["value"], row["changed_at"]) == (
            timestamp(after.since),
            after.value,
            timestamp(change.at),
        )
    assert await owner.fetchval("SELECT count(*) FROM plant.event WHERE type = 'alarm'") == len(events)
    counted = await owner.fetchval("SELECT sum(n) FROM plant.event_count_1m WHERE type = 'alarm'")
    assert counted == len(events), "new ones only, by minute and channel"
    queued = await owner.fetch("SELECT kind, count(*) AS n FROM plant.alarm_notice GROUP BY kind")
    assert {r["kind"]: r["n"] for r in queued} == {
        "alarm": sum(change.action == "raised" for change in all_changes),
        "return": sum(change.action == "returned" for change in all_changes),
    }


@pytest.mark.usefixtures("registered_channels")
async def test_operator_actions_are_stored_and_shelved_alarms_not_notified(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    columns = AlarmColumns({1: limits_of(SOURCE.tags[0])}, T0)
    found: list[AlarmChange] = []

    def sample(at: int, value: float) -> None:
        found.extend(columns.apply_command(1, lambda channel: channel.sample(T0 + at, value, False, T0 + at)))

    def hi(action: str, at: int, *more: Any) -> None:
        def do(channel: Any) -> list[AlarmChange]:
            return getattr(channel, action)(channel.monitors[2], T0 + at, *more)  # type: ignore[no-any-return]

        found.extend(columns.apply_command(1, do))

    sample(1, 8.5)
    hi("acknowledge", 2, "ann")
    sample(3, 5.0)
    hi("inhibit", 4, "shelved", "bob\0", "valve \U0001f527", T0 + 3_600_000_000)
    sample(5, 8.5)
    sample(6, 9.5)
    events = [checkpoint.to_event(change) for change in found]
    await written(tmp_path, database, [events])
    row = await owner.fetchrow("SELECT * FROM plant.alarm_inhibited")
    assert row is not None
    assert (row["channel"], row["limit_name"], row["state"], row["active"]) == ("a/level", "hi", "shelved", True)
    assert (row["who"], row["why"], row["shelved_until"]) == ("bob␀", "valve \U0001f527", timestamp(T0 + 3_600_000_000))
    active = await owner.fetch(
        "SELECT channel, limit_name, state, value, unit, priority, plant_unit FROM plant.alarm_active"
    )
    assert [tuple(r) for r in active] == [("a/level", "hihi", "unacknowledged_active", 9.5, "m", "medium", "a")]
    told = await owner.fetch("SELECT kind, limit_name FROM plant.alarm_notice ORDER BY event_time")
    assert [tuple(r) for r in told] == [("alarm", "hi"), ("return", "hi"), ("alarm", "hihi")]
    history = await owner.fetch(
        "SELECT detail ->> 'action' AS action, detail ->> 'who' AS who FROM plant.event WHERE type = 'alarm'"
        " AND detail ->> 'limit' = 'hi' ORDER BY time"
    )
    assert [tuple(r) for r in history] == [
        ("raised", None), ("acknowledged", "ann"), ("returned", "ann"), ("shelved", "bob␀"), ("raised", "bob␀"),
    ]  # fmt: skip


async def test_reader_can_read_alarms(reader: asyncpg.Connection) -> None:
    for relation in ("alarm", "alarm_active", "alarm_inhibited", "alarm_limit", "notification", "alarm_notice"):
        assert await reader.fetch(f"SELECT * FROM plant.{relation}") == []


async def test_alarm_limits_of_the_tag_lists_are_in_the_database(
    database: Database, reader: asyncpg.Connection, tmp_path: Path
) -> None:
    golden = CHECKOUT / "tests" / "unit" / "golden" / "config" / "alarms"
    await register(load(golden / "plant.toml"), database.owner_dsn, State(tmp_path))
    rows = await reader.fetch("SELECT channel, limit_name, threshold, deadband, priority FROM plant.alarm_limit")
    level = [("lolo", 1.0), ("lo", 2.0), ("hi", 8.0), ("hihi", 9.0), ("rate", 0.25), ("stale", 60.0), ("bad", 0.0)]
    assert sorted(map(tuple, rows)) == sorted(
        [
            *(("a/level", name, threshold, 0.5, "critical") for name, threshold in level),
            ("a/flow", "hi", 8.0, 0.0, "medium"),
            ("a/silent", "stale", 300.0, 0.0, "low"),
        ]
    )


def test_test_series_contains_every_case() -> None:
    actions = changes(7)
    assert {change.action for change in actions} == {"raised", "returned"}
    assert {change.limit.name for change in actions} == {"lolo", "lo", "hi", "hihi", "bad"}
    assert np.isfinite([change.after.value or 0.0 for change in actions]).all()
