"""Row groups of the archive as columns of Arrow: scaled integers, whose deltas Parquet stores, and the other values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from core.samples import Samples
from history.codec.scaling import Bits, scale, unscale
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


def as_array(column: Any) -> Any:
    """A column of a table or batch as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def filled(array: Any, kind: Any) -> NDArray[Any]:
    """The elements' bits, whatever stands where one is null."""
    data = array.buffers()[1]
    return np.frombuffer(data, kind, len(array) + array.offset)[array.offset :] if len(array) else np.empty(0, kind)
