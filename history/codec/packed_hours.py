"""Packed hours: samples of hours of many channels, to and from rows of ``plant.samples_packed``, in columns.

Rows are inserted as a binary COPY stream, and selected as the arrays that the server sends.
schema/tables/samples.sql describes the form.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias, cast

import asyncpg
import numpy as np
from numpy.typing import NDArray

from core.batch import Int32s, Int64s
from core.samples import NO_SAMPLES, Samples
from core.timestamps import HOUR_US, POSTGRES_EPOCH_US, microseconds, timestamp
from history.codec.copy_fields import ARRAY_HEAD, INT4, arrays, byte_planes, floats, row_type, scalars, stream
from history.codec.packed_numbers import PackedNumbers
from history.codec.scaling import Bits, unscale
from history.codec.segments import Mask, Segments
from history.codec.times import PLANES_MIDDLE, Lines, fit
from schema.queries import load

COLUMNS = (
    *("hour", "start", "step", "base", "divisor", "channel_id", "n", "unit", "status", "single"),
    *("t0", "t1", "t2", "t3", "v0", "v1", "v2", "v3", "float4s", "float8s", "statuses"),
)  # fmt: skip
_ROW = row_type(
    (
        *(("hour", ">i8"), ("start", ">i8"), ("step", ">i8"), ("base", ">f8"), ("divisor", ">f8")),
        *(("channel_id", ">i4"), ("n", ">i4"), ("unit", ">i4"), ("status", ">i4"), ("single", ">i1")),
    )
)
Row: TypeAlias = "Mapping[str, Any] | asyncpg.Record"


@dataclass(frozen=True, slots=True, eq=False)
class PackedHours:
    """Hours of channels, m ≥ 1 rows of ``plant.samples_packed``, with n samples in all."""

    segments: Segments
    channel_id: Int32s  # (m,)
    hour: Int64s  # (m,) µs
    lines: Lines
    value: PackedNumbers
    status: Int32s  # (n,)


def pack(channel_id: Int32s, time: Int64s, bits: Bits, status: Int32s) -> PackedHours:
    """Pack samples by channel and time, n ≥ 1, each time (µs) of a channel once.

    Raises ArithmeticError where they would not come back to the bit, which would be our mistake.
    """
    hour = time // HOUR_US * HOUR_US
    segments = Segments.of_runs(channel_id, hour)
    begins = segments.begins
    lines = fit(time, segments)
    if not np.array_equal(lines.times(segments), time):
        raise ArithmeticError(f"times of hours from {int(hour.min())} µs on do not come back from the packed form")
    return PackedHours(segments, channel_id[begins], hour[begins], lines, PackedNumbers.of_bits(bits, segments), status)


def copy_stream(hours: PackedHours) -> bytes:
    """The bytes for ``COPY samples_packed FROM STDIN (FORMAT binary)`` with the columns :data:`COLUMNS`."""
    segments, lines, value = hours.segments, hours.lines, hours.value
    status = hours.status[segments.begins]
    several = ~segments.all(hours.status == segments.repeated(status))
    times = hours.hour - POSTGRES_EPOCH_US, lines.start - POSTGRES_EPOCH_US, lines.step
    head = *times, value.base, value.divisor, hours.channel_id, segments.lengths, lines.unit, status, value.single
    return stream(
        [
            scalars(_ROW, len(COLUMNS), head),
            *byte_planes(lines.deviation, lines.planes, segments),
            *byte_planes(value.numbers, value.planes, segments),
            *floats(value),
            arrays(INT4, segments, several, hours.status),
        ]
    )


def samples_of(rows: Sequence[Row]) -> Samples:
    """The samples of rows of section ``select_samples`` of evidence.sql, or with the same columns, in their order."""
    if not rows:
        return NO_SAMPLES
    segments = Segments.of_lengths(np.array([row["n"] for row in rows], np.int64))

    def column(name: str, kind: Any = np.int64) -> NDArray[Any]:
        return np.array([row[name] for row in rows], kind)

    start = np.array([microseconds(row["start"]) for row in rows], np.int64)
    deviation, planes = _numbers(rows, "t", segments)
    lines = Lines(start, column("step"), column("unit"), planes, deviation)
    numbers, planes = _numbers(rows, "v", segments)
    repeated = segments.repeated
    scaled = repeated(column("base", np.float64) - PLANES_MIDDLE[planes]) + numbers
    bits: Bits = unscale(scaled, repeated(column("divisor", np.float64)), repeated(column("single", np.bool_))).view(
        np.uint64
    )
    _fill(bits, rows, "float4s", ">f4", segments)
    _fill(bits, rows, "float8s", ">u8", segments)
    status = repeated(column("status") & 0xFFFF_FFFF).astype(np.uint32)
    _fill(status, rows, "statuses", ">u4", segments)
    return Samples(repeated(column("channel_id", np.int32)), lines.times(segments), bits.view(np.float64), status)


def elements(sent: bytes, kind: str) -> NDArray[Any]:
    """The elements of a one-dimensional array without NULLs, as PostgreSQL's array_send writes it."""
    return np.frombuffer(sent, np.dtype([("length", ">i4"), ("element", kind)]), offset=ARRAY_HEAD)["element"]


def _numbers(rows: Sequence[Row], name: str, segments: Segments) -> tuple[Int64s, NDArray[np.int64]]:
    """Integers by their bytes, and how many bytes each row has of them."""
    numbers, planes = np.zeros(segments.n, np.int64), np.zeros(len(rows), np.int64)
    for number in range(4):
        arrays = [row[name][number] for row in rows]
        has_array = np.array([array is not None for array in arrays])
        if not has_array.any():
            break
        planes += has_array
        content = b"".join([array[ARRAY_HEAD:] for array in arrays if array is not None])
        plane = np.frombuffer(content, np.dtype([("length", ">i4"), ("element", "u1")]))["element"]
        rows_there = slice(None) if has_array.all() else segments.repeated(has_array)
        numbers[rows_there] += (plane ^ 128).astype(np.int64) << 8 * number
    return numbers, planes


def _fill(column: NDArray[Any], rows: Sequence[Row], name: str, kind: str, segments: Segments) -> None:
    """Fill the column with the elements of the arrays that are not NULL."""
    for row, begin, end in zip(rows, segments.begins.tolist(), segments.ends.tolist(), strict=True):
        if (sent := row[name]) is not None:
            values, present = _optional(sent, kind, end - begin)
            bits = values.astype(np.float64).view(np.uint64) if kind == ">f4" else values
            np.copyto(column[begin:end], bits, "unsafe", present)


def _optional(sent: bytes, kind: str, n: int) -> tuple[NDArray[Any], Mask]:
    """The elements of an array, and which are not NULL."""
    if not any(sent[4:8]):  # flags: there is no NULL
        return elements(sent, kind), np.ones(n, np.bool_)
    values, present = np.zeros(n, kind), np.zeros(n, np.bool_)
    at = ARRAY_HEAD
    for i in range(n):
        size = int.from_bytes(sent[at : at + 4], "big", signed=True)
        at += 4
        if size > 0:
            values[i : i + 1] = np.frombuffer(sent, kind, 1, at)
            present[i] = True
            at += size
    return values, present


async def insert(connection: asyncpg.Connection[Any], samples: Samples) -> None:
    """Pack and copy hours of which nothing is packed, in the caller's transaction; n ≥ 1 by channel and time."""
    hours, stream = await asyncio.to_thread(_encoded, samples)
    source = cast(Any, memoryview(stream))
    await connection.copy_to_table(
        "samples_packed", schema_name="plant", source=source, columns=COLUMNS, format="binary"
    )
    last = np.append(np.flatnonzero(np.diff(hours.channel_id)), len(hours.segments) - 1)
    until = [timestamp(hour + HOUR_US) for hour in hours.hour[last].tolist()]
    await connection.execute(load("packing")["record_packed"], hours.channel_id[last].tolist(), until)


def _encoded(samples: Samples) -> tuple[PackedHours, bytes]:
    hours = pack(samples.channel, samples.time, samples.bits, samples.status.view(np.int32))
    return hours, copy_stream(hours)


async def select(connection: asyncpg.Connection[Any], hour: datetime, channels: Sequence[int]) -> Samples:
    """The packed samples of an hour, by channel and time."""
    rows = await connection.fetch(load("packing")["select_packed"], hour, channels)
    return samples_of(rows)
