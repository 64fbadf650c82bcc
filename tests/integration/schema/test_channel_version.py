"""Versions of channels by time: samples from before a change keep their unit and name."""

from __future__ import annotations

import json
import re

import asyncpg

from tests.database import Database, add_channels, add_sources, rows

_SOURCE = "INSERT INTO plant.source (name, kind, address) VALUES ('plc', 'modbus', '')"
_CHANNEL = (
    "INSERT INTO plant.channel (name, source_id, address, kind, unit) VALUES ('a', 1, 'holding:0', 'analog', '°C')"
)
_NAMED = "SELECT name, unit, value FROM plant.samples_named ORDER BY time"


async def test_samples_keep_the_unit_and_name_that_they_were_stored_under(
    database: Database, owner: asyncpg.Connection
) -> None:
    await owner.execute(f"{_SOURCE}; {_CHANNEL}")
    await owner.execute("INSERT INTO plant.samples_raw VALUES (now() - INTERVAL '1 day', 44.6, 1, 0)")
    await owner.execute("UPDATE plant.channel SET unit = 'K', name = 'b'")
    await owner.execute("INSERT INTO plant.samples_raw VALUES (now() + INTERVAL '1 second', 317.75, 1, 0)")
    assert await rows(database, _NAMED) == [("a", "°C", 44.6), ("b", "K", 317.75)]


async def test_each_change_is_an_event_and_a_version(database: Database, owner: asyncpg.Connection) -> None:
    await owner.execute(f"{_SOURCE}; {_CHANNEL}")
    await owner.execute("UPDATE plant.channel SET unit = 'K', attributes = '{\"alarm_hi\": 90}'")
    await owner.execute("UPDATE plant.channel SET unit = 'K'")  # the same: nothing
    await owner.execute("UPDATE plant.channel SET retired_at = '2026-03-01Z'")  # an event, and the same meaning
    await owner.execute("UPDATE plant.source SET state = 'connected', address = 'tcp://other'")
    await owner.execute("UPDATE plant.retention_class SET raw = INTERVAL '7 days'")
    assert await rows(
        database,
        "SELECT v.unit, v.attributes::text, v.valid_from = '-infinity', v.valid_to = 'infinity',"
        " lead(v.valid_from) OVER (ORDER BY v.valid_from) = v.valid_to"
        " FROM plant.channel_version AS v ORDER BY v.valid_from",
    ) == [("°C", "{}", True, False, True), ("K", '{"alarm_hi": 90}', False, True, None)]
    events = await rows(database, "SELECT type, channel_id, text, detail::text FROM plant.event ORDER BY time")
    assert [row[:3] for row in events] == [
        ("channel_changed", 1, "alarm_hi none → 90, unit °C → K"),
        ("channel_changed", 1, "retired_at none → 2026-03-01T00:00:00+00:00"),
        ("source_changed", None, "address none → tcp://other"),
        ("retention_changed", None, "raw none → 7 days"),
    ]
    assert {**json.loads(events[0][3]), "by": ""} == {
        "name": "a",
        "by": "",
        "old": {"unit": "°C"},
        "new": {"unit": "K", "alarm_hi": 90},
    }


async def test_clock_set_back_keeps_the_order_of_versions(database: Database, owner: asyncpg.Connection) -> None:
    await owner.execute(f"{_SOURCE}; {_CHANNEL}; UPDATE plant.channel SET unit = 'K'")
    await owner.execute(
        "UPDATE plant.channel_version SET valid_to = now() + INTERVAL '1 hour' WHERE valid_to < 'infinity'"
    )
    await owner.execute(
        "UPDATE plant.channel_version SET valid_from = now() + INTERVAL '1 hour' WHERE valid_to = 'infinity'"
    )
    await owner.execute("UPDATE plant.channel SET unit = 'mK'")
    assert await rows(database, "SELECT unit FROM plant.channel_version ORDER BY valid_from") == [
        ("°C",),
        ("K",),
        ("mK",),
    ]


async def test_many_channels_are_changed_in_linear_time(owner: asyncpg.Connection) -> None:
    """After a change of none: a plan for the rows of that one would compare each channel with each."""
    channels = 2_000
    await add_sources(owner, "s")
    await add_channels(owner, range(1, channels + 1))
    removed: list[int] = []

    def listen(_: object, message: asyncpg.PostgresLogMessage) -> None:
        removed.extend(map(int, re.findall(r'"Rows Removed by Join Filter": (\d+)', str(message.message))))

    owner.add_log_listener(listen)
    await owner.execute("LOAD 'auto_explain'; SET client_min_messages = log; SET auto_explain.log_min_duration = 0")
    await owner.execute("SET auto_explain.log_nested_statements = on; SET auto_explain.log_analyze = on")
    await owner.execute("SET auto_explain.log_format = json")
    await owner.execute("UPDATE plant.channel SET description = 'none' WHERE id < 0")
    await owner.execute("UPDATE plant.channel SET description = 'changed'")
    owner.remove_log_listener(listen)
    assert removed and sum(removed) < channels
    assert await owner.fetchval("SELECT count(*) FROM plant.event WHERE type = 'channel_changed'") == channels
    assert await owner.fetchval("SELECT count(*) FROM plant.channel_version WHERE version = 1") == channels
