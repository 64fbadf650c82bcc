"""Rollup rows as PostgreSQL's binary COPY streams. See ``copy_stream``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.timestamps import POSTGRES_EPOCH_US
from ingest.writer.copy_stream import HEADER, TRAILER
from ingest.writer.rollup_rows import Rows, States

MINUTE_COLUMNS = (
    *("channel_id", "n", "bucket", "n_good", "sum", "area", "known", "holds"),
    *("min", "max", "first", "last", "first_time", "last_time"),
)
STATE_COLUMNS = ("channel_id", "bucket", "state", "n", "known")

_Field: TypeAlias = tuple[str, Any]  # numpy type of a field, and its values; None: NULL


def minute_stream(rows: Rows, begin: int) -> memoryview:
    """``MINUTE_COLUMNS`` of the minute that starts at ``begin`` (µs); rows without a good sample come last."""
    good = rows.n_good > 0
    return _stream(_minutes(rows.part(good), begin, True), _minutes(rows.part(~good), begin, False))


def _minutes(rows: Rows, begin: int, good: bool) -> NDArray[np.uint8]:
    numbers: list[_Field] = [
        (">f8", column if good else None) for column in (rows.min, rows.max, rows.first, rows.last)
    ]
    times: list[_Field] = [
        (">i8", column - POSTGRES_EPOCH_US if good else None) for column in (rows.first_time, rows.last_time)
    ]
    fields: list[_Field] = [
        (">i4", rows.channel_id),
        (">i4", rows.n),
        (">i8", begin - POSTGRES_EPOCH_US),
        (">i4", rows.n_good),
        (">f8", rows.sum),
        (">f8", rows.area),
        (">i8", rows.known),
        ("u1", rows.holds),
    ]
    return _tuples(len(rows), [*fields, *numbers, *times])


def state_stream(states: States, begin: int) -> memoryview:
    """``STATE_COLUMNS`` of the minute that starts at ``begin`` (µs)."""
    fields: list[_Field] = [
        (">i4", states.channel_id),
        (">i8", begin - POSTGRES_EPOCH_US),
        (">f8", states.state),
        (">i4", states.entered),
        (">i8", states.known),
    ]
    return _stream(_tuples(len(states.channel_id), fields))


def _tuples(n: int, fields: Sequence[_Field]) -> NDArray[np.uint8]:
    """The bytes of ``n`` tuples: number of fields, then length (-1: NULL) and value of each."""
    dtype: list[tuple[str, str]] = [("fields", ">i2")]
    for place, (kind, values) in enumerate(fields):
        dtype += [(f"length{place}", ">i4"), *([(f"value{place}", kind)] if values is not None else [])]
    rows = np.empty(n, np.dtype(dtype))
    rows["fields"] = len(fields)
    for place, (kind, values) in enumerate(fields):
        rows[f"length{place}"] = -1 if values is None else np.dtype(kind).itemsize
        if values is not None:
            rows[f"value{place}"] = values
    return rows.view(np.uint8)


def _stream(*tuples: NDArray[np.uint8]) -> memoryview:
    header, trailer = np.frombuffer(HEADER, np.uint8), np.frombuffer(TRAILER, np.uint8)
    return np.concatenate((header, *tuples, trailer)).data
