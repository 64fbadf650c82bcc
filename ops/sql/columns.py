"""Columns of samples, from numpy to Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.batch import Float64s
from ops.archive.meanings import Meanings
from ops.archive.sample_file import TIME, segments
from ops.evidence.reader import Series
from ops.sql.scan import Scan

# channel_id (int32), time (int64, µs) and, if wanted, value (uint64, its bits) and status (uint32); (n,) each
Columns: TypeAlias = dict[str, NDArray[Any]]
_ROWS = 131_072  # of a batch


def columns_of(series: Series) -> Columns:
    """The samples of one channel."""
    channel = np.full(len(series.time), series.channel_id, np.int32)
    return {
        "channel_id": channel,
        "time": series.time,
        "value": series.value,
        "status": series.status.astype(np.uint32),
    }


def together(found: Iterable[Columns]) -> Iterator[Columns]:
    """Small ones as larger ones: most of the time would go into the calls for each."""
    some, rows = list[Columns](), 0
    for one in found:
        if some and rows + len(one["time"]) > _ROWS:
            yield _concatenated(some)
            some, rows = [], 0
        some.append(one)
        rows += len(one["time"])
    if some:
        yield _concatenated(some)


def _concatenated(some: list[Columns]) -> Columns:
    return some[0] if len(some) == 1 else {name: np.concatenate([one[name] for one in some]) for name in some[0]}


def in_parts(found: Iterable[Columns]) -> Iterator[Columns]:
    """The same, some rows at a time."""
    for one in found:
        for start in range(0, len(one["time"]), _ROWS):
            yield {name: column[start : start + _ROWS] for name, column in one.items()}


def as_arrow(found: Iterable[Columns]) -> Iterator[dict[str, Any]]:
    """The same as arrays of Arrow, some rows at a time."""
    return map(_arrays, in_parts(found))


def as_batches(scan: Scan, found: Columns) -> list[Any]:
    """The same as batches with the columns of a scan, of which neither is the name or the unit."""
    return [finished(one, scan, Meanings([])) for one in as_arrow([found])]


def columns_in(batch: Any) -> Columns:
    """The columns of such a batch."""
    kinds = {"time": pa.int64(), "value": pa.uint64()}
    return {
        name: column.view(kinds.get(name, column.type)).to_numpy()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


def by_channel(batches: Iterable[Any]) -> Iterator[Columns]:
    """All samples of each channel. ``batches``: those of a channel are together."""
    parts: list[Columns] = []
    for batch in batches:
        found = columns_in(batch)
        for rows in segments(found["channel_id"]):
            part = {name: column[rows] for name, column in found.items()}
            if parts and parts[0]["channel_id"][0] != part["channel_id"][0]:
                yield _concatenated(parts)
                parts = []
            parts.append(part)
    if parts:
        yield _concatenated(parts)


def good_values(value: Float64s, status: NDArray[np.int32]) -> tuple[Float64s, NDArray[np.bool_]]:
    """Values as good_samples() (schema/queries/duckdb.sql) has them, and which of them it has; (n,) each."""
    size = np.abs(value)
    small = size < 1e-50
    return np.where(small, 0.0, value) if small.any() else value, (status >= 0) & (size < 1e50)  # not NaN


def in_order(batches: Iterable[Any]) -> Iterator[Any]:
    """The samples of each channel together and by time. Those of a channel in a batch are so already."""
    found: dict[int, list[Any]] = {}
    for batch in batches:
        channel = batch.column("channel_id").to_numpy()
        for rows in segments(channel):
            found.setdefault(int(channel[rows.start]), []).append(batch[rows])
    for number in sorted(found):
        parts = sorted(found.pop(number), key=lambda one: _ends(one)[0])
        if all(_ends(one)[1] < _ends(other)[0] for one, other in pairwise(parts)):
            yield from parts
        else:  # an amendment
            yield from pa.Table.from_batches(parts).sort_by("time").to_batches(_ROWS)


def _ends(batch: Any) -> tuple[int, int]:
    """The first and the last time (µs)."""
    time = batch.column("time").view(pa.int64())
    return time[0].as_py(), time[-1].as_py()


def finished(columns: dict[str, Any], scan: Scan, meanings: Meanings) -> Any:
    """The columns of a scan."""
    if scan.mentions("name", "unit"):
        time = columns["time"].view(pa.int64()).to_numpy()
        columns.update(meanings.columns(columns["channel_id"].to_numpy(), time))
    return pa.RecordBatch.from_arrays([columns[name] for name in scan.schema.names], schema=scan.schema)


def typed(column: Any, kind: Any) -> Any:
    """An array of Arrow or numpy as one of Arrow; times are numbers (µs) in numpy."""
    array = column if isinstance(column, pa.Array) else pa.array(column)
    return array.view(kind) if array.type != kind else array


def listed(kind: Any, found: Sequence[Columns | None]) -> Any:
    """An array of Arrow of lists of structs: the rows of each, or none. ``kind``: the struct, of these columns."""
    some = [one for one in found if one is not None]
    rows = [0 if one is None else len(one[kind[0].name]) for one in found]
    if not some:
        return pa.array([[]] * len(found), pa.list_(kind))
    columns = [typed(np.concatenate([one[field.name] for one in some]), field.type) for field in kind]
    offsets = np.append(0, np.cumsum(rows)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(columns, fields=list(kind)))


def _arrays(found: Columns) -> dict[str, Any]:
    arrays = {"channel_id": pa.array(found["channel_id"]), "time": pa.array(found["time"]).view(TIME)}
    if "value" in found:
        arrays["value"] = _doubles(found["value"])
    if "status" in found:
        arrays["status"] = pa.array(found["status"].view(np.int32))
    return arrays


def _doubles(bits: Any) -> Any:
    """Not by way of Python or a cast: a NaN keeps its payload."""
    return pa.Array.from_buffers(pa.float64(), len(bits), [None, pa.py_buffer(np.ascontiguousarray(bits))])
