"""Oscillations of channels (schema/questions/oscillation.sql).

They are found by the regularity of the zero crossings of the autocorrelation, which noise hardly touches: Thornhill,
Huang and Zhang, Detection of multiple oscillations in control loops, Journal of Process Control 13 (2003). Whether a
valve sticks is told by the shape of half periods, triangles or sines: He, Wang, Pottmann and Qin, A curve fitting
method for detecting valve stiction in oscillating control loops, Industrial & Engineering Chemistry Research 46 (2007).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from core.batch import Float64s
from core.errors import OperationError
from core.samples import Samples, segments
from history.codec.row_groups import TIME
from history.sql.kernels.columns import Columns, columns_of
from history.sql.kernels.reference import FEW_SAMPLES, JUDGED, NO_SPREAD
from history.sql.kernels.resampled import Grid

OSCILLATIONS = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("verdict", pa.int32()),  # of kernels/reference.py; the others are of oscillations only
        ("period", pa.float64()),  # s
        ("amplitude", pa.float64()),  # half of what it swings by
        ("regularity", pa.float64()),
        ("from_time", TIME),  # where it begins; before since: it swings from the start
        ("top_time", TIME),  # of the last maximum of a sine of this period
        ("stiction", pa.float64()),  # index: 0 sines, 1 triangles
    ]
)
_SLOWEST = 6  # periods in an interval: fewer are taken out
_PERIODS = 10  # in an interval, at least: noise seems regular where slower waves were taken out
_SHORTEST = 5  # buckets of a period, at least
_MIN_BUCKETS = 200  # of fewer, one in a hundred of noise seems regular
_CROSSINGS = 11  # of the autocorrelation, at most: later ones are of few values
_MIN_CROSSINGS = 5
_REGULARITY = 3.0  # standard deviations of half periods in their mean at which they are regular
_STRENGTH = 0.3  # of the variance: the autocorrelation after one period, at least
_WINDOW = 3  # periods in which an amplitude is measured
_GROWN = 1 / 16  # of the largest amplitude: a smaller one is not its begin
_NOISE = 5.0  # times the lower quarter of amplitudes before: noise rarely has a larger one
_MISSING = 0.1  # of the buckets, at most
_PEAKS = np.linspace(0.1, 0.9, 17)  # places of the tops of triangles, in half periods


@dataclass(frozen=True, slots=True, eq=False)
class Oscillations:
    """The strongest oscillation of each channel."""

    grid: Grid
    n: int  # buckets
    least_regularity: float

    def __post_init__(self) -> None:
        """Check the number of buckets. Raises OperationError."""
        if self.n < _MIN_BUCKETS:
            raise OperationError(
                f"--step: found {self.n} means in the interval; legal: {_MIN_BUCKETS} or more, by a shorter step or a "
                "longer time"
            )

    def compute(self, samples: Samples) -> Columns:
        """The columns of OSCILLATIONS. ``samples``: all samples of some channels, by channel and time."""
        means = self.grid.numbers(samples)
        rows = []
        for segment in segments(means["channel_id"]):
            number, value = means["number"][segment], means["value"][segment]
            within = number < self.n
            number, value = number[within], value[within]
            channel, is_judged = int(means["channel_id"][segment.start]), len(number) >= (1 - _MISSING) * self.n
            rows.append((channel, JUDGED if is_judged else FEW_SAMPLES, np.nan, np.nan, np.nan, 0, 0, np.nan))
            if is_judged and np.ptp(value) > NO_SPREAD * np.abs(value).max():
                values = np.interp(np.arange(self.n), number, value)
                rows += [(channel, 0, *row) for row in self._of_values(values)]
        return columns_of(OSCILLATIONS, rows)

    def _of_values(self, values: Float64s) -> Iterator[tuple[Any, ...]]:
        """Row of OSCILLATIONS without its channel, if there is one. ``values``: (buckets,)."""
        fast = without_slow(values)
        correlation = autocorrelation(fast, self.n // 2)
        half, regularity = _half_period(correlation)
        period = 2 * half
        if regularity < self.least_regularity or not _SHORTEST <= period <= len(values) / _PERIODS:
            return
        around = correlation[round(0.8 * period) : round(1.2 * period) + 1]
        if not len(around) or around.max() < _STRENGTH:
            return
        envelope = _demodulated(fast, period)
        size = np.abs(envelope)
        edge = len(values) - len(envelope)
        swings = np.flatnonzero(size > size.max() / 2)
        first, last = int(swings[0]), int(swings[-1])
        at = last + edge // 2  # bucket, in the middle of whose window it swings last
        top = at - np.angle(envelope[last]) / (2 * np.pi) * period
        top -= period * np.ceil((top - at) / period)
        from_bucket = _first_swing(size, first, edge + 1)
        begin = self.grid.since + ((from_bucket + edge // 2) * self.grid.step if from_bucket > 0 else -1)
        yield (
            period * self.grid.step / 1e6,
            float(np.median(size[first : last + 1])),
            regularity,
            begin,
            self.grid.since + round((top + 0.5) * self.grid.step),
            _stiction(fast[first : last + edge + 1], half),
        )


def without_slow(values: Float64s) -> Float64s:
    """Values without their line and what has fewer than six periods. ``values``: in the order of time by the last
    axis."""
    n = values.shape[-1]
    place = np.arange(n) - (n - 1) / 2
    off = values - values.mean(axis=-1, keepdims=True)
    off -= place * (off @ place)[..., None] / (place @ place)
    spectrum = np.fft.rfft(off)
    spectrum[..., : _SLOWEST - 1] = 0
    return np.fft.irfft(spectrum, n)


def autocorrelation(values: Float64s, lags: int) -> Float64s:
    """Autocorrelation of so many lags, from 0 on, along the last axis; it is not weakened by having fewer values."""
    n = values.shape[-1]
    correlation: Float64s = lagged_products(values, lags) * n / (n - np.arange(lags))
    return correlation


def lagged_products(values: Float64s, lags: int) -> Float64s:
    """Sums of products of values that are 0, 1, ..., lags - 1 apart, along the last axis, divided by the first one."""
    length = _fast_length(values.shape[-1] + lags)  # of values and zeros, so that the ends don't meet
    sums = np.fft.irfft(np.square(np.abs(np.fft.rfft(values, length))), length)[..., :lags]
    products: Float64s = sums / np.maximum(sums[..., :1], 1e-300)
    return products


def _fast_length(n: int) -> int:
    """The least length from n on that is 4 to 8 times a power of two: its transform takes half of the time."""
    unit = 1 << max(n.bit_length() - 3, 0)
    return -(-n // unit) * unit


def _half_period(correlation: Float64s) -> tuple[float, float]:
    """Mean distance of zero crossings (lags), and how regular it is: 1 and more is regular; 0, 0: there are too few."""
    before = np.flatnonzero(correlation[:-1] * correlation[1:] < 0)[:_CROSSINGS]
    if len(before) < _MIN_CROSSINGS:
        return 0.0, 0.0
    crossings = before + correlation[before] / (correlation[before] - correlation[before + 1])
    distances = np.diff(crossings)
    mean = float(distances.mean())
    return mean, mean / (_REGULARITY * max(float(distances.std(ddof=1)), mean / 100))


def _demodulated(values: Float64s, period: float) -> Any:
    """Complex amplitude of a sine in windows of some periods, (buckets - window + 1,)."""
    window = min(round(_WINDOW * period), len(values) // 2)
    turned = values * np.exp(-2j * np.pi * np.arange(len(values)) / period)
    sums = np.append(0, np.cumsum(turned))
    inner = np.arange(len(values) - window + 1)
    middle = inner + (window - 1) / 2
    return 2 * (sums[inner + window] - sums[inner]) / window * np.exp(2j * np.pi * np.floor(middle) / period)


def _first_swing(size: Float64s, first: int, window: int) -> int:
    """Window in which what swings half as far as it does most from ``first`` on begins to swing, also if it grows.

    There it passes half of what it reaches at once. ``size``: amplitudes of windows of so many buckets.
    """
    largest = float(size.max())
    least = min(max(_GROWN * largest, _NOISE * float(np.quantile(size[: first + 1], 1 / 4))), largest / 2)
    begin = int(np.flatnonzero(np.append(True, size[:first] <= least))[-1])
    reached = float(size[begin : begin + window].max())
    return begin + int(np.argmax(size[begin : first + 1] > min(reached, largest) / 2))


def _stiction(values: Float64s, half: float) -> float:
    """Index of He and others: how much worse sines fit than triangles; 1/2: alike. NaN: half periods are too short."""
    edges = np.flatnonzero(values[:-1] * values[1:] < 0) + 1
    of_sine = of_triangle = 0.0
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if not 0.6 * half < end - begin < 1.4 * half or end - begin < _SHORTEST:
            continue
        u = (np.arange(end - begin) + 0.5) / (end - begin)
        part = values[begin:end]
        triangles = np.minimum(u / _PEAKS[:, None], (1 - u) / (1 - _PEAKS[:, None]))
        of_sine += float(_misfit(np.sin(np.pi * u)[None, :], part).min())
        of_triangle += float(_misfit(triangles, part).min())
    return of_sine / (of_sine + of_triangle) if of_sine + of_triangle > 0 else float("nan")


def _misfit(shapes: Float64s, values: Float64s) -> Float64s:
    """Sum of squares that remains of values when each shape is fitted, (shapes,)."""
    fitted = shapes @ values / np.square(shapes).sum(axis=1)
    misfit: Float64s = np.square(values - fitted[:, None] * shapes).sum(axis=1)
    return misfit
