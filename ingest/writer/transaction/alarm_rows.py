"""Update the alarm table from alarm events, in the transaction that inserts the events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import asyncpg

from core.batch import Event
from core.timestamps import timestamp
from ingest.event_rows import event_id
from schema.queries import load


async def write_alarms(connection: asyncpg.Connection[Any], events: Sequence[tuple[int, Event]]) -> None:
    """Update alarms and conditions from the alarm events among ``events`` (source id, event), and queue notices."""
    alarms = [(source_id, event) for source_id, event in events if event.type == "alarm"]
    if not alarms:
        return
    queries = load("alarms")
    limits = [(source, event) for source, event in alarms if event.condition is None]
    if limits:
        _, times, _, channels, details = _columns(limits)
        await connection.execute(queries["upsert_alarms"], times, channels, details)
    if len(limits) < len(alarms):
        conditions = [(source, event) for source, event in alarms if event.condition is not None]
        sources, times, _, channels, details = _columns(conditions)
        await connection.execute(queries["upsert_conditions"], times, channels, details, sources)
    sources, times, ids, channels, details = _columns(alarms)
    await connection.execute(queries["insert_notices"], times, ids, channels, details, sources)


def _columns(
    alarms: Sequence[tuple[int, Event]],
) -> tuple[list[int], list[datetime], list[int], list[int | None], list[str]]:
    """Source id, time, event id, channel id and detail of each."""
    return (
        [source_id for source_id, _ in alarms],
        [timestamp(event.time) for _, event in alarms],
        [event_id(source_id, event) for source_id, event in alarms],
        [event.channel_id for _, event in alarms],
        [json.dumps(dict(event.detail)).replace("\\u0000", "\\u2400") for _, event in alarms],
    )
