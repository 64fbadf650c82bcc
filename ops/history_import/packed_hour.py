"""The packed form of a channel's hour, as the function ``plant.pack`` makes it; schema/tables/samples.sql describes it.

Tests compare it with that function, column by column. There it costs 8 µs a sample, here a twentieth of that.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.batch import Float64s, Int32s, Int64s
from ingest.timestamps import POSTGRES_EPOCH_US

HOUR_US = 3_600_000_000
COLUMNS = (
    *("hour", "start", "step", "base", "divisor", "channel_id", "n", "unit", "status", "single"),
    *("t0", "t1", "t2", "t3", "v0", "v1", "v2", "v3", "float4s", "float8s", "statuses"),
)  # fmt: skip
_MIDDLE = (0, 128, 32_896, 8_421_504, 2_155_905_152)  # by the number of planes: the offsets of 128 in all of them
# Limit of the absolute value, and the decimals that are tried below it: plant.decimals and plant.decimals_of_float4
_DECIMALS = ((9e13, (1, 2)), (9e11, (3, 4)), (9e9, (5, 6)), (9e6, (7, 8, 9)))
_DECIMALS_OF_FLOAT4 = ((9e9, (1, 2, 3, 4, 5, 6)),)
_NONE = 127  # decimals of a value that has no such form

Bytes = NDArray[np.int8]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class PackedHour:
    """A row of ``plant.samples_packed``. None: NULL. Planes: (n,) each."""

    channel_id: int
    hour: int  # µs
    n: int
    start: int  # µs
    step: int  # µs
    unit: int  # µs
    t: Sequence[Bytes]
    base: float
    divisor: float
    single: bool
    v: Sequence[Bytes]
    float4s: tuple[Float64s, Mask] | None  # values, and which of them are there
    float8s: tuple[Float64s, Mask] | None
    status: int
    statuses: Int32s | None


def pack(channel_id: int, hour: int, time: Int64s, value: Float64s, status: Int32s) -> PackedHour:
    """Columns of equal length n ≥ 1; times (µs) ascend and are unique, and are within the hour."""
    start, step, unit, t = _times(time)
    base, divisor, single, v, float4s, float8s = _values(value)
    statuses = None if (status == status[0]).all() else status
    n, first = len(time), int(status[0])
    return PackedHour(
        channel_id, hour, n, start, step, unit, t, base, divisor, single, v, float4s, float8s, first, statuses
    )


def _times(time: Int64s) -> tuple[int, int, int, Sequence[Bytes]]:
    """Start, step, unit and planes."""
    n, first = len(time), int(time[0])
    since = time - first
    places = np.arange(n)
    last = int(since[-1])
    step = 1_000_000 if n == 1 else max(1, round(last / (n - 1)))
    if (since == places * step).all():
        return first, step, 1, ()
    unit = next(unit for unit in (1_000_000, 1000, 1) if not (since % unit).any())
    steps = np.sort(np.diff(since))
    usual = int(steps[(len(steps) - 1) // 2])
    candidates = {
        round(last / (n - 1) / unit) * unit,
        usual,
        round(usual / 1000) * 1000,
        round(usual / 10_000) * 10_000,
    }
    found = []
    for candidate in (one for one in candidates if one >= unit and one % unit == 0):
        deviation = since - places * candidate
        found.append((int(deviation.max() - deviation.min()), candidate, int(deviation.min())))
    extent, step, least = min(found)
    number = _planes(extent / unit)
    assert number is not None  # an hour has fewer than 2^32 µs
    planes = _split((since - places * step - least) // unit, number)
    return first + least + _MIDDLE[number] * unit, step, unit, planes


def _values(
    value: Float64s,
) -> tuple[float, float, bool, Sequence[Bytes], tuple[Float64s, Mask] | None, tuple[Float64s, Mask] | None]:
    """Base, divisor, single, planes, float4s and float8s."""
    n = len(value)
    needed = n - n // 16
    with np.errstate(all="ignore"):
        decimals, single = _decimals(value), False
        k = _enough(decimals, needed)
        if k is None and np.count_nonzero(is_single := _is_float4(value)) >= needed:
            single, decimals = True, _decimals_of_float4(value, is_single)
            k = _enough(decimals, needed)
        divisor = 1.0 if k is None else 10.0**k
        has_form = np.zeros(n, bool) if k is None else (decimals <= k) & (np.abs(value) < 9e15 / divisor)
        planes: Sequence[Bytes] = ()
        base, float4s = 0.0, None
        whole = np.where(has_form, np.rint(value * divisor), 0.0)
        back = np.zeros(n)
        number = None
        if has_form.any():
            least, most = whole[has_form].min(), whole[has_form].max()
            number = _planes(most - least)
        if number is None or (single and number > 2):
            divisor = 1.0
            if single:
                float4s = (value, is_single)
                back = np.where(is_single, value, 0.0)
            single = False
        else:
            offsets = np.where(has_form, whole - least, 0.0)
            base = float(least + _MIDDLE[number])
            planes = _split(offsets.astype(np.int64), number)
            back = (least + offsets) / divisor
            if single:
                back = back.astype(np.float32).astype(np.float64)
        differs = back.view(np.int64) != value.view(np.int64)
    return base, divisor, single, planes, float4s, (value, differs) if differs.any() else None


def _enough(decimals: NDArray[np.int8], needed: int) -> int | None:
    """The fewest decimals that so many values have."""
    upto = np.cumsum(np.bincount(decimals, minlength=10)[:10])
    places = np.flatnonzero(upto >= needed)
    return int(places[0]) if len(places) else None


def _decimals(value: Float64s) -> NDArray[np.int8]:
    """``plant.decimals`` of each."""
    size = np.abs(value)
    found = np.full(len(value), _NONE, np.int8)
    found[(np.rint(value) == value) & (size < 9e15) & ~((value == 0) & np.signbit(value))] = 0
    found[(value == 0) & np.signbit(value)] = _NONE
    return _tried(value, value, size, found, _DECIMALS)


def _decimals_of_float4(value: Float64s, is_single: Mask) -> NDArray[np.int8]:
    """``plant.decimals_of_float4`` of each."""
    size = np.abs(value)
    found = np.full(len(value), _NONE, np.int8)
    found[is_single & (np.rint(value) == value) & (size < 9e15)] = 0
    limited = np.where(is_single, size, np.inf)
    return _tried(value, value.astype(np.float32), limited, found, _DECIMALS_OF_FLOAT4)


def _tried(
    value: Float64s,
    wanted: NDArray[np.floating],
    size: Float64s,
    found: NDArray[np.int8],
    steps: Sequence[tuple[float, Sequence[int]]],
) -> NDArray[np.int8]:
    """``found``, with the decimals of those that are not integers and come back in the type of ``wanted``."""
    open_ = np.flatnonzero((found == _NONE) & (np.rint(value) != value))
    for limit, decimals in steps:
        open_ = open_[size[open_] < limit]
        for k in decimals:
            if not len(open_):
                return found
            back = (np.rint(value[open_] * 10.0**k) / 10.0**k).astype(wanted.dtype)
            same = back == wanted[open_]
            found[open_[same]] = k
            open_ = open_[~same]
    return found


def _is_float4(value: Float64s) -> Mask:
    """``plant.is_float4`` of each."""
    size = np.abs(value)
    same: Mask = value.astype(np.float32).astype(np.float64) == value
    return np.where((size >= 1e-30) & (size <= 1e30), same, value.view(np.int64) == 0)


def _planes(extent: float) -> int | None:
    """How many planes integers from 0 to ``extent`` need. None: more than four."""
    if extent == 0:
        return 0
    return next((number for number in range(1, 5) if extent < 256**number), None)


def _split(number: Int64s, planes: int) -> Sequence[Bytes]:
    return [((number >> 8 * place & 255) - 128).astype(np.int8) for place in range(planes)]


_ARRAY = struct.Struct(">iiiiii")  # bytes, dimensions, has NULLs, type, elements, first index
_SCALARS = struct.Struct(">h" + "iq" * 3 + "id" * 2 + "ii" * 4 + "ib")
_CHAR, _INT4, _FLOAT4, _FLOAT8 = 18, 23, 700, 701  # types in pg_type
_NULL = struct.pack(">i", -1)


def copy_row(hour: PackedHour) -> bytes:
    """The row in PostgreSQL's binary COPY format, with the columns :data:`COLUMNS`."""
    scalars = _SCALARS.pack(
        len(COLUMNS),
        *(8, hour.hour - POSTGRES_EPOCH_US, 8, hour.start - POSTGRES_EPOCH_US, 8, hour.step),
        *(8, hour.base, 8, hour.divisor),
        *(4, hour.channel_id, 4, hour.n, 4, hour.unit, 4, hour.status, 1, hour.single),
    )
    planes = [
        _array(_CHAR, planes[place], "i1") if place < len(planes) else _NULL
        for planes in (hour.t, hour.v)
        for place in range(4)
    ]
    float4s = _NULL if hour.float4s is None else _with_nulls(_FLOAT4, *hour.float4s, ">f4")
    float8s = _NULL if hour.float8s is None else _with_nulls(_FLOAT8, *hour.float8s, ">f8")
    statuses = _NULL if hour.statuses is None else _array(_INT4, hour.statuses, ">i4")
    return b"".join((scalars, *planes, float4s, float8s, statuses))


def _array(kind: int, values: NDArray[np.generic], form: str) -> bytes:
    elements = np.empty(len(values), [("length", ">i4"), ("value", form)])
    elements["length"] = elements["value"].itemsize
    elements["value"] = values
    return _ARRAY.pack(_ARRAY.size - 4 + elements.nbytes, 1, 0, kind, len(values), 1) + elements.tobytes()


def _with_nulls(kind: int, values: Float64s, there: Mask, form: str) -> bytes:
    """Elements that are not there are NULL. Doubles as bits: converting one could change the bits of a NaN."""
    bits = values.view(np.uint64) if form == ">f8" else values.astype(np.float32).view(np.uint32)
    one = bits.dtype.newbyteorder(">")
    if there.all():
        return _array(kind, bits, one.str)
    length = struct.pack(">i", one.itemsize)
    elements = b"".join(
        length + number if is_there else _NULL
        for number, is_there in zip(_cells(bits.astype(one).tobytes(), one.itemsize), there.tolist(), strict=True)
    )
    return _ARRAY.pack(_ARRAY.size - 4 + len(elements), 1, 1, kind, len(values), 1) + elements


def _cells(content: bytes, size: int) -> list[bytes]:
    return [content[place : place + size] for place in range(0, len(content), size)]
