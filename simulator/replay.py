"""A recorded data set as a plant: its columns are the tags, its rows come one a period."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingest.errors import OperationError
from simulator.tags import SimTag


class ReplayPlant:
    """Rows of a CSV with a header, or of a space-separated ``.dat`` whose columns a second CSV names."""

    name = "replay"

    def __init__(self, file: Path, columns: Path | None, period: float) -> None:
        names, self._rows = _read(file, columns)
        self._period = period
        self._elapsed = 0.0
        slugs = [re.sub(r"[^A-Za-z0-9_.%-]+", "_", name).strip("_") or f"column{i}" for i, name in enumerate(names)]
        self.tags = [
            SimTag(f"replay/{slug}", str(i), "analog", opcua="Double", period=period, description=name)
            for i, (slug, name) in enumerate(zip(slugs, names, strict=True))
        ]

    def step(self, seconds: float) -> None:
        """Move on; after the last row comes the first."""
        self._elapsed += seconds

    def numbers(self) -> NDArray[np.float64]:
        """The present row."""
        row: NDArray[np.float64] = self._rows[int(self._elapsed / self._period + 1e-9) % len(self._rows)]
        return row

    def text(self, tag: int) -> str:
        """There are none."""
        raise KeyError(self.tags[tag].name)

    def write(self, signal: str, value: float) -> None:
        """What was recorded stays."""


def _read(file: Path, columns: Path | None) -> tuple[list[str], NDArray[np.float64]]:
    try:
        if columns is not None:
            rows = np.loadtxt(file, ndmin=2)
            with columns.open(newline="") as text:
                names = [row[_name_column(row)] for row in csv.DictReader(text)]
        else:
            with file.open(newline="") as text:
                reader = csv.reader(text)
                header = next(reader)
                body = [[_number(cell) for cell in row] for row in reader if row]
            rows = np.array(body, np.float64)
            numeric: NDArray[np.bool_] = ~np.all(np.isnan(rows), axis=0)
            names, rows = [n for n, keep in zip(header, numeric, strict=True) if keep], rows[:, numeric]
    except (OSError, ValueError) as error:
        raise OperationError(f"{file}: {error}") from error
    if rows.shape[1] != len(names):
        raise OperationError(f"{file} has {rows.shape[1]} columns, {columns} names {len(names)}")
    return names, rows


def _name_column(row: dict[str, str]) -> str:
    return next((key for key in ("name", "tag", "column") if key in row), next(iter(row)))


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")
