"""Meanings of channels over time: the names and units of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from core.batch import Int32s, Int64s
from history.archive.sample_file import rows_of

TEXT = pa.dictionary(pa.int32(), pa.string())
_BEGINNING = np.iinfo(np.int64).min


class Meanings:
    """Names and units of channels, each valid from a time on."""

    def __init__(self, rows: Sequence[tuple[int, int | None, str, str]]) -> None:
        """``rows``: channel, valid from (µs since 1970; None: always), name and unit, by channel and time."""
        self._channel = np.array([row[0] for row in rows], np.int64)
        self._valid_from = np.array([_BEGINNING if row[1] is None else row[1] for row in rows], np.int64)
        self._texts = {name: pa.array([row[i] for row in rows], pa.string()) for name, i in (("name", 2), ("unit", 3))}
        self._of: dict[int, list[dict[str, Any]]] = {}
        for channel, _, name, unit in rows:
            self._of.setdefault(channel, []).append({"name": name, "unit": unit})

    @classmethod
    def of_day(cls, channels: Any) -> Meanings:
        """Meanings from the table of channels of an archived day (docs/archive.md)."""
        columns = [channels.column(name) for name in ("channel_id", "valid_from", "name", "unit")]
        columns[1] = columns[1].cast(pa.int64())
        return cls(list(zip(*(column.to_pylist() for column in columns), strict=True)))

    def of_channel(self, channel: int) -> Sequence[Mapping[str, Any]]:
        """All names and units that a channel had; None: there are samples before the first, or without any."""
        return [*self._of.get(channel, []), {"name": None, "unit": None}]

    def columns(self, channel: Int32s, time: Int64s) -> dict[str, Any]:
        """``name`` and ``unit`` of n samples, as arrays with a dictionary; null: the channel has none at the time."""
        first = np.searchsorted(self._channel, channel, "left")
        behind = np.searchsorted(self._channel, channel, "right")
        row = behind - 1
        for number in np.unique(channel[behind - first > 1]).tolist():
            rows = rows_of(self._channel, number)
            rows_of_channel = np.flatnonzero(channel == number)
            row[rows_of_channel] = (
                rows.start + np.searchsorted(self._valid_from[rows], time[rows_of_channel], "right") - 1
            )
        has_meaning = row >= first
        has_meaning[has_meaning] &= self._valid_from[row[has_meaning]] <= time[has_meaning]
        indices = pa.array(np.where(has_meaning, row, 0).astype(np.int32), mask=~has_meaning)
        return {name: pa.DictionaryArray.from_arrays(indices, texts) for name, texts in self._texts.items()}
