"""Values as integers and a divisor wherever that restores them to the bit.

Deltas and byte planes of such integers take a tenth of what the doubles take. What has no such form (NaN, -0.0, noise)
is kept as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.batch import Float64s, Int64s
from history.codec.segments import Mask, Segments

Bits = NDArray[np.uint64]

_MAX_INTEGER = 9e15  # below 2^53: exact as a double
_DECIMALS = 9  # of doubles; of what was a float4 before, 6
_SINGLE_DECIMALS = 6
_SINGLE_RANGE = 65_536  # a wider range of what was a float4 is no resolution, but noise
_VALUES_PER_EXCEPTION = 16  # at most one in so many finite values of a segment may have another form
_PROBE_VALUES = 64  # values of a segment that rule out a divisor


@dataclass(frozen=True, slots=True, eq=False)
class ScaledValues:
    """Values of m segments, n in all. Where ``exact``, the value is ``scaled / divisor``.

    ``single``: that quotient is then rounded to 32 bits.
    """

    scaled: Int64s  # (n,) 0 where not exact
    exact: Mask  # (n,)
    divisor: Float64s  # (m,) powers of ten
    single: Mask  # (m,)


def scale(bits: Bits, segments: Segments) -> ScaledValues:
    """The integers of values that are given by the bits of their doubles, with the fewest decimals for each segment."""
    scaled, exact = np.zeros(segments.n, np.int64), np.zeros(segments.n, np.bool_)
    divisor, single = np.ones(len(segments)), np.zeros(len(segments), np.bool_)
    finite = np.isfinite(bits.view(np.float64))
    needed = segments.count(finite)
    undecided = needed > 0
    needed -= needed // _VALUES_PER_EXCEPTION
    probed = finite & (segments.positions % segments.repeated(np.maximum(1, segments.lengths // _PROBE_VALUES)) == 0)
    probes = np.append(0, np.cumsum(segments.count(probed)))
    probe = bits[probed]
    for is_single, decimals in ((False, _DECIMALS), (True, _SINGLE_DECIMALS)):
        for k in range(decimals + 1):
            hits = np.append(0, np.cumsum(_scaled(probe, k, is_single)[1]))
            chosen = undecided & (2 * (hits[probes[1:]] - hits[probes[:-1]]) >= np.diff(probes))
            if not chosen.any():
                continue
            part, chosen_elements = segments.selected(chosen)
            integers, restored = _scaled(bits[chosen_elements], k, is_single)
            suits = part.count(restored) >= needed[chosen]
            if is_single:
                suits &= np.ptp(np.stack(extent(integers, restored, part)), axis=0) < _SINGLE_RANGE
            if not suits.any():
                continue
            decided = np.zeros(len(segments), np.bool_)
            decided[chosen] = suits
            from_part, to = part.repeated(suits), segments.repeated(decided)
            scaled[to], exact[to] = integers[from_part], restored[from_part]
            divisor[decided], single[decided] = 10.0**k, is_single
            undecided &= ~decided
            if not undecided.any():
                return ScaledValues(scaled, exact, divisor, single)
    return ScaledValues(scaled, exact, divisor, single)


def unscale(scaled: Int64s, divisor: Float64s | float, single: Mask | bool) -> Float64s:
    """The values: the inverse of :func:`scale` where it is exact."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        values = scaled / divisor
        if np.any(single):
            values = np.where(single, values.astype(np.float32).astype(np.float64), values)
    return values


def extent(scaled: Int64s, exact: Mask, segments: Segments) -> tuple[Int64s, Int64s]:
    """The smallest and the largest exact integer of each segment; both are 0 where there is none. (m,) each."""
    has_exact = segments.any(exact)
    least = segments.least(np.where(exact, scaled, np.iinfo(np.int64).max))
    greatest = segments.greatest(np.where(exact, scaled, np.iinfo(np.int64).min))
    return np.where(has_exact, least, 0), np.where(has_exact, greatest, 0)


def _scaled(bits: Bits, k: int, single: bool) -> tuple[Int64s, Mask]:
    """Integers of k decimals, 0 where they don't restore the value, and where they do."""
    divisor = 10.0**k
    with np.errstate(invalid="ignore", over="ignore"):
        integers = np.rint(bits.view(np.float64) * divisor)
        integers = np.where(np.abs(integers) < _MAX_INTEGER, integers, 0.0)  # NaN and infinities, too
    scaled = integers.astype(np.int64)
    exact = unscale(scaled, divisor, single).view(np.uint64) == bits
    return np.where(exact, scaled, 0), exact
