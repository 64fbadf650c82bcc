"""A row group of a file of samples as arrays. What its statistics say already is not read.

Most row groups are of one channel, with one divisor and one status: reading the times and integers alone takes 6 ns a
sample, reading all columns 13 ns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.timestamps import microseconds
from ops.archive.sample_file import SAMPLES, as_array, bits_of, filled
from ops.archive.scaling import Bits

_VALUE = ("scaled", "divisor", "single", "unscaled")
_NO_CONSTANTS = ("time", "unscaled")  # statistics leave out NaN, and call -0.0 and 0.0 equal


def read(
    parquet: Any, group: int, wanted: Collection[str], bounds: tuple[int, int], *, checked: bool
) -> dict[str, NDArray[Any]] | None:
    """``channel_id`` (int32), ``time`` (int64, µs); if wanted, ``value`` (uint64, its bits) and ``status`` (uint32).

    Shape (n,) each: the rows with times within the bounds (µs; the second one is excluded), sorted by channel and time.
    None: the statistics say that there are none.
    ``parquet``: an open ParquetFile; ``checked``: its footer is as it was written, so that statistics can be relied on.
    """
    facts = parquet.metadata.row_group(group)
    if checked and is_outside(parquet, group, bounds):
        return None
    names = ["channel_id", "time", *(_VALUE if "value" in wanted else ()), *(["status"] if "status" in wanted else [])]
    known: dict[str, Any] = {}  # column → its only value; None: all are null
    for name in names:
        statistics = facts.column(SAMPLES.get_field_index(name)).statistics
        if statistics is None or not checked:
            continue
        if statistics.has_null_count and statistics.null_count == facts.num_rows:
            known[name] = None
        elif name not in _NO_CONSTANTS and _is_constant(statistics):
            known[name] = statistics.min
    if "value" in wanted and "scaled" in known and known["scaled"] is None:
        known.update(divisor=1.0, single=False)
    table = parquet.read_row_group(group, [name for name in names if name not in known], use_threads=False)
    if "channel_id" in known:  # the times ascend
        first, last = np.searchsorted(_times(table), bounds).tolist()
        table = table.slice(first, last - first)
    else:
        time = _times(table)
        table = table.filter(pa.array((time >= bounds[0]) & (time < bounds[1])))
    columns = _Columns({name: as_array(table.column(name)) for name in table.schema.names}, known, table.num_rows)
    found = {"channel_id": columns.elements("channel_id", np.int32), "time": columns.elements("time", np.int64)}
    if "value" in wanted:
        found["value"] = columns.values()
    if "status" in wanted:
        found["status"] = columns.elements("status", np.uint32)
    return found


@dataclass(frozen=True, slots=True)
class _Columns:
    read: Mapping[str, Any]
    known: Mapping[str, Any]
    n: int

    def elements(self, name: str, kind: Any) -> NDArray[Any]:
        """The elements, or the only value; where one is null, anything."""
        if name not in self.read:
            return np.full(self.n, self.known[name], kind)
        return filled(self.read[name], kind)

    def values(self) -> Bits:
        if self.known.get("scaled", 0) is None:
            return self.elements("unscaled", np.uint64)
        read, known = self.read, self.known
        divisor = read["divisor"].to_numpy() if "divisor" in read else known["divisor"]
        single = read["single"].to_numpy(zero_copy_only=False) if "single" in read else known["single"]
        return bits_of(self.elements("scaled", np.int64), divisor, single, read.get("unscaled"))


def _times(table: Any) -> NDArray[np.int64]:
    return as_array(table.column("time")).view(pa.int64()).to_numpy()  # type: ignore[no-any-return]


def is_outside(parquet: Any, group: int, bounds: tuple[int, int]) -> bool:
    """Whether the statistics say that all times are outside the bounds."""
    times = parquet.metadata.row_group(group).column(SAMPLES.get_field_index("time")).statistics
    if times is None or not times.has_min_max:
        return False
    return microseconds(times.max) < bounds[0] or microseconds(times.min) >= bounds[1]


def _is_constant(statistics: Any) -> bool:
    return bool(statistics.has_min_max and statistics.null_count == 0 and statistics.min == statistics.max)
