"""A Parquet file of samples, sorted by channel and time: its columns and encodings.

A channel with many samples has row groups of its own; channels with few share one. So one channel is read without most
of the others, and a footer has no entry for every slow signal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from core.samples import Samples
from history.codec.row_groups import MAX_GROUP, SAMPLES, record_batch

OWN_GROUP = 32_768  # samples of a channel that has row groups of its own
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
    """Writes a file of samples."""

    def __init__(self, sink: Any, metadata: Mapping[bytes, bytes]) -> None:
        """``sink``: a path or a file object of pyarrow."""
        self._writer = pq.ParquetWriter(sink, SAMPLES, **WRITER_OPTIONS)
        self._writer.add_key_value_metadata(dict(metadata))
        self._waiting: list[Any] = []
        self._rows = 0
        self.row_groups = 0

    def write(self, samples: Samples) -> tuple[int, int]:
        """Add a channel's samples, behind those of smaller ids; the first and the last row group that hold them."""
        batch = record_batch(samples)
        if self._rows and (len(samples) >= OWN_GROUP or self._rows + len(samples) > OWN_GROUP):
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
        """Close the file, complete or not."""
        self._writer.close()


def rows_of(channels: NDArray[Any], channel: int) -> slice:
    """The rows of a channel, of rows by channel."""
    return slice(*np.searchsorted(channels, [channel, channel + 1]).tolist())
