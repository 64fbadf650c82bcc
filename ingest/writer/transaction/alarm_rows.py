"""Update the alarm table from alarm events, in the transaction that inserts the events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from core.batch import Event
from ingest.event_rows import alarm_columns
from schema.queries import load


async def write_alarms(connection: asyncpg.Connection[Any], events: Sequence[tuple[int, Event]]) -> None:
    """Update alarms and conditions from the alarm events among ``events`` (source id, event), and queue notices."""
    alarms = [(source_id, event) for source_id, event in events if event.type == "alarm"]
    if not alarms:
        return
    columns = alarm_columns(alarms)
    for name in ("upsert_alarms", "upsert_conditions", "insert_notices"):
        await connection.execute(load("alarms")[name], *columns)
