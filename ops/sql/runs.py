"""Runs of equal values of a channel, found as samples are read: of a noisy channel, few are long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ops.archive.sample_file import TIME
from ops.sql.columns import good_values
from ops.sql.scan import Scan

_PARAMETERS = ("since", "until", "least")
RUNS = pa.schema(
    [
        pa.field("channel_id", pa.int32(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("from_time", TIME, nullable=False),  # of the first sample with the value
        pa.field("next_time", TIME),  # of the first one with the next value, if there is one
        pa.field("number", pa.int64(), nullable=False),  # of the channel's run, from 1
        *(pa.field(name, pa.int64(), nullable=False) for name in _PARAMETERS),
    ]
)


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of samples with since <= time < until, as good_samples() (schema/queries/duckdb.sql) has them; in µs.

    The first and the last one of each channel, and those of ``least`` or longer.
    """

    since: int
    until: int
    least: int

    @classmethod
    def wanted(cls, scan: Scan) -> Runs:
        """Those that a query asks for. Raises OperationError."""
        return cls(**scan.constants("value_runs", _PARAMETERS))

    def of(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Batches of runs. ``batches``: of samples, those of a channel together and by time."""
        channel, value, begin, number = np.empty(0, np.int32), np.empty(0), np.empty(0, np.int64), 1
        for batch in batches:
            some = self._good(batch)
            # The run that has not ended is the first row.
            channel, value, begin = np.append(channel, some[0]), np.append(value, some[1]), np.append(begin, some[2])
            if not len(channel):
                continue
            starts = np.append(0, np.flatnonzero((value[1:] != value[:-1]) | (channel[1:] != channel[:-1])) + 1)
            channel, value, begin = channel[starts], value[starts], begin[starts]
            numbers = _numbers(channel, number)
            yield self._batch(channel, value, begin, numbers, len(starts) - 1)
            channel, value, begin, number = channel[-1:], value[-1:], begin[-1:], int(numbers[-1])
        yield self._batch(channel, value, begin, np.full(len(channel), number), len(channel))

    def _good(self, batch: Any) -> tuple[Any, Any, Any]:
        channel, time = batch.column("channel_id").to_numpy(), batch.column("time").view(pa.int64()).to_numpy()
        value, status = batch.column("value").to_numpy(), batch.column("status").to_numpy()
        value, good = good_values(value, status)
        good &= (time >= self.since) & (time < self.until)
        return (channel, value, time) if good.all() else (channel[good], value[good], time[good])

    def _batch(self, channel: Any, value: Any, begin: Any, number: Any, n: int) -> Any:
        """The first ``n`` of the runs, which are ended by those that follow."""
        last = np.append(channel[1:] != channel[:-1], True)[:n]
        end = np.append(begin[1:], 0)[:n]
        kept = np.flatnonzero(last | (number[:n] == 1) | (end - begin[:n] >= self.least))
        columns = [
            pa.array(channel[kept]),
            pa.array(value[kept]),
            pa.array(begin[kept]).view(TIME),
            pa.array(end[kept], mask=last[kept]).view(TIME),
            pa.array(number[kept]),
            *(pa.array(np.full(len(kept), getattr(self, name))) for name in _PARAMETERS),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RUNS)


def lengths(batches: Iterable[Any]) -> list[int]:
    """How long (µs) each value of a channel was held until the next one."""
    found = [pc.subtract(one["next_time"], one["from_time"]) for one in batches]
    return pa.chunked_array(found, pa.duration("us")).drop_null().cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def calm(batches: Iterable[Any], until: int, hold: int) -> list[int]:
    """Channels that hold their values for ``hold`` µs on average, from the first one until the end."""
    begins, numbers = dict[int, int](), dict[int, int]()
    for batch in batches:
        channel, begin = batch["channel_id"].to_numpy(), batch["from_time"].view(pa.int64()).to_numpy()
        number, last = batch["number"].to_numpy(), batch["next_time"].is_null().to_numpy(zero_copy_only=False)
        begins.update(zip(channel[number == 1].tolist(), begin[number == 1].tolist(), strict=True))
        numbers.update(zip(channel[last].tolist(), number[last].tolist(), strict=True))
    return [channel for channel, n in numbers.items() if (until - begins[channel]) / n >= hold]


def _numbers(channel: Any, first: int) -> Any:
    """Numbers of the runs of each channel, where that of the first row is ``first``."""
    place = np.arange(len(channel))
    begins = np.append(True, channel[1:] != channel[:-1])
    number = place - np.maximum.accumulate(np.where(begins, place, 0)) + 1
    number[: np.argmin(channel == channel[0]) or len(channel)] += first - 1
    return number
