"""Row groups of a file of samples as arrays. What their statistics say already is not read.

Most row groups are of one channel, with one divisor and one status: reading the times and integers alone takes 6 ns a
sample, reading all columns 13 ns. Of an hour, the columns of several are made at a time: most of the time would go into
the calls for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ops.archive.sample_file import SAMPLES, as_array, bits_of, filled
from ops.archive.scaling import Bits

_VALUE = ("scaled", "divisor", "single", "unscaled")
_INDEX = {name: index for index, name in enumerate(SAMPLES.names)}
_NO_CONSTANTS = ("time", "unscaled")  # statistics leave out NaN, and call -0.0 and 0.0 equal
_ROWS = 131_072  # that are decoded at a time, even if few of them are wanted
_Constants = Mapping[str, Any]  # column → its only value; None: all are null


def read(
    parquet: Any, groups: Sequence[int], wanted: Collection[str], bounds: tuple[int, int], *, checked: bool
) -> Iterator[dict[str, NDArray[Any]]]:
    """``channel_id`` (int32), ``time`` (int64, µs); if wanted, ``value`` (uint64, its bits) and ``status`` (uint32).

    Shape (n,) each, n ≥ 1: the rows with times within the bounds (µs; the second one is excluded), in the order of the
    groups. Some groups at a time; those of which the statistics say that they have none are not read.
    ``parquet``: an open ParquetFile; ``checked``: its footer is as it was written, so that statistics can be relied on.
    """
    names = ("channel_id", "time", *(_VALUE if "value" in wanted else ()), *(["status"] if "status" in wanted else []))
    inside = (one for one in groups if not (checked and is_outside(parquet, one, bounds)))
    known = ((one, _constants(parquet, one, names) if checked else {}) for one in inside)
    for _, alike in groupby(known, lambda one: {name: value is None for name, value in one[1].items()}):
        for some in _batches(parquet, list(alike), names, bounds):
            yield _columns(some, wanted)


def _batches(
    parquet: Any, groups: Sequence[tuple[int, _Constants]], names: Collection[str], bounds: tuple[int, int]
) -> Iterator[list[tuple[Any, _Constants]]]:
    """The rows within the bounds of row groups of which the same columns are known: some batches at a time, each of one
    row group, with the columns that are not known.
    """
    wanted = [name for name in names if name not in groups[0][1]]
    ends = np.cumsum([parquet.metadata.row_group(group).num_rows for group, _ in groups]).tolist()
    place, begin = 0, 0
    for batch in parquet.iter_batches(_ROWS, [group for group, _ in groups], wanted, use_threads=False):
        some, row = [], 0
        while row < batch.num_rows:
            n = min(ends[place] - begin, batch.num_rows) - row
            constants = groups[place][1]
            some.append((_within(batch.slice(row, n), constants, bounds), constants))
            row += n
            place += begin + row == ends[place]
        begin += batch.num_rows
        if some := [one for one in some if one[0].num_rows]:
            yield some


def _constants(parquet: Any, group: int, names: Collection[str]) -> _Constants:
    """What the statistics say of a row group's columns."""
    facts = parquet.metadata.row_group(group)
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


def _within(batch: Any, known: _Constants, bounds: tuple[int, int]) -> Any:
    """The rows of a batch within the bounds."""
    time = _times(batch)
    if "channel_id" in known:  # the times ascend
        first, last = np.searchsorted(time, bounds).tolist()
        return batch.slice(first, last - first)
    return batch.filter(pa.array((time >= bounds[0]) & (time < bounds[1])))


def _columns(some: Sequence[tuple[Any, _Constants]], wanted: Collection[str]) -> dict[str, NDArray[Any]]:
    """Row groups of which the same columns are known, and the same are null, as arrays."""
    table, n = pa.Table.from_batches([one for one, _ in some]), [one.num_rows for one, _ in some]
    known = {name: [one[name] for _, one in some] for name in some[0][1]}
    columns = _Columns({name: as_array(table.column(name)) for name in table.schema.names}, known, n)
    found = {"channel_id": columns.elements("channel_id", np.int32), "time": columns.elements("time", np.int64)}
    if "value" in wanted:
        found["value"] = columns.values()
    if "status" in wanted:
        found["status"] = columns.elements("status", np.uint32)
    return found


@dataclass(frozen=True, slots=True)
class _Columns:
    read: Mapping[str, Any]
    known: Mapping[str, list[Any]]  # for each row group
    n: list[int]  # rows of each

    def elements(self, name: str, kind: Any) -> NDArray[Any]:
        """The elements, or the only value; where one is null, anything."""
        if name not in self.read:
            return np.repeat(np.array(self.known[name], kind), self.n)
        return filled(self.read[name], kind)

    def values(self) -> Bits:
        if self.known.get("scaled", [0])[0] is None:
            return self.elements("unscaled", np.uint64)
        read = self.read
        divisor = read["divisor"].to_numpy() if "divisor" in read else self._only("divisor", np.float64)
        single = read["single"].to_numpy(zero_copy_only=False) if "single" in read else self._only("single", np.bool_)
        return bits_of(self.elements("scaled", np.int64), divisor, single, read.get("unscaled"))

    def _only(self, name: str, kind: Any) -> Any:
        """One value where all row groups have the same, else the elements."""
        first, *others = self.known[name]
        return first if all(one == first for one in others) else self.elements(name, kind)


def _times(table: Any) -> NDArray[np.int64]:
    return as_array(table.column("time")).view(pa.int64()).to_numpy()  # type: ignore[no-any-return]


def is_outside(parquet: Any, group: int, bounds: tuple[int, int]) -> bool:
    """Whether the statistics say that all times are outside the bounds."""
    times = parquet.metadata.row_group(group).column(_INDEX["time"]).statistics
    if times is None or not times.has_min_max:
        return False
    return bool(times.max_raw < bounds[0] or times.min_raw >= bounds[1])
