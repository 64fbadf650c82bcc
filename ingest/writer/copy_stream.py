"""PostgreSQL's binary COPY stream, built as one numpy structured array.

Format: https://www.postgresql.org/docs/17/sql-copy.html ("Binary Format"): a header, then for each row the
number of fields and each field's length and bytes, all big-endian. With fixed lengths a row is 42 bytes.
"""

from __future__ import annotations

import numpy as np

from ingest.batch import Float64s, Int32s, Int64s, UInt32s

COLUMNS = ("time", "value", "channel_id", "status")  # of samples_raw, in this order

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)  # signature, flags, no extension
TRAILER = b"\xff\xff"
EPOCH_US = 946_684_800_000_000  # PostgreSQL counts from 2000-01-01
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


def copy_stream(channel_id: Int32s, time: Int64s, value: Float64s, status: UInt32s) -> memoryview:
    """The bytes that ``COPY samples_raw FROM STDIN (FORMAT binary)`` takes for columns of equal length n.

    Statuses keep their bits in PostgreSQL's signed integer: Bad ones are negative there.
    """
    n = len(channel_id)
    stream = np.empty(len(HEADER) + n * _ROW.itemsize + len(TRAILER), np.uint8)
    stream[: len(HEADER)] = np.frombuffer(HEADER, np.uint8)
    stream[-len(TRAILER) :] = np.frombuffer(TRAILER, np.uint8)
    rows = stream[len(HEADER) : -len(TRAILER)].view(_ROW)
    rows["fields"] = len(COLUMNS)
    rows["time_length"] = rows["value_length"] = 8
    rows["channel_length"] = rows["status_length"] = 4
    rows["time"] = time - EPOCH_US
    # Bits, not numbers: a conversion could quiet a signalling NaN.
    rows["value"].view(">u8")[:] = value.view(np.uint64)
    rows["channel_id"] = channel_id
    rows["status"] = status.view(np.int32)
    return stream.data
