"""The notes of new spool files, which are as old as the backup, brought up to what the restored database has.

Otherwise the collectors would record all the time since the backup as a gap.
"""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg

from ingest.opcua.subscription.sequence import SequenceTracker
from ingest.spool.file import connect, read_notes, write_notes
from schema.queries import load


async def bring_up_to_date(connection: asyncpg.Connection[Any], folder: Path) -> None:
    """Update the notes on reads and open gaps of each source. Raises SpoolError and what the database raises."""
    newest = await connection.fetch(load("backup")["select_newest"])
    open_gaps = await connection.fetch(load("backup")["select_open_gaps"])
    gaps: dict[int, list[tuple[int | None, int, str, str]]] = defaultdict(list)
    for source, *gap in open_gaps:
        gaps[source].append((gap[0], gap[1], gap[2], gap[3]))
    for row in newest:
        path = folder / f"{row['kind']}.sqlite"
        if path.exists():
            with closing(connect(path, "FULL", create=False)) as spool:
                write_notes(spool, _notes(row["id"], row["time"], gaps[row["id"]], read_notes(spool)))


def _notes(
    source: int, newest: int | None, gaps: list[tuple[int | None, int, str, str]], before: dict[str, str]
) -> dict[str, str]:
    """Notes of a source that have to change (``ingest/downtime.py``, ``gaps.py``, ``opcua/checkpoint.py``)."""
    notes = {f"gaps:{source}": json.dumps(gaps)}
    for name, value in before.items():
        if newest is not None and name == f"heard:{source}":
            notes[name] = str(max(int(value), newest))
        elif newest is not None and name.startswith(f"opcua:{source}:"):
            tracker = SequenceTracker.read(value)
            notes[name] = SequenceTracker(tracker.first, max(tracker.complete_to, newest)).note()
    return notes
