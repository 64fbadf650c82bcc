"""Numbers as packed hours and packed minutes have them: integers over a power of ten in byte planes, or as they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.batch import Int64s
from history.codec.scaling import Bits, extent, scale, unscale
from history.codec.segments import Mask, Segments
from history.codec.times import PLANES_MIDDLE, planes

_VALUES_PER_EXCEPTION = 16  # at most one in so many values is not a float4 where values are stored as such


@dataclass(frozen=True, slots=True, eq=False)
class PackedNumbers:
    """Numbers of m ≥ 1 segments, n in all. schema/tables/samples.sql describes the form."""

    segments: Segments
    base: NDArray[np.float64]  # (m,) with the middle of the planes
    divisor: NDArray[np.float64]  # (m,)
    single: Mask  # (m,)
    planes: NDArray[np.int64]  # (m,) bytes of a number
    numbers: Int64s  # (n,) ≥ 0
    value: Bits  # (n,)
    is_float4: Mask  # (n,) which values are in float4s
    is_float8: Mask  # (n,) which values are in float8s

    @classmethod
    def of_bits(cls, bits: Bits, segments: Segments) -> PackedNumbers:
        """Pack numbers that are given by the bits of their doubles.

        Raises ArithmeticError where they would not come back to the bit, which would be our mistake.
        """
        scaled = scale(bits, segments)
        least, greatest = extent(scaled.scaled, scaled.exact, segments)
        number = planes(greatest - least)
        is_scaled = segments.any(scaled.exact) & (number <= 4)
        number = np.where(is_scaled, number, 0)
        exact = scaled.exact & segments.repeated(is_scaled)
        float4 = _as_float4(bits) == bits
        float4 &= segments.repeated(
            ~is_scaled & (segments.count(float4) >= segments.lengths - segments.lengths // _VALUES_PER_EXCEPTION)
        )
        packed = cls(
            segments,
            base=np.where(is_scaled, least + PLANES_MIDDLE[number], 0).astype(np.float64),
            divisor=np.where(is_scaled, scaled.divisor, 1.0),
            single=scaled.single & is_scaled,
            planes=number,
            numbers=np.where(exact, scaled.scaled - segments.repeated(least), 0),
            value=bits,
            is_float4=float4,
            is_float8=~exact & ~float4,
        )
        if not np.array_equal(packed.decoded(), bits):
            raise ArithmeticError("numbers do not come back from the packed form")
        return packed

    def decoded(self) -> Bits:
        """The bits of the numbers as readers decode them, (n,)."""
        repeated = self.segments.repeated
        numbers = repeated(self.base - PLANES_MIDDLE[self.planes]) + self.numbers  # integers below 2^53
        bits: Bits = unscale(numbers, repeated(self.divisor), repeated(self.single)).view(np.uint64)
        bits[self.is_float4] = _as_float4(self.value[self.is_float4])
        bits[self.is_float8] = self.value[self.is_float8]
        return bits


def _as_float4(bits: Bits) -> Bits:
    """The bits of doubles that were rounded to 32 bits; other bits for what PostgreSQL may not restore from them."""
    value = bits.view(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = value.astype(np.float32).astype(np.float64)
    safe = (np.abs(value) >= 1e-30) & (np.abs(value) <= 1e30) | (bits == 0)
    return np.where(safe, rounded.view(np.uint64), ~bits)
