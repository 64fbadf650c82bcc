"""Update the alarm table from alarm events, in the transaction that inserts the events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import asyncpg

from ingest.batch import Event
from ingest.event_rows import event_id
from ingest.timestamps import timestamp
from schema.queries import load


async def write_alarms(connection: asyncpg.Connection[Any], events: Sequence[tuple[int, Event]]) -> None:
    """Update ``plant.alarm`` from the alarm events among ``events`` (source id, event), and queue notices."""
    alarms = [(source_id, event) for source_id, event in events if event.type == "alarm"]
    if not alarms:
        return
    times = [timestamp(event.time) for _, event in alarms]
    channels = [event.channel_id for _, event in alarms]
    details = [json.dumps(dict(event.detail)).replace("\\u0000", "\\u2400") for _, event in alarms]
    ids = [event_id(source_id, event) for source_id, event in alarms]
    queries = load("alarms")
    await connection.execute(queries["upsert_alarms"], times, channels, details)
    await connection.execute(queries["insert_notices"], times, ids, channels, details)
