"""A Parquet file of samples, sorted by channel and time: its columns and encodings.

A channel with many samples has row groups of its own; channels with few share one. So one channel is read without most
of the others, and a footer has no entry for every slow signal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ops.archive.scaling import Bits, scale, unscale
from ops.evidence.reader import Series

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
OWN_GROUP = 32_768  # samples of a channel that has row groups of its own
MAX_GROUP = 65_536  # rows of a row group: an hour of a day at 1 Hz is read with eleven others
WRITER_OPTIONS: Mapping[str, Any] = {
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": ["channel_id", "divisor", "status"],
    "column_encoding": {
        "time": "DELTA_BINARY_PACKED",
        "scaled": "DELTA_BINARY_PACKED",
        "unscaled": "BYTE_STREAM_SPLIT",
    },
    "write_statistics": True,
    "sorting_columns": [pq.SortingColumn(0), pq.SortingColumn(1)],
    "store_schema": False,
    "write_page_checksum": True,
    "max_rows_per_page": 131_072,
}


class SampleWriter:
    """Writes such a file."""

    def __init__(self, sink: Any, metadata: Mapping[bytes, bytes]) -> None:
        """``sink``: a path or a file object of pyarrow."""
        self._writer = pq.ParquetWriter(sink, SAMPLES, **WRITER_OPTIONS)
        self._writer.add_key_value_metadata(dict(metadata))
        self._waiting: list[Any] = []
        self._rows = 0
        self.row_groups = 0

    def write(self, series: Series) -> tuple[int, int]:
        """Add a channel's samples, behind those of smaller ids; the first and the last row group that hold them."""
        batch = record_batch(series)
        if self._rows and (len(series.time) >= OWN_GROUP or self._rows + batch.num_rows > OWN_GROUP):
            self._flush()
        first = self.row_groups
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if self._rows >= OWN_GROUP:
            self._flush()
            return first, self.row_groups - 1
        return first, first

    def _flush(self) -> None:
        table = pa.Table.from_batches(self._waiting, SAMPLES)
        size = math.ceil(self._rows / math.ceil(self._rows / MAX_GROUP))  # equal ones
        for begin in range(0, self._rows, size):
            self._writer.write_table(table.slice(begin, size), row_group_size=size)
            self.row_groups += 1
        self._waiting, self._rows = [], 0

    def close(self) -> None:
        """Write what waits, and the footer."""
        if self._rows:
            self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Let go of the file, whole or not."""
        self._writer.close()


def record_batch(series: Series) -> Any:
    """Samples of one channel as columns of the file."""
    n, values = len(series.time), scale(series.value)
    missing, whole = np.packbits(values.exact, bitorder="little"), np.packbits(~values.exact, bitorder="little")
    n_exact = int(np.count_nonzero(values.exact))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(n, series.channel_id, np.int32)),
            pa.array(series.time, pa.int64()).cast(TIME),
            pa.Array.from_buffers(pa.int64(), n, [pa.py_buffer(missing), pa.py_buffer(values.scaled)], n - n_exact),
            pa.array(np.full(n, values.divisor)),
            pa.array(np.full(n, values.single)),
            # Not by way of Python or a cast: a NaN keeps its payload.
            pa.Array.from_buffers(pa.float64(), n, [pa.py_buffer(whole), pa.py_buffer(series.value)], n_exact),
            pa.array(series.status, pa.uint32()),
        ],
        schema=SAMPLES,
    )


def value_bits(table: Any) -> Bits:
    """The bits of the values of a table or batch with the columns ``scaled``, ``divisor``, ``single``, ``unscaled``.

    Returns (n,) uint64.
    """
    scaled, divisor, single, unscaled = (
        as_array(table.column(name)) for name in ("scaled", "divisor", "single", "unscaled")
    )
    flags = single.to_numpy(zero_copy_only=False)
    bits: Bits = unscale(filled(scaled, np.int64), divisor.to_numpy(), flags).view(np.uint64)
    if unscaled.null_count == len(unscaled):
        return bits
    return np.where(unscaled.is_valid().to_numpy(zero_copy_only=False), filled(unscaled, np.uint64), bits)


def segments(channel: NDArray[np.int32]) -> list[slice]:
    """The rows of each channel, of rows of which those of a channel are together."""
    if not len(channel):
        return []
    if channel[0] == channel[-1]:
        return [slice(0, len(channel))]
    edges = np.flatnonzero(channel[1:] != channel[:-1]) + 1
    return [slice(*one) for one in pairwise([0, *edges.tolist(), len(channel)])]


def rows_of(channels: NDArray[Any], one: int) -> slice:
    """The rows of a channel, of rows by channel."""
    return slice(*np.searchsorted(channels, [one, one + 1]).tolist())


def as_array(column: Any) -> Any:
    """A column of a table or batch as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def filled(array: Any, kind: Any) -> NDArray[Any]:
    """The elements' bits, whatever stands where one is null."""
    data = array.buffers()[1]
    return np.frombuffer(data, kind, len(array) + array.offset)[array.offset :] if len(array) else np.empty(0, kind)
