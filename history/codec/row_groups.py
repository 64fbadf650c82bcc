"""Row groups of the archive, both directions: scaled integers, whose deltas Parquet stores, and the other values.

Most row groups are of one channel, with one divisor and one status, which their statistics say: reading the times and
integers alone takes 6 ns a sample, reading all columns 13 ns. What comes after an hour that is wanted is not decoded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.samples import Samples, segments
from history.codec.scaling import scale, unscale
from history.codec.segments import Segments

TIME = pa.timestamp("us", tz="UTC")
SAMPLES = pa.schema(
    [
        pa.field("channel_id", pa.int32(), nullable=False),
        pa.field("time", TIME, nullable=False),
        pa.field("scaled", pa.int64()),
        pa.field("divisor", pa.float64(), nullable=False),
        pa.field("single", pa.bool_(), nullable=False),
        pa.field("unscaled", pa.float64()),
        pa.field("status", pa.uint32(), nullable=False),
    ]
)
VALUES = ("value", "status")
MAX_GROUP = 65_536  # rows of a row group: an hour of a day at 1 Hz is read with eleven others
_VALUE = ("scaled", "divisor", "single", "unscaled")
_INDEX = {name: index for index, name in enumerate(SAMPLES.names)}
_NO_CONSTANTS = ("time", "unscaled")  # statistics leave out NaN, and call -0.0 and 0.0 equal
_DECODED_ROWS = 16_384  # that are decoded at a time where not all of a row group are wanted
_KINDS: Mapping[str, Any] = {
    "channel_id": np.int32,
    "time": np.int64,
    "scaled": np.int64,
    "divisor": np.float64,
    "single": np.bool_,
    "unscaled": np.uint64,
    "is_scaled": np.bool_,  # false: the value is the one of ``unscaled``
    "value": np.float64,  # not in the file: of samples from elsewhere
    "status": np.uint32,
}
_SAMPLES = 65_536  # that something is made of: arrays of twice as many no longer fit into caches
_JOINED_ROWS = 131_072  # of one channel: of twice as many, each takes twice as long to be joined
_Constants = Mapping[str, Any]  # column → its only value; None: all are null


def record_batch(samples: Samples) -> Any:
    """Samples of one channel, n ≥ 1, as columns of the file."""
    n = len(samples)
    values = scale(samples.bits, Segments.single(n))
    missing, inexact = np.packbits(values.exact, bitorder="little"), np.packbits(~values.exact, bitorder="little")
    n_exact = int(np.count_nonzero(values.exact))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(samples.channel),
            pa.array(samples.time, pa.int64()).cast(TIME),
            pa.Array.from_buffers(pa.int64(), n, [pa.py_buffer(missing), pa.py_buffer(values.scaled)], n - n_exact),
            pa.array(np.full(n, values.divisor[0])),
            pa.array(np.full(n, values.single[0])),
            # Not by way of Python or a cast: a NaN keeps its payload.
            pa.Array.from_buffers(pa.float64(), n, [pa.py_buffer(inexact), pa.py_buffer(samples.value)], n_exact),
            pa.array(samples.status, pa.uint32()),
        ],
        schema=SAMPLES,
    )


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of one row group, at least one, as the file has them; or samples from elsewhere."""

    n: int
    columns: Mapping[str, Any]  # those of _KINDS that are needed: (n,) each, or the only value

    @classmethod
    def of_samples(cls, samples: Samples, names: Collection[str] = VALUES) -> Rows:
        """Rows of samples from elsewhere, at least one. ``names``: those of ``VALUES`` that are needed."""
        values = {name: getattr(samples, name) for name in names}
        return cls(len(samples), {"channel_id": samples.channel, "time": samples.time, **values})

    @property
    def channels(self) -> tuple[int, int]:
        """The first one and the last one."""
        ids = self.columns["channel_id"]
        return (int(ids[0]), int(ids[-1])) if isinstance(ids, np.ndarray) else (ids, ids)

    def part(self, chosen: Any) -> Rows:
        """Rows that a mask or a slice chooses; at least one."""
        columns = {
            name: column[chosen] if isinstance(column, np.ndarray) else column for name, column in self.columns.items()
        }
        return Rows(len(columns["time"]), columns)

    def shifted(self, offset: int) -> Rows:
        """Rows whose channels have ids greater by an offset."""
        if not offset:
            return self
        return Rows(self.n, {**self.columns, "channel_id": self.columns["channel_id"] + np.int32(offset)})

    def of_channels(self, channels: Collection[int]) -> Rows | None:
        """Rows of channels; None: there are none."""
        ids = self.columns["channel_id"]
        if not isinstance(ids, np.ndarray):
            return self if ids in channels else None
        if all(int(ids[rows.start]) in channels for rows in segments(ids)):
            return self
        chosen = np.isin(ids, list(channels))
        return self.part(chosen) if chosen.any() else None


def read(
    parquet: Any, groups: Iterable[int], values: Collection[str], bounds: tuple[int, int] | None, *, checked: bool
) -> Iterator[Rows]:
    """The rows with times within the bounds (µs; the second one is excluded; None: all), in the order of the groups.

    ``values``: those of ``VALUES`` that are needed. ``parquet``: an open ParquetFile; ``checked``: its footer is as it
    was written, so that statistics can be relied on: row groups are not read of which they say that they have no such
    times, nor columns with one value.
    """
    names = ("channel_id", "time", *(_VALUE if "value" in values else ()), *(["status"] if "status" in values else []))
    for group in groups:
        metadata = parquet.metadata.row_group(group)
        if checked and bounds is not None and is_outside(metadata, bounds):
            continue
        constants = _constants(metadata, names) if checked else {}
        missing = [name for name in names if name not in constants]
        is_inside = bounds is None or (checked and _is_inside(metadata, bounds))
        for batch in parquet.iter_batches(
            MAX_GROUP if is_inside else _DECODED_ROWS, [group], missing, use_threads=False
        ):
            rows = decoded(batch, values, constants)
            if bounds is None or is_inside:
                yield rows
                continue
            time = rows.columns["time"]
            if "channel_id" in constants:  # the times ascend
                first, last = np.searchsorted(time, bounds).tolist()
                if first < last:
                    yield rows.part(slice(first, last))
                if time[-1] >= bounds[1]:
                    break
            elif (chosen := (time >= bounds[0]) & (time < bounds[1])).any():
                yield rows.part(chosen)


def joined_parts(parts: Iterable[Rows], *, whole: bool = True) -> Iterator[Samples]:
    """Samples of small parts, some of these at a time: most of the time would go into the calls for each.

    ``parts``: those of a channel follow each other. ``whole``: all samples of a channel are yielded at once.
    """
    gathered, n, most = list[Rows](), 0, _SAMPLES if whole else _JOINED_ROWS
    for rows in parts:
        if gathered and n + rows.n > most and not (whole and gathered[-1].channels[1] == rows.channels[0]):
            yield samples_of(gathered)
            gathered, n = [], 0
        gathered.append(rows)
        n += rows.n
    if gathered:
        yield samples_of(gathered)


def samples_of(parts: Sequence[Rows]) -> Samples:
    """Samples of rows with the same columns, at least one. Elements of columns that are not there are 0."""
    lengths = [part.n for part in parts]
    n = sum(lengths)

    def column(name: str) -> Any:
        """The elements, or the only one."""
        columns, kind = [part.columns[name] for part in parts], _KINDS[name]
        if not any(isinstance(column, np.ndarray) for column in columns):
            return (
                columns[0] if columns.count(columns[0]) == len(columns) else np.repeat(np.array(columns, kind), lengths)
            )
        arrays = [
            column if isinstance(column, np.ndarray) else np.full(length, column, kind)
            for column, length in zip(columns, lengths, strict=True)
        ]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def elements(name: str) -> NDArray[Any]:
        if name not in parts[0].columns:
            return np.broadcast_to(np.zeros((), _KINDS[name]), n)
        values_or_constant = column(name)
        return (
            values_or_constant
            if isinstance(values_or_constant, np.ndarray)
            else np.full(n, values_or_constant, _KINDS[name])
        )

    def values() -> NDArray[np.float64]:
        is_scaled = column("is_scaled")
        if is_scaled is False:
            return elements("unscaled").view(np.float64)
        exact = unscale(elements("scaled"), column("divisor"), column("single"))
        if is_scaled is True:
            return exact
        return np.where(is_scaled, exact.view(np.uint64), elements("unscaled")).view(np.float64)

    value = values() if "is_scaled" in parts[0].columns else elements("value")
    return Samples(elements("channel_id"), elements("time"), value, elements("status"))


def _constants(metadata: Any, names: Collection[str]) -> _Constants:
    """Constants of a row group's columns, from its statistics."""
    constants: dict[str, Any] = {}
    for name in names:
        statistics = metadata.column(_INDEX[name]).statistics
        if statistics is None or not statistics.has_null_count:
            continue
        nulls = statistics.null_count
        if nulls == metadata.num_rows:
            constants[name] = None
        elif not nulls and name not in _NO_CONSTANTS and statistics.has_min_max:
            value = statistics.min
            if value == statistics.max:
                constants[name] = value
    if "scaled" in constants and constants["scaled"] is None:
        constants.update(scaled=0, divisor=1.0, single=False)
    return constants


def decoded(batch: Any, names: Collection[str] = VALUES, constants: _Constants = MappingProxyType({})) -> Rows:
    """Rows of a batch of Arrow. Where an element is null, it is anything. ``constants``: of columns that it lacks."""

    def column(name: str) -> Any:
        if name in constants:
            return constants[name]
        array = batch.column(name)
        return array.to_numpy(zero_copy_only=False) if name == "single" else filled(array, _KINDS[name])

    columns = {name: column(name) for name in ("channel_id", "time")}
    if "value" in names:
        columns |= {name: column(name) for name in ("scaled", "divisor", "single")}
        columns |= _unscaled(None if "unscaled" in constants else batch.column("unscaled"))
    if "status" in names:
        columns["status"] = column("status")
    return Rows(batch.num_rows, columns)


def _unscaled(column: Any) -> dict[str, Any]:
    """``unscaled`` and ``is_scaled``. ``column``: an array of Arrow; None: all are null."""
    if column is None or column.null_count == len(column):
        return {"unscaled": 0, "is_scaled": True}
    is_scaled = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else False
    return {"unscaled": filled(column, np.uint64), "is_scaled": is_scaled}


def is_outside(metadata: Any, bounds: tuple[int, int]) -> bool:
    """Return whether all times are outside the bounds, by the statistics. ``metadata``: of a row group."""
    times = _known(metadata, "time")
    return times is not None and bool(times.max_raw < bounds[0] or times.min_raw >= bounds[1])


def may_have(metadata: Any, first: int, last: int) -> bool:
    """Return whether there may be samples of channels from the first to the last."""
    channels = _known(metadata, "channel_id")
    return channels is None or bool(channels.min <= last and channels.max >= first)


def _is_inside(metadata: Any, bounds: tuple[int, int]) -> bool:
    times = _known(metadata, "time")
    return times is not None and bool(times.min_raw >= bounds[0] and times.max_raw < bounds[1])


def _known(metadata: Any, name: str) -> Any:
    """Statistics of a column, if they have its minimum and its maximum."""
    statistics = metadata.column(_INDEX[name]).statistics
    return statistics if statistics is not None and statistics.has_min_max else None


def filled(array: Any, kind: Any) -> NDArray[Any]:
    """The elements' bits, whatever stands where one is null."""
    data = array.buffers()[1]
    return np.frombuffer(data, kind, len(array) + array.offset)[array.offset :] if len(array) else np.empty(0, kind)
