"""Rejected data as rows of plant.quarantine, from which it can be retried."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from core.batch import Batch, CountBatch, Event, EventBatch, Gap, GapBatch, SampleBatch
from core.samples import Samples
from core.timestamps import microseconds, timestamp
from ingest.event_rows import signed, storable
from ingest.writer.transaction.counts import Counts
from ingest.writer.transaction.failures import sqlstate

Reason: TypeAlias = Literal[
    "future",  # time later than arrival + [writer] future_limit
    "ancient",  # time earlier than arrival - [writer] oldest
    "days",  # of a day beyond the number that one source may write to in an hour, [writer] days_per_hour
    "refused",  # rejected by the database; detail has the error
]


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One rejected sample, event or gap, or equal increments of one batch."""

    reason: Reason
    source_id: int
    received_at: int  # µs
    channel_id: int | None = None
    time: int | None = None  # µs
    value: float | None = None
    status: int | None = None
    content: Mapping[str, str] = field(default_factory=dict)  # "event", "gap" or "count": the whole of it, as JSON text
    database_error: Mapping[str, str] = field(default_factory=dict)  # "sqlstate" and "error"

    @property
    def id(self) -> int:
        """A positive 63-bit hash of the content, not of the reason: a replay has the same id."""
        value = None if self.value is None else struct.pack("<d", self.value).hex()
        content = [self.source_id, self.received_at, self.channel_id, self.time, value, self.status, dict(self.content)]
        digest = hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8).digest()
        return int.from_bytes(digest) >> 1


def sample(batch: SampleBatch, i: int, reason: Reason) -> Quarantined:
    """Sample ``i`` of ``batch``."""
    s = batch.samples
    columns = int(s.channel[i]), int(s.time[i]), float(s.value[i]), int(s.status[i])
    return Quarantined(reason, batch.source_id, batch.received_at, *columns)


def event(source_id: int, received_at: int, rejected: Event, reason: Reason) -> Quarantined:
    """An event, stored as text because jsonb rejects some valid JSON."""
    content = {"event": json.dumps(asdict(rejected))}
    return Quarantined(reason, source_id, received_at, content=content, time=rejected.time)


def count(key: tuple[int, int], received_at: int, counts: Counts, i: int, reason: Reason) -> Quarantined:
    """Row ``i`` of ``counts`` from the batch ``key`` (source id, sequence)."""
    # With the sequence, because another batch with the same increments is not a replay.
    content = json.dumps({"type": counts.types[counts.type[i]], "n": int(counts.n[i]), "sequence": key[1]})
    row = Quarantined(reason, key[0], received_at, int(counts.channel_id[i]), int(counts.time[i]))
    return replace(row, content={"count": content})


def refused_count(key: tuple[int, int], received_at: int, counts: Counts, error: Exception) -> Quarantined:
    """The only row of ``counts``, with its database error."""
    return replace(count(key, received_at, counts, 0, "refused"), database_error=_database_error(error))


def _database_error(error: Exception) -> Mapping[str, str]:
    fields = {"error": storable(f"{type(error).__name__}: {error}")[0]}
    if (state := sqlstate(error)) is not None:
        fields["sqlstate"] = state
    return fields


def refused(batch: SampleBatch | EventBatch | GapBatch, error: Exception) -> Quarantined:
    """The only row of ``batch``, with its database error."""
    if isinstance(batch, SampleBatch):
        row = sample(batch, 0, "refused")
    elif isinstance(batch, EventBatch):
        row = event(batch.source_id, batch.received_at, batch.events[0], "refused")
    else:
        gap = batch.gaps[0]
        content = {"gap": json.dumps(asdict(gap))}
        row = Quarantined("refused", batch.source_id, batch.received_at, time=gap.from_time, content=content)
    return replace(row, database_error=_database_error(error))


def columns(rows: Sequence[Quarantined]) -> tuple[list[Any], ...]:
    """The parameters of section ``quarantine``: one list per column."""
    return (
        [row.id for row in rows],
        [row.reason for row in rows],
        [row.source_id for row in rows],
        [timestamp(row.received_at) for row in rows],
        [row.channel_id for row in rows],
        [row.time for row in rows],
        [row.value for row in rows],
        [None if row.status is None else signed(row.status) for row in rows],
        [json.dumps({**row.content, **row.database_error}) for row in rows],
    )


def to_batch(row: Mapping[str, Any]) -> Batch:
    """A row of plant.quarantine as a batch of one."""
    received_at = microseconds(row["received_at"])
    detail = json.loads(row["detail"])
    if "event" in detail:
        return EventBatch(row["source_id"], received_at, (Event(**json.loads(detail["event"])),))
    if "gap" in detail:
        gap = json.loads(detail["gap"])
        channels = None if gap["channel_ids"] is None else tuple(gap["channel_ids"])
        return GapBatch(row["source_id"], received_at, (Gap(**{**gap, "channel_ids": channels}),))
    if "count" in detail:
        content = json.loads(detail["count"])
        return CountBatch(
            row["source_id"],
            received_at,
            (content["type"],),
            np.zeros(1, np.int32),
            np.array([row["channel_id"]], np.int32),
            np.array([row["time_us"]], np.int64),
            np.array([content["n"]], np.int64),
            digest=-row["id"],  # unique
        )
    return SampleBatch(
        row["source_id"],
        received_at,
        Samples(
            np.array([row["channel_id"]], np.int32),
            np.array([row["time_us"]], np.int64),
            np.array([row["value"]], np.float64),
            np.array([row["status"] & 0xFFFFFFFF], np.uint32),
        ),
    )
