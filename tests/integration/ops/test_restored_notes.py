"""Notes of the spools on a new machine: collectors continue by what the restored database has."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import asyncpg

from ingest.gaps import Gaps
from ingest.spool.append import Spool
from ingest.spool.file import connect, read_notes
from ingest.status import SourceStatus
from ops.backup.restore import bring_up_to_date
from tests.database import add_channels, add_sources
from tests.memory_appender import MemoryAppender

_OPEN = """
INSERT INTO plant.gap (source_id, channel_id, from_time, reason, detail)
VALUES (1, NULL, '2026-03-09 10:00Z', 'disconnected', 'cut'), (2, 7, '2026-03-09 11:00Z', 'stale', ''),
       (2, 8, '2026-03-09 11:00Z', 'stale', ''), (2, 5, '2026-03-09 12:00Z', 'overflow', 'full')
"""


async def test_collectors_know_the_open_gaps_of_a_restored_database(owner: asyncpg.Connection, tmp_path: Path) -> None:
    await add_sources(owner, "plc", "gateway", "quiet")
    await add_channels(owner, range(5, 9), source=2)
    await owner.execute(_OPEN)
    spool = Spool(path := tmp_path / "push.sqlite", 2**20)
    await spool.close()
    await bring_up_to_date(owner, tmp_path)
    with closing(connect(path, "FULL", create=False)) as connection:
        notes = read_notes(connection)
    plc, gateway, quiet = (
        Gaps(SourceStatus(number, "s", "push", "", 9), MemoryAppender(notes)) for number in (1, 2, 3)
    )
    assert (plc.reason(), plc.detail(), plc.channels()) == ("disconnected", "cut", [])
    assert gateway.open_since() is None
    assert [(c, gateway.reason(c)) for c in gateway.channels()] == [(5, "overflow"), (7, "stale"), (8, "stale")]
    assert (quiet.open_since(), quiet.channels()) == (None, [])
