"""Conditions in the database: one row an event, whichever member sends it; the alarm list; what people hear."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg

from core.batch import Event, EventBatch
from core.config.model import WriterOptions
from core.time_limits import NO_LIMITS
from core.timestamps import timestamp
from ingest.alarms import checkpoint
from ingest.alarms.channel import AlarmChange
from ingest.alarms.conditions import Conditions
from ingest.alarms.limits import Limit
from ingest.alarms.server_event import ServerEvent
from ingest.alarms.state import Alarm, raised
from ingest.spool.format import SpooledBatch
from ingest.writer.pair.lookup import Lookup
from ingest.writer.writer import Writer
from schema.queries import load
from tests.database import Database, add_channels, add_sources
from tests.samples import T0
from tests.spooling import drained, spooled


def events(comment: str) -> list[Event]:
    """Two conditions of one name, one of a channel; both raised, one returned."""
    conditions = Conditions("plc", 1, {})
    found: list[Event] = []
    for number, (node, channel, active) in enumerate([("s=a", 1, True), ("s=b", None, True), ("s=a", 1, False)]):
        event = ServerEvent(
            event_id=f"{number:04x}",
            time=T0 + number,
            source_name="Tank",
            message=f"message {number}",
            severity=900,
            condition_id=node,
            condition_name="hi",
            retain=True,
            active=active,
            acked=False,
            comment=comment,
        )
        row, _ = conditions.record(event, channel, T0 + number)
        assert row is not None
        found.append(row)
    return found


async def written(folder: Path, database: Database, *batches: list[Event]) -> None:
    await spooled(folder, *(EventBatch(1, T0, batch) for batch in batches))
    writer = await drained(Writer(folder, database.ingest_dsn, WriterOptions(connections=2)))
    assert writer.quarantined == 0


async def test_events_of_two_members_are_one(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    await add_sources(owner, "plc", kind="opcua")
    await add_channels(owner, [1])
    [name] = [row["name"] for row in await owner.fetch("SELECT name FROM plant.channel")]
    await written(tmp_path / "1", database, events("one member"))
    await written(tmp_path / "2", database, events("the other member"))
    assert await owner.fetchval("SELECT count(*) FROM plant.event WHERE type = 'alarm'") == 3
    listed = await owner.fetch(
        "SELECT channel, limit_name, state, active, since, priority, channel_id FROM plant.alarm_active"
    )
    assert [tuple(row) for row in listed] == [
        (name, "hi", "return_to_normal_unacknowledged", False, timestamp(T0 + 2), "critical", 1),
        ("plc/Tank", "hi", "unacknowledged_active", True, timestamp(T0 + 1), "critical", None),
    ]
    notices = await owner.fetch(load("alarms")["select_pending_notices"], None, 60.0, 10)
    assert sorted((row["kind"], row["channel"], row["limit"], row["state_now"]) for row in notices) == sorted(
        [
            ("alarm", name, "hi", "return_to_normal_unacknowledged"),
            ("alarm", "plc/Tank", "hi", "unacknowledged_active"),
            ("return", name, "hi", "return_to_normal_unacknowledged"),
        ]
    )
    assert {row["message"] for row in notices} == {"message 1", "message 2"}


async def test_lookup_knows_alarms_of_limits_and_conditions_apart(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    """A report of an alarm whose state the database has, or a newer one, is dropped; with the same names, too."""
    await add_sources(owner, "plc", kind="opcua")
    await add_channels(owner, [1])
    limit = Limit("hi", 8.0, 8.0, 0, 0, "high", False)
    alarm = raised(Alarm(), T0, 9.0)
    of_limit = checkpoint.to_event(AlarmChange(1, limit, T0, "raised", Alarm(), alarm, T0))
    raised_again, other, returned = events("")
    await written(tmp_path, database, [of_limit, raised_again, other, returned])
    newer = replace(returned, detail={**returned.detail, "revision": T0 + 9, "state": "normal"})
    elsewhere = replace(other, detail={**other.detail, "condition_key": "s=\0"})
    of_other_channel = replace(of_limit, channel_id=2)
    reports = [of_limit, raised_again, other, returned, newer, elsewhere, of_other_channel]
    batches = [
        SpooledBatch(sequence=number, first_time=T0, last_time=T0, batch=EventBatch(1, T0, [event]))
        for number, event in enumerate(reports)
    ]
    lookup = Lookup(NO_LIMITS, 2, owner.fetch)
    assert await lookup.changed(batches, list(enumerate(reports))) == {4, 5, 6}
