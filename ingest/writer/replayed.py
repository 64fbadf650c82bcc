"""Batches that are written again: those that the database has are a no-op, but cost time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import asyncpg

from core.batch import SampleBatch
from core.database import bounded
from ingest.journal.replay import BY_OTHER
from ingest.writer.backlog import BatchesByFile
from ingest.writer.bisect import Piece
from ingest.writer.pair.polled import WRITE, lonely
from schema.queries import load

log = logging.getLogger(__name__)


async def split_known(
    connection: asyncpg.Connection[Any], pieces: Sequence[Piece], time_out: float
) -> tuple[BatchesByFile, BatchesByFile]:
    """The batches of ``pieces`` that the database has, and the others. None are known if it can't tell.

    Of what both members of a redundant pair polled, and the other one wrote, the database has samples nearby.
    """
    batches = [(path, spooled) for piece in pieces for path, of_file in piece.complete for spooled in of_file]
    keys = [spooled.key for _, spooled in batches]
    polled = [
        (place, spooled.batch)
        for place, (path, spooled) in enumerate(batches)
        if spooled.is_polled and isinstance(spooled.batch, SampleBatch) and path.name.endswith(BY_OTHER)
    ]

    async def fetch(query: str, *parameters: object) -> list[asyncpg.Record]:
        return await bounded(connection, time_out, connection.fetch(query, *parameters))

    try:
        rows = await fetch(load("write")["select_batches"], [key[0] for key in keys], [key[1] for key in keys])
        found = {(row["source_id"], row["sequence"]) for row in rows}
        known = {place for place, key in enumerate(keys) if key in found}
        known |= {place for place, _ in polled} - await lonely(polled, WRITE, fetch)
    except Exception as error:
        log.warning("replay: %s: %s; writing batches that the database may have", type(error).__name__, error)
        known = set()
    return (
        [(path, [spooled]) for place, (path, spooled) in enumerate(batches) if place in known],
        [(path, [spooled]) for place, (path, spooled) in enumerate(batches) if place not in known],
    )
