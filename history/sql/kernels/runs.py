"""Runs of equal values of a channel, found as samples are read: of a noisy channel, few are long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from core.batch import Float64s, Int64s
from core.samples import Samples, Selection, changes, segments
from history.codec.row_groups import TIME
from history.sql.kernels.columns import (
    NEVER,
    UNKNOWN,
    Channels,
    Columns,
    columns_of,
    following,
    joined,
    known_values,
)
from history.sql.kernels.intervals import silences
from history.sql.kernels.reference import MIN_POSITIONS, usual

RUNS = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("value", pa.float64()),  # UNKNOWN: the samples are Bad
        ("from_time", TIME),  # of the first sample with the value
        ("next_time", TIME),  # of the first one with the next value; NEVER: there is none
        ("number", pa.int64()),  # of the channel's run, from 1
    ]
)
_FEW_TURNS = 16  # of ramps in a reference, from up to down or back: a sensor has more
USUAL_LENGTHS = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("seconds", pa.float64()),  # that a value is rarely kept for longer
        ("lowest", pa.float64()),
        ("highest", pa.float64()),
        ("rests_low", pa.bool_()),  # whether it kept its lowest value for longer than that
        ("rests_high", pa.bool_()),
    ]
)


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of values as good_samples() (schema/queries/duckdb.sql) has them, and of others, which are UNKNOWN.

    The first two and the last one of each channel, and those of ``least`` (µs) or longer: one of the first two is good.
    """

    least: int

    def compute_parts(self, portions: Iterable[Samples]) -> list[Columns]:
        """The columns of RUNS, of samples that follow each other, by channel and time."""
        return [joined(list(self.joined(map(self._of, portions))))]

    def _of(self, samples: Samples) -> Columns:
        """The columns of RUNS, of samples by channel and time."""
        channel, time, value = samples.channel, samples.time, known_values(samples)
        new = changes(channel)
        starts = np.flatnonzero(new | changes(value))
        first = np.searchsorted(starts, np.flatnonzero(new))  # run of each channel
        last = np.append(first, len(starts))[1:] - 1
        begin = time[starts]
        end = following(channel[starts], begin)
        kept = end - begin >= self.least
        kept[first] = kept[np.minimum(first + 1, last)] = kept[last] = True  # what NEVER is less a time may overflow
        run = np.flatnonzero(kept)
        number = run - np.repeat(first, np.diff(np.append(np.searchsorted(run, first), len(run)))) + 1
        rows = starts[kept]
        return {
            "channel_id": channel[rows],
            "value": value[rows],
            "from_time": begin[kept],
            "next_time": end[kept],
            "number": number,
        }

    def joined(self, parts: Iterable[Columns]) -> Iterator[Columns]:
        """Runs of all samples. ``parts``: those of samples that follow each other."""
        waiting = columns_of(RUNS)  # the run that has not ended
        for runs in parts:
            both = joined([waiting, runs])
            if (waiting["channel_id"] == runs["channel_id"][:1]).any():  # each may be empty
                channel, value, begin, end, number = (both[field.name] for field in RUNS)
                same = value[0] == value[1]
                number[1:][channel[1:] == channel[0]] += number[0] - same
                if same:
                    begin[1] = begin[0]
                    both = _part(both, slice(1, None))
                else:
                    end[0] = begin[1]
            yield self._kept(_part(both, slice(-1)))
            waiting = _part(both, slice(-1, None))
        yield self._kept(waiting)

    def _kept(self, runs: Columns) -> Columns:
        is_long = runs["next_time"] - runs["from_time"] >= self.least
        return _part(runs, is_long | (runs["next_time"] == NEVER) | (runs["number"] <= 2))


def _part(runs: Columns, rows: Selection) -> Columns:
    return {name: column[rows] for name, column in runs.items()}


def longest(samples: Samples, channels: Channels, false_alarms: float, hold: int) -> Columns:
    """Time that a value of a channel is kept for longer than once in ``false_alarms`` (µs), and where it rests.

    Those count that are kept from the one before to the next one: not beside Bad samples, gaps, or silences of pushed
    channels. Nor do the lowest and the highest value, where others suffice. Channels that change too rarely to know it
    are left out (kernels/reference.py), and those that hold their values but for ramps: most of the time, each for
    ``hold`` (µs) and longer.

    The columns of USUAL_LENGTHS, of samples by channel and time.
    """
    value = known_values(samples)
    rows = list[tuple[int, float, float, float, bool, bool]]()
    for of_channel in segments(samples.channel):
        channel, time = int(samples.channel[of_channel.start]), samples.time[of_channel]
        cuts = _cuts(channels, channel, time)
        known = _usual_lengths(time, value[of_channel], cuts, false_alarms, hold)
        if known is not None:
            rows.append((channel, *known))
    return columns_of(USUAL_LENGTHS, rows)


def _cuts(channels: Channels, channel: int, time: Int64s) -> Int64s:
    """When values end, as a gap or a silence begins (µs). ``time``: of the samples of a channel."""
    gaps = channels.gaps_of(channel)
    begins: Int64s = gaps[gaps[:, 1] > gaps[:, 0], 0]
    if not channels.pushed[np.searchsorted(channels.channels, channel)]:
        return begins
    return np.union1d(begins, time[silences(time, int(time[-1]))])


def _usual_lengths(
    time: Int64s, value: Float64s, cuts: Int64s, false_alarms: float, hold: int
) -> tuple[float, float, float, bool, bool] | None:
    """The fields of USUAL_LENGTHS behind the channel; None: they are not known."""
    behind = np.searchsorted(time, cuts, "right")
    cuts, behind = (of[(behind > 0) & (behind < len(time))] for of in (cuts, behind))
    changed = changes(value)
    changed[behind] = True
    starts = np.flatnonzero(changed)
    lengths, value = np.diff(time[starts], append=time[-1]).astype(np.float64), value[starts]
    cut = np.searchsorted(starts, behind) - 1
    np.minimum.at(lengths, cut, cuts - time[starts[cut]])  # of several cuts the first one
    known = value < UNKNOWN
    whole = np.append(known[1:], False)
    whole[1:] &= known[:-1]
    whole[cut] = whole[cut + 1] = False
    lengths, value, whole = lengths[known], value[known], whole[known]
    if not len(value):
        return None
    sign = np.sign(np.diff(value))
    turns = np.count_nonzero(sign[1:] * sign[:-1] < 0)
    if turns <= _FEW_TURNS and 2 * lengths[lengths >= hold].sum() > lengths.sum():
        return None
    lowest, highest = float(value.min()), float(value.max())
    inner = lengths[whole & (value > lowest) & (value < highest)]
    if len(inner) < MIN_POSITIONS:
        inner = lengths[whole]
    limit = usual(inner, false_alarms / max(float(inner.mean()), 1.0)).limit if len(inner) else np.inf
    if not np.isfinite(limit):
        return None
    low, high = (bool(lengths[value == end].max() > max(limit, hold)) for end in (lowest, highest))
    return limit / 1e6, lowest, highest, low, high
