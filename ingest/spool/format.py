"""The encoding of batches in the spool: samples and counts as concatenated columns, everything else as JSON.

The packed columns of counts follow a header: its length in bytes (4, little-endian), and JSON with types,
digest and packing of each column.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.batch import ROW_BYTES, Batch, CountBatch, Event, EventBatch, Gap, GapBatch, Int32s, Int64s, SampleBatch
from core.errors import SpoolCorrupt
from core.samples import Samples
from ingest.channel_map import from_ranges, to_ranges

BatchKind: TypeAlias = Literal["samples", "events", "gaps", "counts"]

COLUMNAR: tuple[BatchKind, ...] = ("samples", "counts")  # high volume: has to wait when the spool is full

_HEADER = struct.Struct("<I")
_COUNT_COLUMNS: tuple[tuple[str, type[np.int32 | np.int64]], ...] = (
    ("type", np.int32),
    ("channel_id", np.int32),
    ("time", np.int64),
    ("n", np.int64),
)

if sys.byteorder != "little":
    raise RuntimeError("the spool's columns are little-endian; this machine is not")


@dataclass(frozen=True, slots=True)
class Record:
    """One row of the spool. ``body`` is the encoded batch; the other fields can be read without decoding it."""

    source_id: int
    kind: BatchKind
    rows: int
    received_at: int  # µs
    first_time: int  # µs
    last_time: int  # µs
    crc32: int  # of body; the file has that of :func:`row_checksum`
    body: bytes


@dataclass(frozen=True, slots=True)
class SpooledBatch:
    """A batch as the writer reads it from a spool file."""

    sequence: int
    first_time: int  # µs
    last_time: int  # µs
    batch: Batch
    spool: str = ""  # name of the file, without suffix

    @property
    def is_polled(self) -> bool:
        """Return whether its times are times of polls, which differ between the members of a redundant pair."""
        return self.spool == "modbus"

    @property
    def key(self) -> tuple[int, int]:
        """(source id, sequence) of its row in ``plant.ingest_batch``."""
        digest = self.batch.digest if isinstance(self.batch, CountBatch) else None
        return self.batch.source_id, self.sequence if digest is None else digest


def encode(batch: Batch) -> Record:
    """Encode ``batch``: 24 bytes per sample, 1 to 24 per increment."""
    if len(batch) == 0:
        raise ValueError("cannot spool an empty batch")
    if isinstance(batch, SampleBatch):
        kind: BatchKind = "samples"
        s = batch.samples
        body = b"".join((s.channel.tobytes(), s.time.tobytes(), s.value.tobytes(), s.status.tobytes()))
        first, last = int(s.time.min()), int(s.time.max())
    elif isinstance(batch, EventBatch):
        kind = "events"
        body = json.dumps([_event_fields(event) for event in batch.events]).encode()
        first, last = min(event.time for event in batch.events), max(event.time for event in batch.events)
    elif isinstance(batch, CountBatch):
        kind = "counts"
        body = _body(batch)
        first, last = int(batch.time.min()), int(batch.time.max())
    else:
        kind = "gaps"
        body = json.dumps([_gap_fields(gap) for gap in batch.gaps]).encode()
        first, last = min(gap.from_time for gap in batch.gaps), max(gap.to_time or gap.from_time for gap in batch.gaps)
    return Record(batch.source_id, kind, len(batch), batch.received_at, first, last, zlib.crc32(body), body)


def row_checksum(sequence: int, record: Record) -> int:
    """The checksum of a spool row: over body, sequence and all other columns."""
    r = record
    others = struct.pack("<6q", sequence, r.source_id, r.rows, r.received_at, r.first_time, r.last_time)
    return zlib.crc32(others + r.kind.encode(), zlib.crc32(r.body))


def decode(record: Record, sequence: int | None = None) -> Batch:
    """Decode the batch in ``record``, stored in a spool file under ``sequence``.

    Raises SpoolCorrupt if the body does not match its checksum or the other columns.
    """
    try:
        intact = record.crc32 == zlib.crc32(record.body) or (
            sequence and record.crc32 == row_checksum(sequence, record)
        )
    except (TypeError, AttributeError, struct.error) as error:
        raise SpoolCorrupt(f"cannot read batch {sequence}: {error}") from error
    if not intact:
        raise SpoolCorrupt(f"checksum of {_describe(record)} does not match")
    n = record.rows
    if record.kind == "samples":
        if not isinstance(n, int) or n < 1 or len(record.body) != n * ROW_BYTES:
            raise SpoolCorrupt(f"invalid length of {_describe(record)}: {len(record.body)} bytes")
        return SampleBatch(
            record.source_id,
            record.received_at,
            Samples(
                channel=np.frombuffer(record.body, np.int32, n, 0),
                time=np.frombuffer(record.body, np.int64, n, 4 * n),
                value=np.frombuffer(record.body, np.float64, n, 12 * n),
                status=np.frombuffer(record.body, np.uint32, n, 20 * n),
            ),
        )
    try:
        if record.kind == "counts":
            return _counts(record)
        items = json.loads(record.body)
        if not isinstance(items, list) or not n == len(items) >= 1:
            raise ValueError("the number of rows does not match")
        if record.kind == "events":
            return EventBatch(record.source_id, record.received_at, tuple(map(_event, items)))
        return GapBatch(record.source_id, record.received_at, tuple(map(_gap, items)))
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, struct.error) as error:
        raise SpoolCorrupt(f"cannot decode {_describe(record)} from {len(record.body)} bytes: {error}") from error


def _describe(record: Record) -> str:
    return f"{record.rows} {record.kind} of source {record.source_id}"


def _body(batch: CountBatch) -> bytes:
    # At least one byte per row, so that the length of a body limits its number of rows.
    columns = [
        pack_integers(getattr(batch, name), least_bytes=1 if name == "type" else 0) for name, _ in _COUNT_COLUMNS
    ]
    header = {"types": batch.types, "digest": batch.digest, "columns": [form for form, _ in columns]}
    encoded = json.dumps(header).encode()
    return b"".join((_HEADER.pack(len(encoded)), encoded, *(stored for _, stored in columns)))


def _counts(record: Record) -> CountBatch:
    body, n = record.body, record.rows
    (length,) = _HEADER.unpack_from(body)
    at = _HEADER.size + length
    header = json.loads(body[_HEADER.size : at])
    _check(isinstance(header["types"], list) and all(isinstance(name, str) for name in header["types"]))
    _check(header["digest"] is None or _is_int64(header["digest"]))
    forms = [(low, width) for low, width in header["columns"]]
    _check(*(_is_int64(number) for form in forms for number in form), all(width >= 0 for _, width in forms))
    if not isinstance(n, int) or n < 1 or forms[0][1] < 1 or len(body) != at + n * sum(width for _, width in forms):
        raise ValueError("the number of rows does not match")
    columns = {}
    for (name, dtype), form in zip(_COUNT_COLUMNS, forms, strict=True):
        end = at + n * form[1]
        columns[name] = unpack_integers(form, memoryview(body)[at:end], n, dtype)
        at = end
    return CountBatch(record.source_id, record.received_at, tuple(header["types"]), digest=header["digest"], **columns)


def _event_fields(event: Event) -> dict[str, Any]:
    return {
        "type": event.type,
        "time": event.time,
        "channel_id": event.channel_id,
        "status": event.status,
        "text": event.text,
        "detail": event.detail,
    }


def _event(fields: dict[str, Any]) -> Event:
    event = Event(**fields)
    _check(isinstance(event.type, str), _is_int64(event.time), isinstance(event.detail, dict))
    _check(event.channel_id is None or _is_int64(event.channel_id), event.status is None or _is_int64(event.status))
    _check(event.text is None or isinstance(event.text, str))
    return event


def _gap_fields(gap: Gap) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "from_time": gap.from_time,
        "to_time": gap.to_time,
        "reason": gap.reason,
        "detail": gap.detail,
        "backfilled": gap.backfilled,
    }
    # A million consecutive channels take as much space as one.
    return fields | ({"channel_ids": None} if gap.channel_ids is None else {"ranges": to_ranges(gap.channel_ids)})


def _gap(fields: dict[str, Any]) -> Gap:
    if "ranges" in fields:
        ranges = fields.pop("ranges")
        _check(*map(_is_int64, ranges))
        channels: list[int] | None = from_ranges(ranges).tolist()
    else:
        channels = fields["channel_ids"]
    gap = Gap(**{**fields, "channel_ids": None if channels is None else tuple(channels)})
    _check(_is_int64(gap.from_time), gap.to_time is None or _is_int64(gap.to_time), isinstance(gap.reason, str))
    _check(gap.channel_ids is None or all(map(_is_int64, gap.channel_ids)), isinstance(gap.detail, str))
    _check(isinstance(gap.backfilled, bool))
    return gap


def _is_int64(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _check(*right: bool) -> None:
    if not all(right):
        raise ValueError("value of the wrong type")


Form: TypeAlias = tuple[int, int]  # minimum; bytes per value: 0, 1, 2, 4 or 8

_UNSIGNED: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}
_FULL_WIDTH = 8  # bytes; the values themselves


def pack_integers(column: Int32s | Int64s, *, least_bytes: int = 0) -> tuple[Form, bytes]:
    """Pack a column of n ≥ 1 values: its form, and n times the bytes per value.

    Increments resemble each other: few channels, mostly 1 at a time, all within a second. Unpacked they take 24 bytes
    each, packed about 4, which reduces disk writes.
    """
    low = int(column.min())
    span = int(column.max()) - low
    width = max(least_bytes, next((w for w in (0, 1, 2, 4) if span < 256**w), _FULL_WIDTH))
    if width == 0:
        return (low, 0), b""
    if width == _FULL_WIDTH:
        return (0, _FULL_WIDTH), column.astype("<i8").tobytes()
    return (low, width), (column - column.dtype.type(low)).astype(_UNSIGNED[width]).tobytes()


def unpack_integers(form: Form, stored: memoryview, n: int, dtype: type[np.int32 | np.int64]) -> NDArray[Any]:
    """Unpack n values; ``form`` has 64-bit numbers. Raises ValueError for an invalid form or value."""
    low, width = form
    if width not in (0, *_UNSIGNED, _FULL_WIDTH):
        raise ValueError(f"invalid width: {width} bytes per value")
    more: NDArray[Any] = np.zeros(n, np.int64)
    if width:
        more = np.frombuffer(stored, _UNSIGNED.get(width, np.dtype("<i8")), n)
    legal = np.iinfo(dtype)
    if not legal.min <= low + int(more.min()) <= low + int(more.max()) <= legal.max:
        raise ValueError(f"value out of range: {legal.min} to {legal.max}")
    return (more.astype(np.int64) + low).astype(dtype)
