"""The binary COPY stream, byte for byte as PostgreSQL's documentation lays it out."""

import struct

import numpy as np

from core.copy_stream import copy_stream
from core.samples import Samples


def test_one_copy_row_equals_a_hand_written_one() -> None:
    stream = bytes(
        copy_stream(
            Samples(
                np.array([7], np.int32),
                np.array([946_684_800_000_001], np.int64),
                np.array([-0.0]),
                np.array([0x80050000], np.uint32),
            ),
        )
    )
    header = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
    row = struct.pack(">h iq id ii iI", 4, 8, 1, 8, -0.0, 4, 7, 4, 0x80050000)
    assert stream == header + row + b"\xff\xff"
