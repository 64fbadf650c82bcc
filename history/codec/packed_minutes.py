"""Minutes of days of many channels: rows of ``plant.rollup_1m`` in, rows of ``plant.rollup_1m_packed`` out.

Both are PostgreSQL's binary COPY streams. schema/tables/rollups.sql describes the form.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.copy_stream import HEADER, TRAILER
from core.errors import DatabaseError
from core.timestamps import DAY_US, MINUTE_US, POSTGRES_EPOCH_US, timestamp
from history.codec.copy_fields import INT4, arrays, integers, packed_numbers, row_type, scalars, stream
from history.codec.packed_numbers import PackedNumbers
from history.codec.scaling import Bits
from history.codec.segments import Mask, Segments

_NO_TIME = np.iinfo(np.int64).min  # -infinity
_COUNTS = ("n", "n_good", "known", "holds")
_TIMES = ("first_at", "last_at")
_SUMS = ("sum", "area")
_VALUES = ("min", "max", "first", "last")  # NULL where no sample of the minute is Good
COLUMNS = (
    *("day", "channel_id", "rows", *_COUNTS, *_TIMES),
    *("minute_", *(f"{name}_" for name in (*_COUNTS, *_TIMES)), *_VALUES, *_SUMS),
)
_PACKED = row_type((("day", ">i8"), *((name, ">i4") for name in ("channel_id", "rows", *_COUNTS))))
_ROW = row_type(  # of section move_minutes of packing.sql
    (
        *(
            ("channel_id", ">i4"),
            ("n", ">i4"),
            ("n_good", ">i4"),
            ("holds", ">i4"),
            ("bucket", ">i8"),
            ("known", ">i8"),
        ),
        *(("first_time", ">i8"), ("last_time", ">i8")),
        *((name, ">u8") for name in (*_VALUES, *_SUMS)),
        ("values", ">i4"),
    )
)


def packed_stream(sent: bytes) -> bytes | None:
    """A stream with :data:`COLUMNS` of the minutes that section ``move_minutes`` of packing.sql sent; None: of none.

    Raises DatabaseError for rows that the form does not hold, and ArithmeticError where values would not come back to
    the bit, which would be our mistake.
    """
    n = (len(sent) - len(HEADER) - len(TRAILER)) // _ROW.itemsize
    if n == 0:
        return None
    rows = np.frombuffer(sent, _ROW, n, len(HEADER))
    rows = rows[np.lexsort((rows["bucket"], rows["channel_id"]))]
    bucket = rows["bucket"].astype(np.int64)
    day = (bucket + POSTGRES_EPOCH_US) // DAY_US * DAY_US - POSTGRES_EPOCH_US
    segments = Segments.of_runs(rows["channel_id"], day)
    minute = (bucket - day) // MINUTE_US
    good = rows["n_good"] > 0
    counts = [rows[name].astype(np.int32) for name in _COUNTS]
    times = [_since(rows[f"{name.partition('_')[0]}_time"].astype(np.int64), bucket) for name in _TIMES]
    if not (
        np.array_equal(rows["values"], np.where(good, len(_VALUES), 0))
        and all(np.array_equal(count, rows[name]) for count, name in zip(counts, _COUNTS, strict=True))
        and all((present | (since == 0)).all() for since, present in times)
        and (np.diff(minute)[np.diff(segments.repeated(segments.begins)) == 0] > 0).all()
    ):
        raise DatabaseError(
            f"minutes of {timestamp(int(day[0]) + POSTGRES_EPOCH_US):%Y-%m-%d} are not packed: "
            "a row has values without a Good sample, or a time outside its minute"
        )
    begins = segments.begins
    values = [_filled(rows[name].astype(np.uint64), rows["min"].astype(np.uint64), good, segments) for name in _VALUES]
    sums = [rows[name].astype(np.uint64) for name in _SUMS]
    constant = [_constant(since, present, segments) for since, present in times]
    head = day[begins], rows["channel_id"][begins], segments.lengths, *(column[begins] for column in counts)
    return stream(
        [
            scalars(_PACKED, len(COLUMNS), head),
            *(
                integers(since[begins], same & present[begins])
                for (since, present), same in zip(times, constant, strict=True)
            ),
            arrays(INT4, segments, segments.lengths < 1440, minute.astype(np.int32)),
            *(arrays(INT4, segments, ~_constant(column, None, segments), column) for column in counts),
            *(
                arrays(INT4, segments, ~same, since, present)
                for (since, present), same in zip(times, constant, strict=True)
            ),
            *(packed_numbers(PackedNumbers.of_bits(column, segments)) for column in (*values, *sums)),
        ]
    )


def _since(time: NDArray[np.int64], bucket: NDArray[np.int64]) -> tuple[NDArray[np.int32], Mask]:
    """µs from the begin of the minute, 0 where there is no time, and where there is one within it."""
    since = np.where(time == _NO_TIME, 0, time - bucket)
    is_within = (time != _NO_TIME) & (since >= 0) & (since < MINUTE_US)
    return np.clip(since, -1, MINUTE_US).astype(np.int32), is_within


def _constant(column: NDArray[Any], present: Mask | None, segments: Segments) -> Mask:
    """Mask of the segments whose rows all have the same value, (m,)."""
    same = segments.all(column == segments.repeated(column[segments.begins]))
    return same if present is None else same & segments.all(present == segments.repeated(present[segments.begins]))


def _filled(bits: Bits, least: Bits, good: Mask, segments: Segments) -> Bits:
    """The column with a value for what is missing that does not widen the range: the smallest one, or 0."""
    if good.all():
        return bits
    smallest = segments.least(np.where(good, least.view(np.float64), np.inf))
    filled: Bits = np.where(good, bits.view(np.float64), segments.repeated(np.where(segments.any(good), smallest, 0.0)))
    return filled.view(np.uint64)
