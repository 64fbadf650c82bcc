"""Rows of ``plant.samples_packed`` in PostgreSQL's binary formats: a COPY stream in, arrays as they are sent out."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import asyncpg
import numpy as np
from numpy.typing import NDArray

from core.batch import Int64s
from core.copy_stream import HEADER, TRAILER
from core.samples import Samples
from core.timestamps import POSTGRES_EPOCH_US, microseconds
from history.codec.packed_hours import PackedHours
from history.codec.scaling import Bits, unscale
from history.codec.segments import Mask, Segments
from history.codec.times import PLANES_MIDDLE, Lines

COLUMNS = (
    *("hour", "start", "step", "base", "divisor", "channel_id", "n", "unit", "status", "single"),
    *("t0", "t1", "t2", "t3", "v0", "v1", "v2", "v3", "float4s", "float8s", "statuses"),
)  # fmt: skip
_SCALARS = (
    *(("hour", ">i8"), ("start", ">i8"), ("step", ">i8"), ("base", ">f8"), ("divisor", ">f8")),
    *(("channel_id", ">i4"), ("n", ">i4"), ("unit", ">i4"), ("status", ">i4"), ("single", ">i1")),
)  # fmt: skip
_ROW = np.dtype(
    [("fields", ">i2"), *(field for name, kind in _SCALARS for field in ((f"{name}_length", ">i4"), (name, kind)))]
)
_ARRAY = struct.Struct(">iiiiii")  # bytes, dimensions, has NULLs, type, elements, first index
_HEAD = 20  # bytes of an array, as it is sent, before its elements
_CHAR, _INT4, _FLOAT4, _FLOAT8 = 18, 23, 700, 701  # types in pg_type
_NULL = struct.pack(">i", -1)
Row: TypeAlias = "Mapping[str, Any] | asyncpg.Record"


def copy_stream(hours: PackedHours) -> bytes:
    """The bytes for ``COPY samples_packed FROM STDIN (FORMAT binary)`` with the columns :data:`COLUMNS`."""
    segments = hours.segments
    status = hours.status[segments.begins]
    several = ~segments.all(hours.status == segments.each(status))
    columns: list[list[bytes]] = [_scalars(hours, status)]
    for planes, numbers in ((hours.lines.planes, hours.lines.deviation), (hours.planes, hours.numbers)):
        for place in range(4):
            columns.append(
                _arrays(_CHAR, segments, planes > place, (numbers >> 8 * place & 255 ^ 128).astype(np.uint8))
            )
    value = hours.value
    float4 = np.where(hours.is_float4, value.view(np.float64), 0).astype(np.float32)
    columns.append(_arrays(_FLOAT4, segments, segments.any(hours.is_float4), float4, hours.is_float4))
    columns.append(_arrays(_FLOAT8, segments, segments.any(hours.is_float8), value, hours.is_float8))
    columns.append(_arrays(_INT4, segments, several, hours.status))
    return b"".join((HEADER, *(field for row in zip(*columns, strict=True) for field in row), TRAILER))


def _scalars(hours: PackedHours, status: NDArray[np.int32]) -> list[bytes]:
    """The fields without arrays, of each row."""
    rows = np.zeros(len(hours.segments), _ROW)
    lines = hours.lines
    rows["fields"] = len(COLUMNS)
    for (name, kind), column in zip(
        _SCALARS,
        (
            *(hours.hour - POSTGRES_EPOCH_US, lines.start - POSTGRES_EPOCH_US, lines.step, hours.base, hours.divisor),
            *(hours.channel_id, hours.segments.lengths, lines.unit, status, hours.single),
        ),
        strict=True,
    ):
        rows[f"{name}_length"] = np.dtype(kind).itemsize
        rows[name] = column
    sent, size = rows.tobytes(), _ROW.itemsize
    return [sent[place : place + size] for place in range(0, len(sent), size)]


def _arrays(
    kind: int, segments: Segments, there: Mask, elements: NDArray[Any], present: Mask | None = None
) -> list[bytes]:
    """An array for each segment, NULL where none is ``there``. Elements that are not ``present`` are NULL."""
    if not there.any():
        return [_NULL] * len(segments)
    part, where = segments.some(there)
    raw = elements[where]
    size = raw.itemsize
    # As bits: converting a double could change the bits of a NaN.
    cells = np.empty((part.n, 4 + size), np.uint8)
    cells[:, :4] = (0, 0, 0, size)
    cells[:, 4:] = raw.view(f"u{size}").astype(f">u{size}").view(np.uint8).reshape(-1, size)
    lengths, has_null = part.lengths * (4 + size), np.zeros(len(part), np.bool_)
    if present is not None and not present[where].all():
        kept = present[where]
        cells[~kept, :4] = 255
        lengths = part.count(kept) * size + part.lengths * 4
        has_null = ~part.all(kept)
        shown = np.ones(cells.shape, np.bool_)
        shown[:, 4:] = kept[:, None]
        cells = cells[shown]
    content, ends = cells.tobytes(), np.cumsum(lengths).tolist()
    arrays = iter(
        _ARRAY.pack(_HEAD + end - begin, 1, nulls, kind, n, 1) + content[begin:end]
        for begin, end, n, nulls in zip([0, *ends[:-1]], ends, part.lengths.tolist(), has_null.tolist(), strict=True)
    )
    return [next(arrays) if one else _NULL for one in there.tolist()]


def samples_of(rows: Sequence[Row]) -> tuple[Segments, Samples]:
    """The samples of rows, at least one, of section ``select_samples`` of evidence.sql, or with the same columns."""
    segments = Segments.of_lengths(np.array([row["n"] for row in rows], np.int64))

    def column(name: str, kind: Any = np.int64) -> NDArray[Any]:
        return np.array([row[name] for row in rows], kind)

    start = np.array([microseconds(row["start"]) for row in rows], np.int64)
    deviation, planes = _numbers(rows, "t", segments)
    lines = Lines(start, column("step"), column("unit"), planes, deviation)
    numbers, planes = _numbers(rows, "v", segments)
    each = segments.each
    scaled = each(column("base", np.float64) - PLANES_MIDDLE[planes]) + numbers
    bits: Bits = unscale(scaled, each(column("divisor", np.float64)), each(column("single", np.bool_))).view(np.uint64)
    _fill(bits, rows, "float4s", ">f4", segments)
    _fill(bits, rows, "float8s", ">u8", segments)
    status = each(column("status") & 0xFFFF_FFFF).astype(np.uint32)
    _fill(status, rows, "statuses", ">u4", segments)
    return segments, Samples(each(column("channel_id", np.int32)), lines.times(segments), bits.view(np.float64), status)


def elements(sent: bytes, kind: str) -> NDArray[Any]:
    """The elements of a one-dimensional array without NULLs, as PostgreSQL's array_send writes it."""
    return np.frombuffer(sent, np.dtype([("length", ">i4"), ("element", kind)]), offset=_HEAD)["element"]


def _numbers(rows: Sequence[Row], name: str, segments: Segments) -> tuple[Int64s, NDArray[np.int64]]:
    """Integers by their bytes, and how many bytes each row has of them."""
    numbers, planes = np.zeros(segments.n, np.int64), np.zeros(len(rows), np.int64)
    for place in range(4):
        arrays = [row[name][place] for row in rows]
        there = np.array([array is not None for array in arrays])
        if not there.any():
            break
        planes += there
        content = b"".join([array[_HEAD:] for array in arrays if array is not None])
        plane = np.frombuffer(content, np.dtype([("length", ">i4"), ("element", "u1")]))["element"]
        where = slice(None) if there.all() else segments.each(there)
        numbers[where] += (plane ^ 128).astype(np.int64) << 8 * place
    return numbers, planes


def _fill(column: NDArray[Any], rows: Sequence[Row], name: str, kind: str, segments: Segments) -> None:
    """Put the elements of arrays that are there in their places."""
    for row, begin, end in zip(rows, segments.begins.tolist(), segments.ends.tolist(), strict=True):
        if (sent := row[name]) is not None:
            found, present = _optional(sent, kind, end - begin)
            bits = found.astype(np.float64).view(np.uint64) if kind == ">f4" else found
            np.copyto(column[begin:end], bits, "unsafe", present)


def _optional(sent: bytes, kind: str, n: int) -> tuple[NDArray[Any], Mask]:
    """The elements of an array, and which are not NULL."""
    if not any(sent[4:8]):  # flags: there is no NULL
        return elements(sent, kind), np.ones(n, np.bool_)
    found, present = np.zeros(n, kind), np.zeros(n, np.bool_)
    place = _HEAD
    for i in range(n):
        size = int.from_bytes(sent[place : place + 4], "big", signed=True)
        place += 4
        if size > 0:
            found[i : i + 1] = np.frombuffer(sent, kind, 1, place)
            present[i] = True
            place += size
    return found, present
