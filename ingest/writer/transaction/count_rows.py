"""Writes counts to the table ``plant.event_count_1m``, in the same transaction as what is counted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

import asyncpg
import numpy as np

from ingest.writer.transaction.counts import Counts, aggregate, columns, subset
from ingest.writer.transaction.failures import classify
from ingest.writer.transaction.group import Group
from schema.queries import load

Refused: TypeAlias = list[tuple[Counts, Exception]]  # one row each, with its database error


@dataclass(frozen=True, slots=True)
class AddedIncrements:
    """Numbers of increments added, by origin."""

    counts: int = 0  # received in batches of counts
    events: int = 0
    quality: int = 0  # samples with a status other than Good


async def count(
    connection: asyncpg.Connection[Any],
    group: Group,
    stored: Collection[tuple[int, int]],
    events: Counts,
    not_good: Counts,
    isolate_bad_rows: bool,
) -> tuple[AddedIncrements, Refused]:
    """Add the increments of ``group`` (except batches whose facts are ``stored``), of new events and of new samples.

    ``isolate_bad_rows``: return rows that the database rejects, and add the rest.
    """
    counted = [facts for facts in group.counted if facts.key not in stored]
    total = group.counts if len(counted) == len(group.counted) else aggregate([facts.inside for facts in counted])
    not_good = await _not_packed(connection, not_good)
    added = AddedIncrements(sum(len(facts.inside) for facts in counted), len(events), len(not_good))
    if len(events) or len(not_good):
        total = aggregate([total, events, not_good])
    if isolate_bad_rows:
        return added, await _count_isolating(connection, total)
    if len(total):
        await connection.execute(load("write")["upsert_event_counts"], *columns(total))
    return added, []


async def _count_isolating(connection: asyncpg.Connection[Any], counts: Counts) -> Refused:
    """Add everything the database accepts, isolating rejected rows by bisection."""
    if not len(counts):
        return []
    try:
        async with connection.transaction():
            await connection.execute(load("write")["upsert_event_counts"], *columns(counts))
    except Exception as error:
        if classify(error) != "poison":
            raise
        if len(counts) == 1:
            return [(counts, error)]
        half = len(counts) // 2
        first = await _count_isolating(connection, subset(counts, slice(None, half)))
        return first + await _count_isolating(connection, subset(counts, slice(half, None)))
    return []


async def _not_packed(connection: asyncpg.Connection[Any], samples: Counts) -> Counts:
    """The new ones: a replayed sample of a compressed hour is a row of samples_raw until it is merged."""
    queries = load("write")
    if not len(samples) or not await connection.fetchval(queries["may_be_packed"], int(samples.time.min())):
        return samples
    packed = await connection.fetch(queries["select_packed"], samples.channel_id.tolist(), samples.time.tolist())
    new = np.ones(len(samples), bool)
    new[[row["place"] for row in packed]] = False
    return subset(samples, new)
