"""Fields of PostgreSQL's binary COPY streams, for many rows at once: each is its length and its bytes, or NULL.

Format: https://www.postgresql.org/docs/17/sql-copy.html ("Binary Format"); array_send and record_send write the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.copy_stream import HEADER, TRAILER
from history.codec.packed_numbers import PackedNumbers
from history.codec.segments import Mask, Segments

BOOL, CHAR, INT4, FLOAT4, FLOAT8 = 16, 18, 23, 700, 701  # types in pg_type
ARRAY_HEAD = 20  # bytes of an array, as it is sent, before its elements
_ARRAY = struct.Struct(">iiiiii")  # bytes, dimensions, has NULLs, type, elements, first index
_NULL = struct.pack(">i", -1)
_PLANES = 4
# Of plant.packed_numbers, in its order: type and length before each.
_CHARS, _FLOAT4S, _FLOAT8S = (struct.pack(">i", oid) for oid in (1002, 1021, 1022))
_NUMBERS = np.dtype(
    [
        ("fields", ">i4"),
        *(("base_type", ">i4"), ("base_length", ">i4"), ("base", ">f8")),
        *(("divisor_type", ">i4"), ("divisor_length", ">i4"), ("divisor", ">f8")),
        *(("single_type", ">i4"), ("single_length", ">i4"), ("single", ">i1")),
    ]
)


def row_type(fields: Iterable[tuple[str, str]]) -> np.dtype[Any]:
    """The number of fields of a row, and its first fields, without NULLs: names and types."""
    return np.dtype(
        [("fields", ">i2"), *(part for name, kind in fields for part in ((f"{name}_length", ">i4"), (name, kind)))]
    )


def stream(columns: Sequence[Sequence[bytes]]) -> bytes:
    """The bytes for COPY FROM STDIN (FORMAT binary); the first column is of :func:`scalars`."""
    return b"".join((HEADER, *(field for row in zip(*columns, strict=True) for field in row), TRAILER))


def scalars(row: np.dtype[Any], fields: int, columns: Sequence[NDArray[Any]]) -> list[bytes]:
    """The beginning of each row: its number of fields, and the columns of a :func:`row_type`, (m,) each."""
    rows = np.zeros(len(columns[0]), row)
    rows["fields"] = fields
    for name, column in zip((row.names or ())[2::2], columns, strict=True):
        rows[f"{name}_length"] = row[name].itemsize
        rows[name] = column
    return _each(rows)


def integers(column: NDArray[Any], present: Mask) -> list[bytes]:
    """An integer for each row, NULL where it is not ``present``."""
    return [
        struct.pack(">ii", 4, number) if is_present else _NULL
        for number, is_present in zip(column.tolist(), present.tolist(), strict=True)
    ]


def arrays(
    kind: int, segments: Segments, is_array: Mask, elements: NDArray[Any], present: Mask | None = None
) -> list[bytes]:
    """An array for each segment, NULL where none is ``there``. Elements that are not ``present`` are NULL."""
    if not is_array.any():
        return [_NULL] * len(segments)
    part, elements_there = segments.selected(is_array)
    raw = elements[elements_there]
    size = raw.itemsize
    # As bits: converting a double could change the bits of a NaN.
    cells = np.empty((part.n, 4 + size), np.uint8)
    cells[:, :4] = (0, 0, 0, size)
    cells[:, 4:] = raw.view(f"u{size}").astype(f">u{size}").view(np.uint8).reshape(-1, size)
    lengths, has_null = part.lengths * (4 + size), np.zeros(len(part), np.bool_)
    if present is not None and not present[elements_there].all():
        kept = present[elements_there]
        cells[~kept, :4] = 255
        lengths = part.count(kept) * size + part.lengths * 4
        has_null = ~part.all(kept)
        shown = np.ones(cells.shape, np.bool_)
        shown[:, 4:] = kept[:, None]
        cells = cells[shown]
    content, ends = cells.tobytes(), np.cumsum(lengths).tolist()
    encoded = iter(
        _ARRAY.pack(ARRAY_HEAD + end - begin, 1, nulls, kind, n, 1) + content[begin:end]
        for begin, end, n, nulls in zip([0, *ends[:-1]], ends, part.lengths.tolist(), has_null.tolist(), strict=True)
    )
    return [next(encoded) if is_there else _NULL for is_there in is_array.tolist()]


def byte_planes(numbers: NDArray[np.int64], planes: NDArray[np.int64], segments: Segments) -> list[list[bytes]]:
    """Four columns of arrays, of the bytes of numbers ≥ 0, minus 128; NULL beyond the planes of a segment."""
    return [
        arrays(CHAR, segments, planes > plane, (numbers >> 8 * plane & 255 ^ 128).astype(np.uint8))
        for plane in range(_PLANES)
    ]


def floats(packed: PackedNumbers) -> list[list[bytes]]:
    """Two columns of arrays: float4s and float8s."""
    segments = packed.segments
    float4 = np.where(packed.is_float4, packed.value.view(np.float64), 0).astype(np.float32)
    return [
        arrays(FLOAT4, segments, segments.any(packed.is_float4), float4, packed.is_float4),
        arrays(FLOAT8, segments, segments.any(packed.is_float8), packed.value, packed.is_float8),
    ]


def packed_numbers(packed: PackedNumbers) -> list[bytes]:
    """A column of ``plant.packed_numbers``."""
    head = np.zeros(len(packed.segments), _NUMBERS)
    head["fields"] = 9
    for name, kind in (("base", FLOAT8), ("divisor", FLOAT8), ("single", BOOL)):
        head[f"{name}_type"] = kind
        head[f"{name}_length"] = head[name].itemsize
        head[name] = getattr(packed, name)
    planes = byte_planes(packed.numbers, packed.planes, packed.segments)
    types = (*[_CHARS] * _PLANES, _FLOAT4S, _FLOAT8S)
    records = (
        first + b"".join(of_type + field for of_type, field in zip(types, row, strict=True))
        for first, *row in zip(_each(head), *planes, *floats(packed), strict=True)
    )
    return [struct.pack(">i", len(record)) + record for record in records]


def _each(rows: NDArray[Any]) -> list[bytes]:
    """The bytes of each row."""
    sent, size = rows.tobytes(), rows.itemsize
    return [sent[at : at + size] for at in range(0, len(sent), size)]
