"""Columns of the tables that kernels make, and channels as questions name them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.batch import Float64s, Int64s
from core.samples import Samples, segments
from history.archive.sample_file import rows_of
from history.codec.row_groups import TIME

# Rows of a table that a kernel makes: name → (n,)
Columns: TypeAlias = dict[str, NDArray[Any]]
Result = TypeVar("Result")
NEVER = np.iinfo(np.int64).max  # a time
UNKNOWN = np.inf  # a value: from a Bad sample until the next good one
RARE = 100  # samples: a channel that has no more may hold a value of long ago
RHYTHM = 10  # samples: a channel that has no more can't be said to have fallen silent
_SHORT_GAP = 3  # sampling intervals: gaps of a device that answers more slowly than it is polled are no longer
_MEANS = 300_000  # of the channels that a kernel has at a time: each takes up to 200 bytes
_BLOCK_ROWS = 65_536  # of samples that something is made of: arrays of twice as many no longer fit into caches

ChannelFields = Mapping[str, Any]  # the fields of CHANNEL
CHANNEL = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("kind", pa.string()),
        ("span", pa.float64()),  # of its range; None: it has none
        ("wraps_at", pa.float64()),  # where a counter starts again from 0; None: it does not
        ("ends", pa.int64()),  # µs
        ("gaps_from", pa.list_(pa.int64())),  # µs, ascending
        ("gaps_to", pa.list_(pa.int64())),
        ("pushed", pa.bool_()),  # nobody knows when a sample is due: a silence is no recorded gap
    ]
)


class KernelSource(Protocol):
    """Samples that kernels read, such as a :class:`~history.sql.sources.samples.SampleSource`."""

    def results(
        self,
        channels: Iterable[int] | None,
        within: tuple[int, int],
        kernel: Callable[[Iterable[Samples]], Iterable[Result]],
        names: Sequence[str] = ...,
        *,
        in_parts: bool = ...,
        known_by: int | None = ...,
    ) -> Iterator[Result]:
        """Results of a kernel, as of SampleSource."""


@dataclass(frozen=True, slots=True, eq=False)
class Channels:
    """Some channels, n of them by ascending id."""

    channels: NDArray[np.int32]  # (n,)
    counters: NDArray[np.bool_]  # (n,) the rate between two samples counts, and not the value
    wraps: Float64s  # (n,) where a counter starts again from 0; NaN: it does not
    ends: Int64s  # (n,) µs
    gap_channels: NDArray[np.int32]  # (gaps,) ascending
    gaps: Int64s  # (gaps, 2) where each begins and ends (µs)
    pushed: NDArray[np.bool_]  # (n,) analog ones whose silence is no recorded gap

    @classmethod
    def of_fields(cls, fields: Iterable[ChannelFields]) -> Channels:
        """Make them from their fields, in any order."""
        every = sorted(fields, key=lambda channel: int(channel["channel_id"]))
        ids = np.array([channel["channel_id"] for channel in every], np.int32)
        edges = ([time for channel in every for time in channel[name]] for name in ("gaps_from", "gaps_to"))
        return cls(
            ids,
            np.array([channel["kind"] == "counter" for channel in every], np.bool_),
            np.array([channel.get("wraps_at") for channel in every], np.float64),
            np.array([channel["ends"] for channel in every], np.int64),
            np.repeat(ids, [len(channel["gaps_from"]) for channel in every]),
            np.column_stack([np.array(times, np.int64) for times in edges]),
            np.array([channel.get("pushed") is True and channel["kind"] == "analog" for channel in every], np.bool_),
        )

    def positions(self, channels: NDArray[np.int32]) -> NDArray[np.intp]:
        """Positions of channels among these."""
        return np.searchsorted(self.channels, channels)

    def is_counter(self, channel: int) -> bool:
        """Return whether a channel, one of these, is a counter."""
        return bool(self.counters[np.searchsorted(self.channels, channel)])

    def gaps_of(self, channel: int) -> Int64s:
        """The gaps of a channel, (gaps, 2)."""
        return self.gaps[rows_of(self.gap_channels, channel)]

    def known_share(self, channel: int, time: Int64s, known_until: Int64s, within: tuple[int, int]) -> float:
        """Share of an interval (µs) in which a channel has a value: from its first good sample there on, but not from a
        gap or a Bad one to the next. ``time``, ``known_until``: of its good samples there, at least two."""
        gaps, until = self.gaps_of(channel), np.minimum(np.append(time[1:], within[1]), known_until)
        if len(gaps):
            begins = gaps[gaps[:, 1] - gaps[:, 0] > _SHORT_GAP * np.median(np.diff(time)), 0]
            until = np.minimum(until, np.append(begins, within[1])[np.searchsorted(begins, time)])
        return float((until - time).sum()) / (within[1] - within[0])


def spans(channels: Iterable[ChannelFields]) -> dict[int, float]:
    """The spans of the ranges of channels that have one."""
    return {channel["channel_id"]: channel["span"] for channel in channels if channel["span"] is not None}


def by_portion(kernel: Callable[[Samples], Result]) -> Callable[[Iterable[Samples]], Iterable[Result]]:
    """Kernel of several portions, from one of a single portion."""
    return partial(map, kernel)


def by_channels(kernel: Callable[[Samples], Result], buckets: int) -> Callable[[Iterable[Samples]], Iterable[Result]]:
    """Kernel of several portions, from one of some whole channels: so few that memory holds their means.

    ``buckets``: those of a channel, which has a mean in each, be it of a single sample.
    """
    return partial(_by_channels, kernel, max(_MEANS // max(buckets, 1), 1))


def _by_channels(kernel: Callable[[Samples], Result], n: int, portions: Iterable[Samples]) -> Iterator[Result]:
    for samples in portions:
        firsts = [rows.start for rows in segments(samples.channel)[::n]]
        for first, last in pairwise([*firsts, len(samples)]):
            yield kernel(samples.part(slice(first, last)))


def columns_of(kind: Any, rows: Iterable[tuple[Any, ...]] = ()) -> Columns:
    """The columns of rows. ``kind``: the struct, of these fields; times are numbers (µs)."""
    columns = list(zip(*rows, strict=True)) or [()] * len(kind)
    return {
        field.name: np.array(column, np.int64 if field.type == TIME else field.type.to_pandas_dtype())
        for field, column in zip(kind, columns, strict=True)
    }


def joined(portions: Sequence[Columns]) -> Columns:
    """Join portions, at least one, one behind the other."""
    first = portions[0]
    if len(portions) == 1:
        return first
    return {name: np.concatenate([portion[name] for portion in portions]) for name in first}


def as_arrow(names: Collection[str], samples: Samples) -> list[dict[str, Any]]:
    """Samples as arrays of Arrow, some rows at a time. ``names``: which of value and status are needed."""
    rows = (slice(start, start + _BLOCK_ROWS) for start in range(0, len(samples), _BLOCK_ROWS))
    return [_arrays(names, samples.part(portion)) for portion in rows]


def following(channel: NDArray[np.int32], values: Int64s) -> Int64s:
    """The next value of the same channel, of rows by channel; NEVER: there is none."""
    later = np.append(values[1:], NEVER)[: len(values)]
    later[:-1][channel[1:] != channel[:-1]] = NEVER
    return later


def count_up(lengths: Int64s) -> Int64s:
    """Count up from 0 for each length."""
    counted: Int64s = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return counted


def good_values(value: Float64s, status: NDArray[np.int32]) -> tuple[Float64s, NDArray[np.bool_]]:
    """Values as good_samples() (schema/queries/duckdb.sql) has them, and which of them it has; (n,) each."""
    size = np.abs(value)
    small = size < 1e-50
    return np.where(small, 0.0, value) if small.any() else value, (status >= 0) & (size < 1e50)  # not NaN


def good_samples(samples: Samples) -> tuple[NDArray[np.int32], Int64s, Float64s]:
    """Channels, times and values of those that good_samples() (schema/queries/duckdb.sql) has; (n,) each."""
    value, good = good_values(samples.value, samples.status.view(np.int32))
    channel, time = samples.channel, samples.time
    return (channel, time, value) if good.all() else (channel[good], time[good], value[good])


def known_samples(samples: Samples) -> tuple[NDArray[np.int32], Int64s, Float64s, Int64s]:
    """Channels, times and values as good_samples(), and the time of a Bad sample behind each, which ends its value.

    NEVER: the next one of the channel is good, or there is none. If all are good, one NEVER stands for all.
    """
    value, good = good_values(samples.value, samples.status.view(np.int32))
    channel, time = samples.channel, samples.time
    if good.all():
        return channel, time, value, np.array([NEVER])
    bad = np.flatnonzero(~good)
    follows = (bad > 0) & good[bad - 1] & (channel[bad - 1] == channel[bad])
    known_until = np.full(len(good) - len(bad), NEVER)
    known_until[(bad - 1 - np.arange(len(bad)))[follows]] = time[bad[follows]]
    return channel[good], time[good], value[good], known_until


def of_rows(known_until: Int64s, rows: Any) -> Int64s:
    """Times as of known_samples(), of some rows."""
    return known_until if len(known_until) == 1 else known_until[rows]


def known_values(samples: Samples) -> Float64s:
    """Values of all samples, as good_samples() has them; UNKNOWN: it is no good one."""
    value, good = good_values(samples.value, samples.status.view(np.int32))
    return value if good.all() else np.where(good, value, UNKNOWN)


def listed(kind: Any, portions: Iterable[Columns]) -> Any:
    """A list of structs as the only element of an array of Arrow. ``kind``: the struct, of these columns.

    Times are numbers (µs) in numpy.
    """
    parts = list(portions)
    if not parts:
        return pa.array([[]], pa.list_(kind))
    columns = [np.concatenate([part[field.name] for part in parts]) for field in kind]
    arrays = [
        _array(pa.from_numpy_dtype(column.dtype), column).view(field.type)
        for field, column in zip(kind, columns, strict=True)
    ]
    rows = pa.StructArray.from_arrays(arrays, fields=list(kind))
    return pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)


def _arrays(names: Collection[str], samples: Samples) -> dict[str, Any]:
    columns: dict[str, tuple[Any, NDArray[Any]]] = {
        "channel_id": (pa.int32(), samples.channel),
        "time": (TIME, samples.time),
    }
    if "value" in names:
        columns["value"] = pa.float64(), samples.value
    if "status" in names:
        columns["status"] = pa.int32(), samples.status
    return {name: _array(kind, values) for name, (kind, values) in columns.items()}


def _array(kind: Any, values: NDArray[Any]) -> Any:
    """Convert without Python or a cast: a NaN keeps its payload, and pyarrow does not import numpy.ma."""
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.packbits(values, bitorder="little"))])
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
