"""What the writer does with events of type ``alarm``, in the transaction that adds them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import asyncpg

from ingest.batch import Event
from ingest.writer.clock import timestamp
from ingest.writer.event_rows import event_id
from schema.queries import load


async def record(connection: asyncpg.Connection[Any], events: Sequence[tuple[int, Event]]) -> None:
    """Bring ``plant.alarm`` to what the alarm events among ``events`` (source id, event) say, and queue notices."""
    alarms = [(source_id, event) for source_id, event in events if event.type == "alarm"]
    if not alarms:
        return
    times = [timestamp(event.time) for _, event in alarms]
    channels = [event.channel_id for _, event in alarms]
    details = [json.dumps(dict(event.detail)).replace("\\u0000", "\\u2400") for _, event in alarms]
    ids = [event_id(source_id, event) for source_id, event in alarms]
    queries = load("alarms")
    await connection.execute(queries["state"], times, channels, details)
    await connection.execute(queries["queue"], times, ids, channels, details)
