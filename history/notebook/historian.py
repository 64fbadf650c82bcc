"""Answers of historians, of an archive: aggregates of intervals, and values at times (docs/questions.md).

The kernels are those of the questions ``aggregates`` and ``interpolated``, whose columns and order these tables have.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import pyarrow as pa

from core.samples import Samples, joined
from core.timestamps import DAY_US, microseconds, now_us, utc
from history.codec.row_groups import TIME
from history.notebook.archive import Archive
from history.sql.kernel_functions import KernelFunctions
from history.sql.kernels.columns import ChannelFields

_INVALID_INPUTS = -0x7F2A0000  # Bad_AggregateInvalidInputs (0x80D60000), as int32
_QUALITIES = ("good", "uncertain", "bad", "bad")  # by the highest two bits of a StatusCode
_TIMES = {"s": 1, "sec": 1, "min": 60, "h": 3600, "hr": 3600, "d": 86400, "day": 86400}  # behind a unit's last slash
_VALUE = [("value", pa.float64()), ("unit", pa.string()), ("quality", pa.string()), ("status", pa.int32())]
_AGGREGATES = pa.schema(
    [("channel", pa.string()), ("time", TIME), ("aggregate", pa.string()), *_VALUE, ("seconds", pa.float64())]
)
_SAMPLE = (("time", TIME), ("value", pa.float64()), ("status", pa.int32()))
_VALUES = pa.schema(
    [
        *(("channel", pa.string()), ("time", TIME), *_VALUE),
        *((f"{side}_{name}", kind) for side in ("before", "after") for name, kind in _SAMPLE),
    ]
)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Historian:
    """Channels of an archive in an interval. Values around it count, of 24 hours on both sides."""

    archive: Archive
    channels: Sequence[int | str]
    since: datetime
    until: datetime

    def aggregates(
        self,
        names: Sequence[str],
        step: int | None,
        state: float,
        fraction: float,
        per: int | None,
        configuration: dict[str, Any],
    ) -> Any:
        """An Arrow table as the answer of the question ``aggregates``. ``step``, ``per``: µs. Raises OperationError."""
        since, until = microseconds(self.since), microseconds(self.until)
        length = step or until - since
        fields = list(self._fields)
        functions = KernelFunctions(_Source(self.archive))
        [found] = functions.aggregates_of(fields, since, until, length, list(names), state, fraction, configuration)
        rows = [
            self._aggregate(row, names, min(microseconds(row["time"]) + length, until), per) for row in found.as_py()
        ]
        rows.sort(key=lambda row: (row["channel"], row["aggregate"], row["time"]))
        return pa.Table.from_pylist(rows, _AGGREGATES)

    def values(self, step: int | None, times: Sequence[datetime] | None, configuration: dict[str, Any]) -> Any:
        """An Arrow table as the answer of the question ``interpolated``. ``step``: µs. Raises OperationError."""
        since, until = microseconds(self.since), microseconds(self.until)
        at = None if times is None else sorted({microseconds(time) for time in times})
        functions = KernelFunctions(_Source(self.archive))
        [found] = functions.values_at(list(self._fields), since, until, step or until - since, at, configuration)
        rows = [self._value(row) for row in found.as_py()]
        rows.sort(key=lambda row: (row["channel"], row["time"]))
        return pa.Table.from_pylist(rows, _VALUES)

    def _aggregate(self, row: dict[str, Any], names: Sequence[str], ends: int, per: int | None) -> dict[str, Any]:
        name, time = names[row["number"]], microseconds(row["time"])
        value, status = None if math.isnan(row["value"]) else row["value"], row["status"]
        unit = self._unit(row["channel_id"], time)
        if name == "total":
            seconds, total_unit = rate_of(unit)
            if value is not None:
                value /= seconds if per is None else per / 1e6
            unit = total_unit if per in (None, seconds * 1_000_000) else f"{unit}·{per / 1e6:g} s"
            if status >= 0 and self._changes(row["channel_id"], time, ends):
                value, status = None, _INVALID_INPUTS
        elif name in ("rate", "duration_in_state", "count_transitions"):
            unit = {"rate": f"{unit}/s", "duration_in_state": "s", "count_transitions": ""}[name]
        return self._row(row, value, unit, status) | {"aggregate": name, "seconds": row["seconds"]}

    def _value(self, row: dict[str, Any]) -> dict[str, Any]:
        value = None if math.isnan(row["value"]) else row["value"]
        unit = self._unit(row["channel_id"], microseconds(row["time"]))
        fields = self._row(row, value, unit, row["status"])
        for side in ("before", "after"):
            is_known = row[f"{side}_time"] > 0
            for name in ("time", "value", "status"):
                fields[f"{side}_{name}"] = row[f"{side}_{name}"] if is_known else None
        return fields

    def _row(self, row: dict[str, Any], value: float | None, unit: str | None, status: int) -> dict[str, Any]:
        name = self._known[row["channel_id"]]["name"]
        quality = _QUALITIES[status >> 30 & 3]
        return {
            "channel": name,
            "time": row["time"],
            "value": value,
            "unit": unit,
            "quality": quality,
            "status": status,
        }

    def _unit(self, channel: int, time: int) -> str | None:
        units = self._units.get(channel, [])
        place = bisect_right(units, time, key=lambda entry: entry[0])
        return units[place - 1][1] if place else None

    def _changes(self, channel: int, since: int, until: int) -> bool:
        """Return whether the unit changes within an interval."""
        units = self._units.get(channel, [])
        return any(since < time < until and unit != before for (_, before), (time, unit) in pairwise(units))

    @cached_property
    def _known(self) -> dict[int, dict[str, Any]]:
        """The channels as they were last: rows of the table of channels."""
        return {row["channel_id"]: row for row in self._rows}

    @cached_property
    def _units(self) -> dict[int, list[tuple[int, str]]]:
        """Channel id → units, each with the time from which it is valid (µs)."""
        units: dict[int, list[tuple[int, str]]] = {}
        for row in self._rows:
            units.setdefault(row["channel_id"], []).append((microseconds(row["valid_from"]), row["unit"]))
        return units

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        """Meanings of the channels on the days around the interval, by time; not of texts."""
        days = self.archive.days_between(*self._around)
        return [
            row
            for day in days
            for row in self.archive.channels_of(day, self.channels).to_pylist()
            if row["kind"] != "text"
        ]

    @property
    def _around(self) -> tuple[datetime, datetime]:
        since, until = microseconds(self.since), microseconds(self.until)
        return utc(max(0, since - DAY_US)), utc(until + DAY_US)

    @property
    def _fields(self) -> Iterator[ChannelFields]:
        """The fields of CHANNEL (history/sql/kernels/columns.py) of the channels."""
        gaps: dict[int, list[tuple[int, int]]] = {}
        for gap in self.archive.gaps(self.channels, *self._around).to_pylist():
            if not gap["backfilled"] and gap["from_time"] < gap["to_time"]:
                gaps.setdefault(gap["channel_id"], []).append(
                    (microseconds(gap["from_time"]), microseconds(gap["to_time"]))
                )
        ends = min(microseconds(self._around[1]), now_us())
        for number, row in self._known.items():
            edges = sorted(gaps.get(number, []))
            yield {
                "channel_id": number,
                "kind": row["kind"],
                "span": None,
                "wraps_at": json.loads(row["attributes"] or "{}").get("wraps_at"),
                "ends": ends,
                "gaps_from": [begin for begin, _ in edges],
                "gaps_to": [end for _, end in edges],
            }


@dataclass(frozen=True, slots=True)
class _Source:
    """The samples of an archive, as kernels read them: a whole channel at a time."""

    archive: Archive

    def results(
        self,
        channels: Iterable[int] | None,
        within: tuple[int, int],
        kernel: Callable[[Iterable[Samples]], Iterable[Result]],
        names: Sequence[str] = (),
        *,
        in_parts: bool = False,
    ) -> Iterator[Result]:
        """Results of a kernel, by channel. ``within``: µs; ``names`` and ``in_parts`` allow to read less."""
        chosen = list(channels or ())
        parts: dict[int, list[Samples]] = {}
        for day in self.archive.days_between(utc(within[0]), utc(within[1])):
            for number, samples in self.archive.samples_of(day, chosen, within):
                parts.setdefault(number, []).append(samples)
        yield from kernel(joined(parts[number]) for number in sorted(parts))


def rate_of(unit: str | None) -> tuple[int, str | None]:
    """Seconds of the time that a rate is of, and the unit of its total: of t/h, 3600 and t; of bar, 1 and bar·s."""
    if not unit:
        return 1, "s"
    head, slash, tail = unit.rpartition("/")
    if head and slash and tail.strip() in _TIMES:
        return _TIMES[tail.strip()], head.rstrip()
    return 1, f"{unit}·s"
