"""What came and was kept out of the tables, as rows of plant.quarantine, from which it can be brought back."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from ingest.batch import Batch, Event, EventBatch, Gap, GapBatch, SampleBatch
from ingest.writer.clock import microseconds, timestamp
from ingest.writer.event_rows import signed, storable
from ingest.writer.failures import sqlstate

Reason: TypeAlias = Literal[
    "future",  # the time is further ahead of its arrival than [writer] future_limit
    "ancient",  # the time is longer before its arrival than [writer] oldest
    "refused",  # the database refuses it; detail has its words
]


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One sample, event or gap that was kept out."""

    reason: Reason
    source_id: int
    received_at: int  # µs
    channel_id: int | None = None
    time: int | None = None  # µs
    value: float | None = None
    status: int | None = None
    said: Mapping[str, str] = field(default_factory=dict)  # "event" or "gap": all of it, as JSON in a text
    words: Mapping[str, str] = field(default_factory=dict)  # "sqlstate" and "error" of the database

    @property
    def id(self) -> int:
        """A positive 63-bit number from what came, not from why it was kept out: a replay has the same."""
        value = None if self.value is None else struct.pack("<d", self.value).hex()
        came = [self.source_id, self.received_at, self.channel_id, self.time, value, self.status, dict(self.said)]
        digest = hashlib.blake2b(json.dumps(came, sort_keys=True).encode(), digest_size=8).digest()
        return int.from_bytes(digest) >> 1


def sample(batch: SampleBatch, i: int, reason: Reason) -> Quarantined:
    """Sample ``i`` of ``batch``."""
    return Quarantined(
        reason,
        batch.source_id,
        batch.received_at,
        int(batch.channel_id[i]),
        int(batch.time[i]),
        float(batch.value[i]),
        int(batch.status[i]),
    )


def event(source_id: int, received_at: int, what: Event, reason: Reason) -> Quarantined:
    """An event. The whole of it is kept as a text, because jsonb refuses some of what JSON can say."""
    said = {"event": json.dumps(asdict(what))}
    return Quarantined(reason, source_id, received_at, said=said, time=what.time)


def refused(batch: Batch, error: Exception) -> Quarantined:
    """The one row of ``batch``, and what the database said of it."""
    words = {"error": storable(f"{type(error).__name__}: {error}")[0]}
    if (state := sqlstate(error)) is not None:
        words["sqlstate"] = state
    if isinstance(batch, SampleBatch):
        row = sample(batch, 0, "refused")
    elif isinstance(batch, EventBatch):
        row = event(batch.source_id, batch.received_at, batch.events[0], "refused")
    else:
        gap = batch.gaps[0]
        said = {"gap": json.dumps(asdict(gap))}
        row = Quarantined("refused", batch.source_id, batch.received_at, time=gap.from_time, said=said)
    return replace(row, words=words)


def columns(rows: Sequence[Quarantined]) -> tuple[list[Any], ...]:
    """The parameters of section ``quarantine``: one list a column."""
    return (
        [row.id for row in rows],
        [row.reason for row in rows],
        [row.source_id for row in rows],
        [timestamp(row.received_at) for row in rows],
        [row.channel_id for row in rows],
        [row.time for row in rows],
        [row.value for row in rows],
        [None if row.status is None else signed(row.status) for row in rows],
        [json.dumps({**row.said, **row.words}) for row in rows],
    )


def came(row: Mapping[str, Any]) -> Batch:
    """What a row of plant.quarantine keeps, as a batch of one."""
    received_at = microseconds(row["received_at"])
    detail = json.loads(row["detail"])
    if "event" in detail:
        return EventBatch(row["source_id"], received_at, (Event(**json.loads(detail["event"])),))
    if "gap" in detail:
        gap = json.loads(detail["gap"])
        channels = None if gap["channel_ids"] is None else tuple(gap["channel_ids"])
        return GapBatch(row["source_id"], received_at, (Gap(**{**gap, "channel_ids": channels}),))
    return SampleBatch(
        row["source_id"],
        received_at,
        np.array([row["channel_id"]], np.int32),
        np.array([row["time_us"]], np.int64),
        np.array([row["value"]], np.float64),
        np.array([row["status"] & 0xFFFFFFFF], np.uint32),
    )
