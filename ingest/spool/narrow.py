"""Columns of integers in as few bytes as they need: the least value, and what each value is more than that.

Increments are alike: mostly of no channel and one at a time, all in the same second. Whole they are 24 bytes each, so
some 4, which is what the disk has to do.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingest.batch import Int32s, Int64s

Form: TypeAlias = tuple[int, int]  # the least value, and bytes a value: 0, 1, 2, 4 or 8

_UNSIGNED: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}
_WHOLE = 8  # bytes; the values themselves


def narrowed(column: Int32s | Int64s, *, least_bytes: int = 0) -> tuple[Form, bytes]:
    """The form and the bytes of a column of n ≥ 1 values; n times as many bytes as the form says."""
    low = int(column.min())
    span = int(column.max()) - low
    width = max(least_bytes, next((w for w in (0, 1, 2, 4) if span < 256**w), _WHOLE))
    if width == 0:
        return (low, 0), b""
    if width == _WHOLE:
        return (0, _WHOLE), column.astype("<i8").tobytes()
    return (low, width), (column - column.dtype.type(low)).astype(_UNSIGNED[width]).tobytes()


def widened(form: Form, stored: memoryview, n: int, dtype: type[np.int32 | np.int64]) -> NDArray[Any]:
    """The n values; ``form`` holds 64-bit numbers. Raises ValueError where it is none, or a value is no ``dtype``."""
    low, width = form
    if width not in (0, *_UNSIGNED, _WHOLE):
        raise ValueError(f"{width} bytes a value")
    more: NDArray[Any] = np.zeros(n, np.int64)
    if width:
        more = np.frombuffer(stored, _UNSIGNED.get(width, np.dtype("<i8")), n)
    legal = np.iinfo(dtype)
    if not legal.min <= low + int(more.min()) <= low + int(more.max()) <= legal.max:
        raise ValueError(f"a value that is not between {legal.min} and {legal.max}")
    return (more.astype(np.int64) + low).astype(dtype)
