"""Batches that are written again: those that the database has are a no-op, but cost time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import asyncpg

from ingest.database import bounded
from ingest.writer.backlog import BatchesByFile
from ingest.writer.bisect import Piece
from schema.queries import load

log = logging.getLogger(__name__)


async def split_known(
    connection: asyncpg.Connection[Any], pieces: Sequence[Piece], time_out: float
) -> tuple[BatchesByFile, BatchesByFile]:
    """The batches of ``pieces`` that the database has, and the others. None are known if it can't tell."""
    batches = [(path, spooled) for piece in pieces for path, of_file in piece.complete for spooled in of_file]
    keys = [spooled.key for _, spooled in batches]
    asking = connection.fetch(load("write")["select_batches"], [key[0] for key in keys], [key[1] for key in keys])
    try:
        known = {(row["source_id"], row["sequence"]) for row in await bounded(connection, time_out, asking)}
    except Exception as error:
        log.warning("replay: %s: %s; writing batches that the database may have", type(error).__name__, error)
        known = set()
    return (
        [(path, [spooled]) for path, spooled in batches if spooled.key in known],
        [(path, [spooled]) for path, spooled in batches if spooled.key not in known],
    )
