"""What came and was kept out of the tables, as rows of plant.quarantine, from which it can be brought back."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from ingest.batch import Batch, CountBatch, Event, EventBatch, Gap, GapBatch, SampleBatch
from ingest.writer.clock import microseconds, timestamp
from ingest.writer.counts import Counts
from ingest.writer.event_rows import signed, storable
from ingest.writer.failures import sqlstate

Reason: TypeAlias = Literal[
    "future",  # the time is further ahead of its arrival than [writer] future_limit
    "ancient",  # the time is longer before its arrival than [writer] oldest
    "refused",  # the database refuses it; detail has its words
]


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One sample, event or gap that was kept out, or the increments of one batch that are alike."""

    reason: Reason
    source_id: int
    received_at: int  # µs
    channel_id: int | None = None
    time: int | None = None  # µs
    value: float | None = None
    status: int | None = None
    said: Mapping[str, str] = field(default_factory=dict)  # "event", "gap", "count": all of it, as JSON in a text
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


def count(fact: tuple[int, int], received_at: int, counts: Counts, i: int, reason: Reason) -> Quarantined:
    """Row ``i`` of ``counts``, which came in the batch ``fact`` (source id, sequence)."""
    # The sequence, as another batch with the same increments is not a replay.
    said = json.dumps({"type": counts.types[counts.type[i]], "n": int(counts.n[i]), "sequence": fact[1]})
    row = Quarantined(reason, fact[0], received_at, int(counts.channel_id[i]), int(counts.time[i]))
    return replace(row, said={"count": said})


def refused_count(fact: tuple[int, int], received_at: int, counts: Counts, error: Exception) -> Quarantined:
    """The one row of ``counts``, and what the database said of it."""
    return replace(count(fact, received_at, counts, 0, "refused"), words=_words(error))


def _words(error: Exception) -> Mapping[str, str]:
    words = {"error": storable(f"{type(error).__name__}: {error}")[0]}
    if (state := sqlstate(error)) is not None:
        words["sqlstate"] = state
    return words


def refused(batch: SampleBatch | EventBatch | GapBatch, error: Exception) -> Quarantined:
    """The one row of ``batch``, and what the database said of it."""
    if isinstance(batch, SampleBatch):
        row = sample(batch, 0, "refused")
    elif isinstance(batch, EventBatch):
        row = event(batch.source_id, batch.received_at, batch.events[0], "refused")
    else:
        gap = batch.gaps[0]
        said = {"gap": json.dumps(asdict(gap))}
        row = Quarantined("refused", batch.source_id, batch.received_at, time=gap.from_time, said=said)
    return replace(row, words=_words(error))


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
    if "count" in detail:
        said = json.loads(detail["count"])
        return CountBatch(
            row["source_id"],
            received_at,
            (said["type"],),
            np.zeros(1, np.int32),
            np.array([row["channel_id"]], np.int32),
            np.array([row["time_us"]], np.int64),
            np.array([said["n"]], np.int64),
            digest=-row["id"],  # no two rows are one batch
        )
    return SampleBatch(
        row["source_id"],
        received_at,
        np.array([row["channel_id"]], np.int32),
        np.array([row["time_us"]], np.int64),
        np.array([row["value"]], np.float64),
        np.array([row["status"] & 0xFFFFFFFF], np.uint32),
    )
