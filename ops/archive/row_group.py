"""Row groups of a file of samples as arrays. What their statistics say already is not read.

Most row groups are of one channel, with one divisor and one status: reading the times and integers alone takes 6 ns a
sample, reading all columns 13 ns. What comes after an hour that is wanted is not decoded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ops.archive.sample_file import MAX_GROUP, SAMPLES, bits_of, filled
from ops.archive.scaling import Bits

_VALUE = ("scaled", "divisor", "single", "unscaled")
_INDEX = {name: index for index, name in enumerate(SAMPLES.names)}
_NO_CONSTANTS = ("time", "unscaled")  # statistics leave out NaN, and call -0.0 and 0.0 equal
_ROWS = 16_384  # that are decoded at a time where not all of a row group are wanted
_Constants = Mapping[str, Any]  # column → its only value; None: all are null


def read(
    parquet: Any, groups: Sequence[int], wanted: Collection[str], bounds: tuple[int, int], *, checked: bool
) -> Iterator[dict[str, NDArray[Any]]]:
    """``channel_id`` (int32), ``time`` (int64, µs); if wanted, ``value`` (uint64, its bits) and ``status`` (uint32).

    Shape (n,) each, n ≥ 1: the rows with times within the bounds (µs; the second one is excluded), in the order of the
    groups. Those of which the statistics say that they have none are not read.
    ``parquet``: an open ParquetFile; ``checked``: its footer is as it was written, so that statistics can be relied on.
    """
    names = ("channel_id", "time", *(_VALUE if "value" in wanted else ()), *(["status"] if "status" in wanted else []))
    for group in groups:
        facts = parquet.metadata.row_group(group)
        if checked and is_outside(facts, bounds):
            continue
        known = _constants(facts, names) if checked else {}
        rows = MAX_GROUP if checked and _is_inside(facts, bounds) else _ROWS
        missing = [name for name in names if name not in known]
        for batch in parquet.iter_batches(rows, [group], missing, use_threads=False):
            time = filled(batch.column("time"), np.int64)
            some = _within(batch, time, known, bounds)
            if some.num_rows:
                yield _columns(some, known, wanted)
            if "channel_id" in known and time[-1] >= bounds[1]:
                break


def _constants(facts: Any, names: Collection[str]) -> _Constants:
    """What the statistics say of a row group's columns."""
    known: dict[str, Any] = {}
    for name in names:
        statistics = facts.column(_INDEX[name]).statistics
        if statistics is None or not statistics.has_null_count:
            continue
        nulls = statistics.null_count
        if nulls == facts.num_rows:
            known[name] = None
        elif not nulls and name not in _NO_CONSTANTS and statistics.has_min_max:
            value = statistics.min
            if value == statistics.max:
                known[name] = value
    if "scaled" in known and known["scaled"] is None:
        known.update(divisor=1.0, single=False)
    return known


def _within(batch: Any, time: NDArray[np.int64], known: _Constants, bounds: tuple[int, int]) -> Any:
    """The rows of a batch within the bounds."""
    if "channel_id" in known:  # the times ascend
        first, last = np.searchsorted(time, bounds).tolist()
        return batch.slice(first, last - first)
    return batch.filter(pa.array((time >= bounds[0]) & (time < bounds[1])))


def _columns(batch: Any, known: _Constants, wanted: Collection[str]) -> dict[str, NDArray[Any]]:
    """Rows of a row group as arrays."""

    def elements(name: str, kind: Any) -> NDArray[Any]:
        """The elements, or the only value; where one is null, anything."""
        return np.full(batch.num_rows, known[name], kind) if name in known else filled(batch.column(name), kind)

    def values() -> Bits:
        if known.get("scaled", 0) is None:
            return elements("unscaled", np.uint64)
        divisor = known["divisor"] if "divisor" in known else elements("divisor", np.float64)
        single = known["single"] if "single" in known else batch.column("single").to_numpy(zero_copy_only=False)
        unscaled = None if "unscaled" in known else batch.column("unscaled")
        return bits_of(elements("scaled", np.int64), divisor, single, unscaled)

    found = {"channel_id": elements("channel_id", np.int32), "time": elements("time", np.int64)}
    if "value" in wanted:
        found["value"] = values()
    if "status" in wanted:
        found["status"] = elements("status", np.uint32)
    return found


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
