"""The wait of ``plantlog lab chaos`` and the matrix before they compare."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg

from core.paths import State
from core.timestamps import microseconds
from lab.chaos.settling import pending
from tests.database import Database

_CHANNELS = """
INSERT INTO plant.source (name, kind, address) VALUES ('server', 'opcua', '');
INSERT INTO plant.channel (name, source_id, address, kind, retired_at)
SELECT c.name, s.id, '', c.kind, c.retired
FROM (VALUES ('a', 'analog', NULL), ('b', 'analog', NULL), ('mode', 'text', NULL), ('old', 'analog', now()))
    AS c (name, kind, retired)
CROSS JOIN plant.source AS s;
INSERT INTO plant.ingest_batch (source_id, sequence, kind, rows, first_time, last_time, received_at)
SELECT s.id, 1, 'samples', 1, now(), now(), now() + INTERVAL '1 minute' FROM plant.source AS s;
"""
_SAMPLE = """
INSERT INTO plant.samples_raw (time, value, channel_id, status)
SELECT $2, 1, c.id, 0 FROM plant.channel AS c WHERE c.name = $1
"""
_TEXT = """
INSERT INTO plant.event (id, time, source_id, channel_id, type, text, status)
SELECT 1, $2, c.source_id, c.id, 'text', 'RUN', 0 FROM plant.channel AS c WHERE c.name = $1
"""


async def test_each_channel_is_waited_for_until_its_values_are_dated_later(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    """However late what is older was received, and whatever a plant's clock that was ahead has left."""
    moment = datetime.now(UTC) - timedelta(seconds=10)
    later = moment + timedelta(seconds=1)

    async def left() -> list[str]:
        us = microseconds(moment)
        return await pending(State(tmp_path), database.reader_dsn, None, us)

    await owner.execute(_CHANNELS)
    await owner.execute(_SAMPLE, "a", moment)
    await owner.execute(_SAMPLE, "b", moment + timedelta(hours=1))
    assert await left() == ["3 channels of source server have no samples since"]
    await owner.execute(_SAMPLE, "a", later)
    await owner.execute(_SAMPLE, "b", later)
    assert await left() == ["1 channels of source server have no samples since"]
    await owner.execute(_TEXT, "mode", later)
    assert await left() == []
