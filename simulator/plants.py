"""Plants besides the demo: a load of many channels with constantly changing values, and the replay of a data set."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.errors import OperationError
from simulator.tags import Register, SimTag, tick_for

_OPCUA_CHANNELS = 5000  # at most
_OPCUA_SHARE = 10 / 11
_MAX_HUNDREDTHS = 10_000  # hundredths; then restart at 0
_PER_DEVICE = 5000  # float32 channels per device
_PER_AREA = 100  # asyncua compares each new node with all others of its folder


class LoadPlant:
    """``channels`` ramps with random steps of 0.01, each published ``hz`` times per second.

    Ten of eleven are OPC UA channels, at most 5,000; the rest is Modbus.
    """

    name = "load"
    spread = True  # evenly, like sensor values

    def __init__(self, channels: int, hz: float, seed: int = 1) -> None:
        self._random = np.random.default_rng(seed)
        self._values = self._random.integers(0, _MAX_HUNDREDTHS, channels)
        self.tick = tick_for(1 / hz) if hz >= 0.1 else 0.01 / hz  # 100 steps are smooth enough
        opcua = opcua_channels(channels)
        self.tags = [_load_tag(i, hz, opcua) for i in range(channels)]

    def step(self, seconds: float) -> None:
        """One step of every ramp; always upwards, because unchanged values are not samples."""
        self._values = (self._values + self._random.integers(1, 4, len(self._values))) % _MAX_HUNDREDTHS

    def numbers(self) -> NDArray[np.float64]:
        """All values."""
        return self._values / 100.0

    def text(self, tag: int) -> str:
        """Raise KeyError: there are no texts."""
        raise KeyError(self.tags[tag].name)

    def write(self, signal: str, value: float) -> None:
        """Ignore writes."""


def opcua_channels(channels: int) -> int:
    """Number of OPC UA channels among so many channels."""
    return min(_OPCUA_CHANNELS, math.ceil(channels * _OPCUA_SHARE))


def _load_tag(i: int, hz: float, opcua: int) -> SimTag:
    name, signal = f"load/area{i // _PER_AREA:03d}/c{i:05d}", str(i)
    if i < opcua:
        return SimTag(name, signal, "analog", "%", opcua="Double", period=1 / hz)
    k = i - opcua
    register = Register(f"load{k // _PER_DEVICE + 1}", "holding", 2 * (k % _PER_DEVICE), "float32")
    return SimTag(name, signal, "analog", "%", register=register, period=1 / hz)


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    unit: str = ""
    description: str = ""


class ReplayPlant:
    """Rows of a CSV file with header, or of a space-separated ``.dat`` file with column names in another CSV file."""

    name = "replay"
    spread = False  # all values of a row have the same time

    def __init__(self, file: Path, columns: Path | None, period: float) -> None:
        if period <= 0:
            raise OperationError(f"--replay-period: found {period:g} s; legal: above 0")
        self._columns, self._rows = _read(file, columns)
        self._period = period
        self._elapsed = 0.0
        self._row = 0
        self.tick = tick_for(period)
        self.tags = [_tag(i, column, period) for i, column in enumerate(self._columns)]
        names = [tag.name for tag in self.tags]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise OperationError(f"{columns or file}: duplicate column name {twice}")

    def step(self, seconds: float) -> None:
        """Advance; after the last row, start again."""
        # plus half a step: sums of 0.1 must not fall short of a period
        self._elapsed += seconds
        self._row = int((self._elapsed + seconds / 2) / self._period) % len(self._rows)

    def numbers(self) -> NDArray[np.float64]:
        """The current row."""
        row: NDArray[np.float64] = self._rows[self._row]
        return row

    def text(self, tag: int) -> str:
        """Raise KeyError: there are no texts."""
        raise KeyError(self.tags[tag].name)

    def write(self, signal: str, value: float) -> None:
        """Ignore writes."""


def _tag(i: int, column: _Column, period: float) -> SimTag:
    slug = re.sub(r"[^A-Za-z0-9_.%-]+", "_", column.name).strip("_") or f"column{i}"
    description = column.description or column.name
    return SimTag(
        f"replay/{slug}", str(i), "analog", column.unit, opcua="Double", period=period, description=description
    )


def _read(file: Path, columns: Path | None) -> tuple[list[_Column], NDArray[np.float64]]:
    """Column names, and rows (rows, columns). Columns of a CSV file without any number are skipped."""
    try:
        if columns is not None:
            rows = np.loadtxt(file, ndmin=2)
            with columns.open(newline="", encoding="utf-8") as text:
                named = [_column(row) for row in csv.DictReader(text)]
        else:
            with file.open(newline="", encoding="utf-8") as text:
                header, *body = [row for row in csv.reader(text) if row] or [[]]
            rows = np.array([[_number(cell) for cell in row] for row in body], np.float64).reshape(-1, len(header))
            numeric = ~np.all(np.isnan(rows), axis=0)
            named = [_Column(name) for name, keep in zip(header, numeric, strict=True) if keep]
            rows = rows[:, numeric]
    except (OSError, ValueError) as error:
        raise OperationError(f"{file}: {error}") from error
    if not rows.size:
        raise OperationError(f"{file}: no rows with numbers")
    if rows.shape[1] != len(named):
        raise OperationError(f"{file} has {rows.shape[1]} columns, {columns} names {len(named)}")
    return named, rows


def _column(row: dict[str, str]) -> _Column:
    name = next((row[key] for key in ("name", "tag", "column") if row.get(key)), next(iter(row.values())))
    return _Column(name, row.get("unit") or "", row.get("description") or "")


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")
