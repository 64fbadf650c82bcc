"""Replays a recorded data set: columns are tags, one row per period."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.errors import OperationError
from simulator.tags import SimTag, tick_for


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
        """No texts."""
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
