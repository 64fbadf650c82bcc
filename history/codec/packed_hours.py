"""Packed hours as columns: hours of many channels at once. schema/tables/samples.sql describes the form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.batch import Int32s, Int64s
from history.codec.packed_numbers import PackedNumbers
from history.codec.scaling import Bits
from history.codec.segments import Segments
from history.codec.times import Lines, fit

HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True, eq=False)
class PackedHours:
    """Hours of channels, m ≥ 1 rows of ``plant.samples_packed``, with n samples in all."""

    segments: Segments
    channel_id: Int32s  # (m,)
    hour: Int64s  # (m,) µs
    lines: Lines
    value: PackedNumbers
    status: Int32s  # (n,)


def pack(channel_id: Int32s, time: Int64s, bits: Bits, status: Int32s) -> PackedHours:
    """Pack samples by channel and time, n ≥ 1, each time (µs) of a channel once.

    Raises ArithmeticError where they would not come back to the bit, which would be our mistake.
    """
    hour = time // HOUR_US * HOUR_US
    segments = Segments.of_runs(channel_id, hour)
    begins = segments.begins
    lines = fit(time, segments)
    if not np.array_equal(lines.times(segments), time):
        raise ArithmeticError(f"times of hours from {int(hour.min())} µs on do not come back from the packed form")
    return PackedHours(segments, channel_id[begins], hour[begins], lines, PackedNumbers.of_bits(bits, segments), status)
