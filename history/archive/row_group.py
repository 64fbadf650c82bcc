"""Row groups of a file of samples as arrays. What their statistics say already is not read.

Most row groups are of one channel, with one divisor and one status: reading the times and integers alone takes 6 ns a
sample, reading all columns 13 ns. What comes after an hour that is wanted is not decoded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from history.archive.sample_file import MAX_GROUP
from history.codec.row_groups import SAMPLES, filled
from history.codec.scaling import Bits, unscale

_VALUE = ("scaled", "divisor", "single", "unscaled")
_INDEX = {name: index for index, name in enumerate(SAMPLES.names)}
_NO_CONSTANTS = ("time", "unscaled")  # statistics leave out NaN, and call -0.0 and 0.0 equal
_ROWS = 16_384  # that are decoded at a time where not all of a row group are wanted
_KINDS: Mapping[str, Any] = {
    "channel_id": np.int32,
    "time": np.int64,
    "scaled": np.int64,
    "divisor": np.float64,
    "single": np.bool_,
    "unscaled": np.uint64,
    "is_scaled": np.bool_,  # false: the value is the one of ``unscaled``
    "value": np.uint64,  # not in the file: its bits, if they are known already
    "status": np.uint32,
}
_Constants = dict[str, Any]  # column → its only value; None: all are null


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of one row group, at least one, as the file has them; or samples from elsewhere."""

    n: int
    columns: Mapping[str, Any]  # those of _KINDS that are needed: (n,) each, or the only value

    @property
    def channels(self) -> tuple[int, int]:
        """The first one and the last one."""
        ids = self.columns["channel_id"]
        return (int(ids[0]), int(ids[-1])) if isinstance(ids, np.ndarray) else (ids, ids)

    def part(self, chosen: Any) -> Rows:
        """Rows that a mask or a slice chooses; at least one."""
        columns = {name: one[chosen] if isinstance(one, np.ndarray) else one for name, one in self.columns.items()}
        return Rows(len(columns["time"]), columns)


def read(
    parquet: Any, groups: Sequence[int], values: Collection[str], bounds: tuple[int, int], *, checked: bool
) -> Iterator[Rows]:
    """The rows with times within the bounds (µs; the second one is excluded), in the order of the groups.

    Row groups of which the statistics say that they have none are not read. ``values``: ``value``, ``status``.
    ``parquet``: an open ParquetFile; ``checked``: its footer is as it was written, so that statistics can be relied on.
    """
    names = ("channel_id", "time", *(_VALUE if "value" in values else ()), *(["status"] if "status" in values else []))
    for group in groups:
        facts = parquet.metadata.row_group(group)
        if checked and is_outside(facts, bounds):
            continue
        constants = _constants(facts, names) if checked else {}
        missing = [name for name in names if name not in constants]
        is_inside = checked and _is_inside(facts, bounds)
        for batch in parquet.iter_batches(MAX_GROUP if is_inside else _ROWS, [group], missing, use_threads=False):
            rows = _stored(batch, constants, values)
            time = rows.columns["time"]
            if is_inside:
                yield rows
            elif "channel_id" in constants:  # the times ascend
                first, last = np.searchsorted(time, bounds).tolist()
                if first < last:
                    yield rows.part(slice(first, last))
            elif (chosen := (time >= bounds[0]) & (time < bounds[1])).any():
                yield rows.part(chosen)
            if "channel_id" in constants and time[-1] >= bounds[1]:
                break


def joined(portions: Sequence[Rows]) -> dict[str, NDArray[Any]]:
    """``channel_id`` (int32), ``time`` (int64, µs); if wanted, ``value`` (uint64, its bits) and ``status`` (uint32).

    Shape (n,) each. ``portions``: rows with the same columns, at least one.
    """
    lengths = [one.n for one in portions]

    def column(name: str) -> Any:
        """The elements, or the only one."""
        parts, kind = [one.columns[name] for one in portions], _KINDS[name]
        if not any(isinstance(one, np.ndarray) for one in parts):
            return parts[0] if parts.count(parts[0]) == len(parts) else np.repeat(np.array(parts, kind), lengths)
        arrays = [
            one if isinstance(one, np.ndarray) else np.full(n, one, kind) for one, n in zip(parts, lengths, strict=True)
        ]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def elements(name: str) -> NDArray[Any]:
        values_or_constant = column(name)
        return (
            values_or_constant
            if isinstance(values_or_constant, np.ndarray)
            else np.full(sum(lengths), values_or_constant, _KINDS[name])
        )

    def values() -> Bits:
        is_scaled = column("is_scaled")
        if is_scaled is False:
            return elements("unscaled")
        bits: Bits = unscale(elements("scaled"), column("divisor"), column("single")).view(np.uint64)
        return bits if is_scaled is True else np.where(is_scaled, bits, elements("unscaled"))

    names = [name for name in ("channel_id", "time", "value", "status") if name in portions[0].columns]
    columns = {name: elements(name) for name in names}
    return columns | {"value": values()} if "is_scaled" in portions[0].columns else columns


def _constants(facts: Any, names: Collection[str]) -> _Constants:
    """Constants of a row group's columns, from its statistics."""
    constants: _Constants = {}
    for name in names:
        statistics = facts.column(_INDEX[name]).statistics
        if statistics is None or not statistics.has_null_count:
            continue
        nulls = statistics.null_count
        if nulls == facts.num_rows:
            constants[name] = None
        elif not nulls and name not in _NO_CONSTANTS and statistics.has_min_max:
            value = statistics.min
            if value == statistics.max:
                constants[name] = value
    if "scaled" in constants and constants["scaled"] is None:
        constants.update(scaled=0, divisor=1.0, single=False)
    return constants


def _stored(batch: Any, constants: _Constants, names: Collection[str]) -> Rows:
    """Rows as they were read. Where an element is null, it is anything."""

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


def is_outside(facts: Any, bounds: tuple[int, int]) -> bool:
    """Whether the statistics say that all times are outside the bounds. ``facts``: the metadata of a row group."""
    times = _known(facts, "time")
    return times is not None and bool(times.max_raw < bounds[0] or times.min_raw >= bounds[1])


def may_have(facts: Any, first: int, last: int) -> bool:
    """Whether there may be samples of channels from the first to the last."""
    channels = _known(facts, "channel_id")
    return channels is None or bool(channels.min <= last and channels.max >= first)


def _is_inside(facts: Any, bounds: tuple[int, int]) -> bool:
    times = _known(facts, "time")
    return times is not None and bool(times.min_raw >= bounds[0] and times.max_raw < bounds[1])


def _known(facts: Any, name: str) -> Any:
    """Statistics of a column with its least and its greatest value, if there are such."""
    statistics = facts.column(_INDEX[name]).statistics
    return statistics if statistics is not None and statistics.has_min_max else None
