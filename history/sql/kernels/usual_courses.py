"""Usual course of the channels of a unit: within its cycles, such as those of a machine, or the days of a plant, or as
they drift.

What a unit does in each of its cycles is usual at that place: Nomikos and MacGregor, Monitoring batch processes using
multiway principal component analysis, AIChE Journal 40 (1994), take the mean trajectory away. Cycles are not of one
length: each begins where the channels together are most like the usual cycle, which is stretched to its length. What
drifts all through the reference may go on as far, or back.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.batch import Float64s
from history.sql.kernels.dynamics import ALIKE, CYCLES, drifts, levels
from history.sql.kernels.oscillations import autocorrelation, without_slow
from history.sql.kernels.reference import CYCLIC, DRIFTING, FEW_CYCLES, JUDGED, MIN_POSITIONS, NO_SPREAD, PARTS

_SHORTEST = 5  # buckets of a cycle, at least
_SHORTER = 0.9  # of the highest autocorrelation: a shorter period that has as much is the cycle
_OTHER_LENGTH = 4  # part of a cycle by which one is longer or shorter than usual, at most
_RUNS = 1, 2, 4  # parts of a reference, one of which has no pause
_HIDDEN = 0.5  # of the variance of a channel, at most, is there where it runs
_ROUNDS = 3  # in which the usual cycle is found
_FARTHEST = 4.0  # spreads: what is farther counts as so far where cycles are looked for
_EDGE = 6.0  # median deviations: where the usual cycle goes so far at once, it does so a little earlier or later
_EXPLAINED = 0.5  # of the variance of a channel, at least


class UsualCourses(NamedTuple):
    """Usual values of all buckets: the median of the reference, where a channel neither drifts nor has cycles."""

    before: Float64s  # (buckets, channels)
    now: Float64s  # (buckets, channels)
    verdicts: NDArray[np.intp]  # (channels,) CYCLIC, DRIFTING or JUDGED
    left_out: NDArray[np.bool_]  # (buckets,) of the reference: pauses between cycles


class _Cycles(NamedTuple):
    """Cycles, n of them, of which some are like the usual one, and pauses."""

    edges: NDArray[np.intp]  # (n + 1,) where they begin, and where the last one ends
    lengths: NDArray[np.intp]  # (n,)
    alike: NDArray[np.bool_]  # (n,)
    pauses: NDArray[np.bool_]  # (buckets,)
    around: NDArray[np.bool_]  # (buckets,) pauses, the cycles beside them, and the parts of cycles at both ends

    def stretched(self, values: Float64s, period: int) -> Float64s:
        """Cycles that are like the usual one, each of its length: (cycles, period, channels)."""
        return _stretched(values, self.edges[:-1][self.alike], self.lengths[self.alike], period)


def usual_courses(before: Float64s, now: Float64s) -> UsualCourses:
    """Usual values of a reference, and of an interval: (buckets, channels); NaN: there is no value."""
    filled = np.where(np.isnan(before).all(axis=0), 0.0, before)
    middle = np.nanmedian(filled, axis=0)
    filled = np.where(np.isnan(filled), middle, filled)
    usual, usual_now = np.broadcast_to(middle, before.shape), np.broadcast_to(middle, now.shape)
    verdicts, left_out = np.full(len(middle), JUDGED, np.intp), np.zeros(len(before), np.bool_)
    least = NO_SPREAD * np.abs(filled).max(axis=0)  # else nothing says what is far
    if (cyclic := _cyclic(filled, now)) is not None:
        runs = ~cyclic.left_out  # what a pause does is known by itself
        off = (filled - cyclic.before)[runs]
        explained = np.square(off).mean(axis=0) < (1 - _EXPLAINED) * filled[runs].var(axis=0)
        verdicts[explained & (np.ptp(off, axis=0) > least)] = CYCLIC
        if (verdicts == CYCLIC).any():
            usual = np.where(verdicts == CYCLIC, cyclic.before, usual)
            usual_now = np.where(verdicts == CYCLIC, cyclic.now, _paused(now, usual_now, cyclic))
            left_out = cyclic.left_out
    for column in np.flatnonzero(verdicts == JUDGED):
        known = before[~np.isnan(before[:, column]), column]
        if len(known) < MIN_POSITIONS or not drifts(known):
            continue
        slope, at_middle = np.polyfit(_places(PARTS), levels(known), 1).tolist()
        line = at_middle + slope * _places(len(before))
        if np.ptp(filled[:, column] - line) > least[column]:
            usual, usual_now = (part if part.flags.writeable else part.copy() for part in (usual, usual_now))
            verdicts[column], usual[:, column] = DRIFTING, line
            far = abs(slope) * (0.5 + len(now) / len(before))
            usual_now[:, column] = np.fmax(np.fmin(now[:, column], at_middle + far), at_middle - far)
    return UsualCourses(usual, usual_now, verdicts, left_out)


def with_course(verdict: int, of_course: int) -> int:
    """Verdict on a channel by its values and by its course: cycles that are known are not few."""
    return of_course if verdict == JUDGED or (verdict == FEW_CYCLES and of_course == CYCLIC) else verdict


def _places(n: int) -> Float64s:
    """Places of n buckets in a reference, from -1/2 to 1/2."""
    return (np.arange(n) + 0.5) / n - 0.5


class _Cyclic(NamedTuple):
    """Usual values within cycles, of a reference, each learnt from others, and of an interval."""

    before: Float64s  # (buckets, channels); in a pause the median of all pauses
    now: Float64s  # (buckets, channels)
    left_out: NDArray[np.bool_]  # (buckets,) of the reference: pauses, and what they may cut off
    in_pauses: Float64s  # (buckets of pauses, channels)
    around: NDArray[np.bool_]  # (buckets,) of the interval: pauses, and what they may cut off


def _cyclic(before: Float64s, now: Float64s) -> _Cyclic | None:
    """Usual values within cycles; None: the reference has none."""
    return next((cyclic for run in _runs(before) if (cyclic := _within(run, before, now)) is not None), None)


def _within(run: _Run, before: Float64s, now: Float64s) -> _Cyclic | None:
    """Usual values within such cycles as some of the reference seem to be; None: too few are."""
    period = run.period
    if len(now) < 2 * period:
        return None  # no cycle can be found in it
    scaled = run.in_spreads(before)
    repeated, shape = _usual_cycle(scaled, run.swinging, period)
    known = _cycles(scaled[:, repeated], shape)
    follow = known.alike & ~(known.around[known.edges[:-1]] & known.pauses.any())  # one upon the other
    if follow.sum() < max(CYCLES, known.alike.sum() / 2):
        return None  # of batches with a pause after each, nothing says how long they last
    other = np.minimum(np.abs(known.lengths[known.alike] - period), _most(period))
    beside = 1 + round(2 * float(other.mean())), 1 + 2 * int(other.max())
    cycles, usual = known.stretched(before, period), np.empty(before.shape)
    cycle_of = np.searchsorted(known.edges, np.arange(len(before)), side="right") - 1
    part_of = np.flatnonzero(known.alike) % PARTS
    for part in range(PARTS):
        others = _course(before, cycles[part_of != part], known, beside)
        usual[cycle_of % PARTS == part] = others[cycle_of % PARTS == part]
    found = _cycles(run.in_spreads(now)[:, repeated], shape)
    usual_now = _course(now, cycles, found, beside)
    if not known.pauses.any():
        low, high = cycles.min(axis=(0, 1)), cycles.max(axis=(0, 1))
        ends, swing = before[known.around], high - low
        far = ((ends < low - swing) | (ends > high + swing))[:, repeated].any()  # a pause is cut off by an end
        return _Cyclic(usual, usual_now, known.around & far, before[:0], found.around)
    in_pauses = before[known.pauses]
    usual[known.pauses] = np.median(in_pauses, axis=0)
    cyclic = _Cyclic(usual, usual_now, known.around, in_pauses, found.around)
    return cyclic._replace(now=_unless_unknown(now, _paused(now, usual_now, cyclic), found, beside[0]))


def _paused(now: Float64s, usual: Float64s, cyclic: _Cyclic) -> Float64s:
    """Usual values of an interval in whose pauses what was in one of the reference is usual, too, if it is nearer."""
    if not len(cyclic.in_pauses):
        return usual
    paused = np.fmax(np.fmin(now, cyclic.in_pauses.max(axis=0)), cyclic.in_pauses.min(axis=0))
    is_nearer = cyclic.around[:, None] & (np.abs(now - paused) < np.abs(now - usual))
    return np.where(is_nearer, paused, usual)


def _unless_unknown(now: Float64s, usual: Float64s, of: _Cycles, beside: int) -> Float64s:
    """Usual values but where nothing says how far a cycle has gone, or whether there is a pause: all is usual there.

    ``beside``: buckets by which edges of pauses may be off.
    """
    unknown = np.ones(len(now), np.bool_)
    unknown[of.edges[0] + beside : max(of.edges[-1] - beside, 0)] = False
    for edge in (np.flatnonzero(np.diff(of.pauses)) + 1).tolist():
        unknown[max(edge - beside, 0) : edge + beside] = True
    return np.where(unknown[:, None] & ~np.isnan(now), now, usual)


class _Run(NamedTuple):
    """A part of a reference in which channels repeat themselves."""

    middle: Float64s  # (channels,)
    spread: Float64s  # (channels,)
    swinging: NDArray[np.bool_]  # (channels,) those that repeat themselves
    period: int  # buckets after which they do together

    def in_spreads(self, values: Float64s) -> Float64s:
        """Distances from the middle; 0: there is no value."""
        return _clipped(values, self.middle, self.spread)


def _clipped(values: Float64s, middle: Float64s, spread: Float64s) -> Float64s:
    off = np.nan_to_num((values - middle) / np.where(spread > 0, spread, 1.0))
    return np.clip(off, -_FARTHEST, _FARTHEST)


def _runs(values: Float64s) -> Iterator[_Run]:
    """Runs of a reference that repeat themselves: the whole, and the half and the quarter that vary least.

    A rare deep pause hides cycles in what is learnt of the whole: most of the variance is its own.
    """
    moves, whole = np.ptp(values, axis=0) > 0, np.maximum(values.var(axis=0), 1e-300)
    for parts in _RUNS:
        if (size := len(values) // parts) < CYCLES * _SHORTEST:
            return
        begins = np.arange(0, len(values) - size + 1, max(size // 2, 1))
        shares = np.array([values[begin : begin + size].var(axis=0) / whole for begin in begins.tolist()])
        least = int(np.argmin(shares.mean(axis=1)))
        columns = np.flatnonzero(moves & ((parts == 1) | (shares[least] < _HIDDEN)))
        if not len(columns):
            return
        run = values[begins[least] : begins[least] + size]
        middle, spread = np.median(run, axis=0), np.sqrt(shares[least] * whole)
        scaled = _clipped(run, middle, spread)[:, columns].T
        correlations = autocorrelation(without_slow(scaled), size // CYCLES + 1)
        swinging = np.array([_first_peak(correlation) > 0 for correlation in correlations])
        if swinging.any() and (period := _first_peak(correlations[swinging].mean(axis=0))):
            yield _Run(middle, spread, np.isin(np.arange(len(spread)), columns[swinging]), period)


def _first_peak(correlation: Float64s) -> int:
    """The first lag at which an autocorrelation is nearly as high as it ever is again; 0: it is never high again."""
    below = np.flatnonzero(correlation < 0)
    begin = max(int(below[0]), _SHORTEST) if len(below) else len(correlation)
    highest = float(correlation[begin:].max(initial=0.0))
    if highest < ALIKE:
        return 0
    return _peak(correlation, begin + int(np.argmax(correlation[begin:] >= _SHORTER * highest)))


def _peak(values: Float64s, at: int) -> int:
    """Position up to which values rise from one on."""
    while at + 1 < len(values) and values[at + 1] > values[at]:
        at += 1
    return at


def _usual_cycle(scaled: Float64s, swinging: NDArray[np.bool_], period: int) -> tuple[NDArray[np.bool_], Float64s]:
    """Mask of the channels that do the same in each cycle, with those that swing, and what: (period, channels)."""
    best, most = (swinging, scaled[:period]), 0
    for first in np.linspace(0, len(scaled) - period, CYCLES).astype(int).tolist():  # one may be in a pause
        repeated, shape = swinging, scaled[first : first + period]
        for _ in range(_ROUNDS):
            found = _cycles(scaled[:, repeated], shape[:, repeated])
            if not found.alike.any():
                break
            cycles = found.stretched(scaled, period)
            shape = np.median(cycles, axis=0)
            left = np.median(np.abs(cycles - shape), axis=(0, 1))
            whole = np.median(np.abs(cycles - np.median(shape, axis=0)), axis=(0, 1))
            repeated = swinging | (left < (1 - _EXPLAINED) * whole)
        if found.alike.sum() > most:
            best, most = (repeated, shape), int(found.alike.sum())
        if 2 * most * period > len(scaled):
            break
    return best[0], best[1][:, best[0]]


def _cycles(scaled: Float64s, shape: Float64s) -> _Cycles:
    """Cycles in values: what is like the usual one, and what is between."""
    period, likeness = len(shape), _likeness(scaled, shape)
    edges = _begins(likeness, period)
    begins, lengths = edges[:-1], np.diff(edges)
    follows = np.abs(lengths - period) <= _most(period)
    long = np.flatnonzero(follows & (2 * (lengths - period) > _most(period)))  # or the usual one and a short pause
    off, off_as_usual = (
        np.square(_stretched(scaled, begins[long], n, period) - shape).sum(axis=(1, 2))
        for n in (lengths[long], np.full(len(long), period))
    )
    follows[long] = off < off_as_usual
    lengths = np.where(follows, lengths, np.minimum(lengths, period))
    alike = likeness[begins] >= ALIKE
    joined = follows[:-1] & alike[:-1] & alike[1:]  # a cycle and the next one
    beside = ~(np.append(joined, True) & np.insert(joined, 0, True))
    pauses, around = np.zeros(len(scaled), np.bool_), np.ones(len(scaled), np.bool_)
    pauses[edges[0] : edges[-1]] = True
    for begin, length, is_beside in zip(*(of[alike].tolist() for of in (begins, lengths, beside)), strict=True):
        pauses[begin : begin + length], around[begin : begin + length] = False, is_beside
    return _Cycles(edges, lengths, alike, pauses, around)


def _likeness(scaled: Float64s, shape: Float64s) -> Float64s:
    """Correlation of the usual cycle with one that begins in each bucket, (buckets - period + 1,)."""
    n, period = len(scaled), len(shape)
    shape = shape - shape.mean(axis=0)
    spectrum = np.fft.rfft(scaled, n + period, axis=0) * np.conj(np.fft.rfft(shape, n + period, axis=0))
    products = np.fft.irfft(spectrum.sum(axis=1), n + period)[: n - period + 1]
    sums, squares = (
        (total[period:] - total[:-period])
        for total in (np.cumsum(np.pad(part, ((1, 0), (0, 0))), axis=0) for part in (scaled, np.square(scaled)))
    )
    power = (squares - np.square(sums) / period).sum(axis=1) * np.square(shape).sum()
    likeness: Float64s = products / np.sqrt(np.maximum(power, 1e-12))
    return likeness


def _begins(likeness: Float64s, period: int) -> NDArray[np.intp]:
    """Where cycles begin, and where the last whole one ends. Where nothing is like a cycle, they go on as before."""
    begins, most = [int(np.argmax(likeness[:period]))], _most(period)
    while True:
        at = begins[-1] + period
        near = likeness[at - most : at + most + 1]
        if len(near) <= most:
            return np.array(begins, np.intp)  # the values end before the next one does
        if likeness[begins[-1]] >= ALIKE and near.max() >= ALIKE / 2:
            at = _peak(likeness, at - most + int(np.argmax(near)))  # after a short pause, it begins later
        elif len(alike := np.flatnonzero(likeness[at - period // 2 : at + period // 2 + 1] >= ALIKE)):
            first = at - period // 2 + int(alike[0])  # after a pause, it begins anywhere
            at = first + int(np.argmax(likeness[first : first + most + 1]))
        if len(near) <= 2 * most and at == len(likeness) - 1:
            return np.array(begins, np.intp)  # perhaps the next one begins later
        begins.append(at)


def _most(period: int) -> int:
    """Buckets by which a cycle is longer or shorter than usual, at most."""
    return max(period // _OTHER_LENGTH, 1)


def _stretched(values: Float64s, begins: NDArray[np.intp], lengths: NDArray[np.intp], period: int) -> Float64s:
    """Cycles with these begins and lengths, each of the usual length: (cycles, period, channels)."""
    place = (np.arange(period) + 0.5) / period
    return values[(begins[:, None] + lengths[:, None] * place).astype(np.intp)]


def _course(values: Float64s, cycles: Float64s, of: _Cycles, beside: tuple[int, int]) -> Float64s:
    """Usual values at the places in cycles; at edges, which may be early or late, the nearest ones there.

    ``values``: (buckets, channels); ``cycles``: usual ones, stretched; ``of``: those of the values; ``beside``: buckets
    by which edges may be off, in whole cycles, and in parts of one, whose length is not known.
    """
    period, shape = cycles.shape[1], np.median(cycles, axis=0)
    place, is_whole = (np.arange(len(values)) - of.edges[0]) % period, np.zeros(len(values), np.bool_)
    spans = pairwise([*of.edges.tolist(), len(values)])
    for (begin, end), length in zip(spans, [*of.lengths.tolist(), 0], strict=True):
        place[begin:end] = np.arange(end - begin) % period
        if begin + length == end < len(values):
            place[begin:end], is_whole[begin:end] = (np.arange(length) + 0.5) / length * period, True
    usual: Float64s = shape[place]
    steep = _EDGE * np.median(np.abs(cycles - shape), axis=(0, 1))
    for most, rows in zip(beside, (is_whole, ~is_whole), strict=True):
        low, high = shape, shape
        for shift in range(1, most + 1):
            for beside_it in (np.roll(shape, shift, axis=0), np.roll(shape, -shift, axis=0)):
                low, high = np.minimum(low, beside_it), np.maximum(high, beside_it)
        low, high = low[place[rows]], high[place[rows]]
        usual[rows] = np.where(high - low > steep, np.fmax(np.fmin(values[rows], high), low), usual[rows])
    return usual
