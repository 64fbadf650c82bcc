"""Counts into the table ``plant.event_count_1m``, within the transaction of what is counted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

import asyncpg
import numpy as np

from ingest.writer.counts import Counts, added_up, columns, part_of
from ingest.writer.failures import classify
from ingest.writer.group import Group
from schema.queries import load

Refused: TypeAlias = list[tuple[Counts, Exception]]  # one row each, and what the database said of it


@dataclass(frozen=True, slots=True)
class Increased:
    """How many increments were added, by what they are."""

    counts: int = 0  # as they came, in batches of counts
    events: int = 0
    quality: int = 0  # samples that are not Good


async def count(
    connection: asyncpg.Connection[Any],
    group: Group,
    known: Collection[tuple[int, int]],
    events: Counts,
    not_good: Counts,
    careful: bool,
) -> tuple[Increased, Refused]:
    """Add the increments of ``group`` but those of batches whose facts are ``known``, and of new events and samples.

    ``careful``: what the database refuses is returned, and the rest is added.
    """
    counted = [one for one in group.counted if one.fact not in known]
    whole = group.counts if len(counted) == len(group.counted) else added_up([one.inside for one in counted])
    not_good = await _not_packed(connection, not_good)
    increased = Increased(sum(len(one.inside) for one in counted), len(events), len(not_good))
    if len(events) or len(not_good):
        whole = added_up([whole, events, not_good])
    if careful:
        return increased, await _carefully(connection, whole)
    if len(whole):
        await connection.execute(load("write")["count"], *columns(whole))
    return increased, []


async def _carefully(connection: asyncpg.Connection[Any], counts: Counts) -> Refused:
    """Add all that the database takes; the rest row by row."""
    if not len(counts):
        return []
    try:
        async with connection.transaction():
            await connection.execute(load("write")["count"], *columns(counts))
    except Exception as error:
        if classify(error) != "poison":
            raise
        if len(counts) == 1:
            return [(counts, error)]
        half = len(counts) // 2
        first = await _carefully(connection, part_of(counts, slice(None, half)))
        return first + await _carefully(connection, part_of(counts, slice(half, None)))
    return []


async def _not_packed(connection: asyncpg.Connection[Any], samples: Counts) -> Counts:
    """Those that are new: a replay of a sample whose hour is packed is a row in samples_raw until it is merged."""
    queries = load("write")
    if not len(samples) or not await connection.fetchval(queries["any_packed"], int(samples.time.min())):
        return samples
    packed = await connection.fetch(queries["packed"], samples.channel_id.tolist(), samples.time.tolist())
    new = np.ones(len(samples), bool)
    new[[row["place"] for row in packed]] = False
    return part_of(samples, new)
