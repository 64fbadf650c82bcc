"""How a batch stands in the spool: samples as their columns' bytes one after another, the rest as JSON."""

from __future__ import annotations

import json
import struct
import sys
import zlib
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

import numpy as np

from ingest.batch import ROW_BYTES, Batch, Event, EventBatch, Gap, GapBatch, SampleBatch
from ingest.errors import SpoolCorrupt

BatchKind: TypeAlias = Literal["samples", "events", "gaps"]

if sys.byteorder != "little":
    raise RuntimeError("the spool's columns are little-endian; this machine is not")


@dataclass(frozen=True, slots=True)
class Record:
    """One row of the spool. ``body`` holds the batch, the rest what is asked without decoding it."""

    source_id: int
    kind: BatchKind
    rows: int
    received_at: int  # µs
    first_time: int  # µs
    last_time: int  # µs
    crc32: int  # of body; see :func:`seal` for what stands in the file
    body: bytes


@dataclass(frozen=True, slots=True)
class SpooledBatch:
    """A batch as the writer takes it from a spool file."""

    sequence: int
    first_time: int  # µs
    last_time: int  # µs
    batch: Batch


def encode(batch: Batch) -> Record:
    """The record of ``batch``; 24 bytes a sample."""
    if len(batch) == 0:
        raise ValueError("an empty batch has no place in the spool")
    if isinstance(batch, SampleBatch):
        kind: BatchKind = "samples"
        body = b"".join(
            (batch.channel_id.tobytes(), batch.time.tobytes(), batch.value.tobytes(), batch.status.tobytes())
        )
        first, last = int(batch.time.min()), int(batch.time.max())
    elif isinstance(batch, EventBatch):
        kind = "events"
        body = json.dumps([asdict(event) for event in batch.events]).encode()
        first, last = min(event.time for event in batch.events), max(event.time for event in batch.events)
    else:
        kind = "gaps"
        body = json.dumps([asdict(gap) for gap in batch.gaps]).encode()
        first, last = min(gap.from_time for gap in batch.gaps), max(gap.to_time or gap.from_time for gap in batch.gaps)
    return Record(batch.source_id, kind, len(batch), batch.received_at, first, last, zlib.crc32(body), body)


def seal(sequence: int, record: Record) -> int:
    """The checksum that a row of a spool file has: of the body, the sequence and all the other columns."""
    r = record
    others = struct.pack("<6q", sequence, r.source_id, r.rows, r.received_at, r.first_time, r.last_time)
    return zlib.crc32(others + r.kind.encode(), zlib.crc32(r.body))


def decode(record: Record, sequence: int | None = None) -> Batch:
    """The batch in ``record``, which stands in a spool file under ``sequence``.

    Raises SpoolCorrupt where it is not what was stored.
    """
    try:
        whole = record.crc32 == zlib.crc32(record.body) or (sequence and record.crc32 == seal(sequence, record))
        if whole:
            return _decoded(record)
    except (ValueError, TypeError, KeyError, AttributeError, struct.error) as error:
        raise SpoolCorrupt(f"batch {sequence} can't be read: {error}") from error
    raise SpoolCorrupt(f"checksum of {record.rows} {record.kind} of source {record.source_id} does not match")


def _decoded(record: Record) -> Batch:
    if record.kind == "events":
        events = tuple(Event(**event) for event in json.loads(record.body))
        return EventBatch(record.source_id, record.received_at, events)
    if record.kind == "gaps":
        gaps = tuple(
            Gap(**{**gap, "channel_ids": None if gap["channel_ids"] is None else tuple(gap["channel_ids"])})
            for gap in json.loads(record.body)
        )
        return GapBatch(record.source_id, record.received_at, gaps)
    n = record.rows
    if len(record.body) != n * ROW_BYTES:
        raise SpoolCorrupt(f"{len(record.body)} bytes for {n} samples of source {record.source_id}")
    return SampleBatch(
        record.source_id,
        record.received_at,
        channel_id=np.frombuffer(record.body, np.int32, n, 0),
        time=np.frombuffer(record.body, np.int64, n, 4 * n),
        value=np.frombuffer(record.body, np.float64, n, 12 * n),
        status=np.frombuffer(record.body, np.uint32, n, 20 * n),
    )
