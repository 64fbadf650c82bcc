"""PostgreSQL's binary COPY stream, built as one numpy structured array.

Format: https://www.postgresql.org/docs/17/sql-copy.html ("Binary Format"): a header, then for each row the
number of fields and each field's length and bytes, all big-endian. With fixed lengths a row is 42 bytes.
"""

from __future__ import annotations

import numpy as np

from core.samples import Samples
from core.timestamps import POSTGRES_EPOCH_US

COLUMNS = ("time", "value", "channel_id", "status")  # of samples_raw, in this order

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # signature, flags, no extension
TRAILER = b"\xff\xff"
_ROW = np.dtype(
    [
        ("fields", ">i2"),
        ("time_length", ">i4"),
        ("time", ">i8"),
        ("value_length", ">i4"),
        ("value", ">f8"),
        ("channel_length", ">i4"),
        ("channel_id", ">i4"),
        ("status_length", ">i4"),
        ("status", ">i4"),
    ]
)


def copy_stream(samples: Samples) -> memoryview:
    """The bytes for ``COPY samples_raw FROM STDIN (FORMAT binary)``.

    The bits of a status are kept in PostgreSQL's signed integer: Bad ones are negative there.
    """
    n = len(samples)
    stream = np.empty(len(HEADER) + n * _ROW.itemsize + len(TRAILER), np.uint8)
    stream[: len(HEADER)] = np.frombuffer(HEADER, np.uint8)
    stream[-len(TRAILER) :] = np.frombuffer(TRAILER, np.uint8)
    rows = stream[len(HEADER) : -len(TRAILER)].view(_ROW)
    rows["fields"] = len(COLUMNS)
    rows["time_length"] = rows["value_length"] = 8
    rows["channel_length"] = rows["status_length"] = 4
    rows["time"] = samples.time - POSTGRES_EPOCH_US
    # As bits: converting the number could change the bits of a NaN.
    rows["value"].view(">u8")[:] = samples.bits
    rows["channel_id"] = samples.channel
    rows["status"] = samples.status.view(np.int32)
    return stream.data


def samples_of(stream: bytes) -> Samples:
    """The samples of such a stream: the inverse of :func:`copy_stream`."""
    n = (len(stream) - len(HEADER) - len(TRAILER)) // _ROW.itemsize
    rows = np.frombuffer(stream, _ROW, n, len(HEADER))
    return Samples(
        rows["channel_id"].astype(np.int32),
        rows["time"].astype(np.int64) + POSTGRES_EPOCH_US,
        rows["value"].view(">u8").astype(np.uint64).view(np.float64),
        rows["status"].astype(np.int32).view(np.uint32),
    )
