"""Raw values by which a device says that it has no value, such as 65535: the column ``no_data`` of tag lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.batch import Float64s
from core.config.sources import INTEGERS, NUMBERS

BAD_NO_DATA = 0x80B1_0000  # BadNoDataAvailable (OPC 10000-6, A.2)

_Range: TypeAlias = tuple[float, float]  # lowest and highest value; NaN: a NaN
_EXACT = 2.0**64  # integers below are compared exactly
_SIZES = {16 * NUMBERS[name].registers for name in INTEGERS}  # bits


class NoData:
    """The values of some channels. ``cells``: (key, cell), where a key is a channel id or an index."""

    def __init__(self, cells: Iterable[tuple[int, str]]) -> None:
        ranges = {key: list(_ranges(cell)) for key, cell in cells if cell}
        keys = sorted(ranges)
        width = max(map(len, ranges.values()), default=0)
        self._keys = np.array(keys, np.int64)
        # (channels + 1, width) the last row is for channels without such values
        self._low, self._high = np.full((len(keys) + 1, width), np.inf), np.full((len(keys) + 1, width), -np.inf)
        self._nan = np.zeros(len(keys) + 1, bool)
        for row, key in enumerate(keys):
            for column, (low, high) in enumerate(ranges[key]):
                if np.isnan(low):
                    self._nan[row] = True
                else:
                    self._low[row, column], self._high[row, column] = low, high

    def __bool__(self) -> bool:
        return bool(len(self._keys))

    def mask(self, keys: NDArray[np.integer], values: Float64s) -> NDArray[np.bool_]:
        """Mask of the raw values (n,) of ``keys`` that mean no value."""
        row = np.searchsorted(self._keys, keys)
        row[np.append(self._keys, -1)[row] != keys] = len(self._keys)
        within = (values[:, None] >= self._low[row]) & (values[:, None] <= self._high[row])
        no_data: NDArray[np.bool_] = within.any(axis=1) | (self._nan[row] & np.isnan(values))
        return no_data


def _ranges(cell: str) -> Iterator[_Range]:
    for part in cell.split(";"):
        low, _, high = part.strip().partition("..")
        if low.startswith("0x") and not high:  # bits: 0x8000 is -32768, too
            size = 4 * len(low[2:])
            if size in _SIZES and (bits := int(low, 16)) >= 2 ** (size - 1):
                yield float(bits - 2**size), float(bits - 2**size)
        lowest, highest = _number(low), _number(high or low)
        # A float32 is not equal to the decimal number that is written for it.
        if not (lowest.is_integer() and abs(lowest) < _EXACT):
            lowest = min(lowest, _single(lowest))
        if not (highest.is_integer() and abs(highest) < _EXACT):
            highest = max(highest, _single(highest))
        yield lowest, highest


def _number(text: str) -> float:
    return float(int(text, 16)) if "x" in text else float(text)


def _single(number: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(number))
