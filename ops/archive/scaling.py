"""Values as integers and a divisor wherever that reproduces them to the bit.

Deltas of such integers take a tenth of what the doubles take. What has no such form (NaN, -0.0, noise) is kept as it
is.
The divisors and the limits are those of packed hours (schema/routines/packing/pack_values.sql).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.batch import Float64s, Int64s

Bits = NDArray[np.uint64]
Flags = NDArray[np.bool_]

_MAX_INTEGER = 9e15  # below 2^53: exact as a double
_DECIMALS = 9  # of doubles; of what was a float4 before, 6
_SINGLE_DECIMALS = 6
_SINGLE_RANGE = 65_536  # a wider range of what was a float4 is no resolution, but noise
_FEW = 16  # at most one in so many finite values may have another form
_PROBED = 256  # values that rule out a divisor


@dataclass(frozen=True, slots=True, eq=False)
class ScaledValues:
    """Values of one channel, n of them. Where ``exact``, the value is ``scaled / divisor``.

    ``single``: that quotient is then rounded to 32 bits.
    """

    scaled: Int64s  # (n,) 0 where not exact
    exact: Flags  # (n,)
    divisor: float  # a power of ten
    single: bool


def scale(bits: Bits) -> ScaledValues:
    """The integers of values that are given by the bits of their doubles."""
    values = bits.view(np.float64)
    finite = np.isfinite(values)
    n = int(np.count_nonzero(finite))
    if n:
        probe = values[finite][:: max(1, n // _PROBED)]
        for single, decimals in ((False, _DECIMALS), (True, _SINGLE_DECIMALS)):
            for k in range(decimals + 1):
                if _share(probe.view(np.uint64), k, single) < 0.5:
                    continue
                found = _scaled(bits, k, single)
                if np.count_nonzero(found.exact) >= n - n // _FEW and not (single and _is_noise(found)):
                    return found
    return ScaledValues(np.zeros(len(bits), np.int64), np.zeros(len(bits), np.bool_), 1.0, False)


def unscale(scaled: Int64s, divisor: Float64s | float, single: Flags | bool) -> Float64s:
    """The values: the inverse of :func:`scale` where it is exact."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        values = scaled / divisor
        if np.any(single):
            values = np.where(single, values.astype(np.float32).astype(np.float64), values)
    return values


def _scaled(bits: Bits, k: int, single: bool) -> ScaledValues:
    values, divisor = bits.view(np.float64), 10.0**k
    with np.errstate(invalid="ignore", over="ignore"):
        whole = np.rint(values * divisor)
        whole = np.where(np.abs(whole) < _MAX_INTEGER, whole, 0.0)  # NaN and infinities, too
    scaled = whole.astype(np.int64)
    exact = unscale(scaled, divisor, single).view(np.uint64) == bits
    return ScaledValues(np.where(exact, scaled, 0), exact, divisor, single)


def _share(bits: Bits, k: int, single: bool) -> float:
    return float(np.mean(_scaled(bits, k, single).exact))


def _is_noise(found: ScaledValues) -> bool:
    whole = found.scaled[found.exact]
    return int(whole.max()) - int(whole.min()) >= _SINGLE_RANGE
