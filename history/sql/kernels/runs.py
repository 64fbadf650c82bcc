"""Runs of equal values of a channel, found as samples are read: of a noisy channel, few are long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa

from core.batch import Float64s, Int64s
from core.samples import Samples, changes, segments
from history.codec.row_groups import TIME
from history.sql.kernels.columns import UNKNOWN, Channels, Columns, columns_of, known_values
from history.sql.kernels.intervals import silences
from history.sql.kernels.reference import MIN_POSITIONS, usual

RUNS = pa.struct(
    [
        ("channel_id", pa.int32()),
        ("value", pa.float64()),  # UNKNOWN: the samples are Bad
        ("from_time", TIME),  # of the first sample with the value
        ("next_time", TIME),  # of the first one with the next value, if there is one
        ("number", pa.int64()),  # of the channel's run, from 1
    ]
)
_PARTS = pa.schema(list(RUNS))
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

    def compute_parts(self, portions: Iterable[Samples]) -> list[Any]:
        """Runs of samples that follow each other, by channel and time, as one batch of _PARTS."""
        return [pa.concat_batches(map(_batch, self._joined(map(self._of, portions))))]

    def _of(self, samples: Samples) -> _Rows:
        """Runs of samples by channel and time."""
        channel, time, value = samples.channel, samples.time, known_values(samples)
        new = changes(channel)
        starts = np.flatnonzero(new | changes(value))
        first = np.searchsorted(starts, np.flatnonzero(new))  # run of each channel
        last = np.append(first, len(starts))[1:] - 1
        begin = time[starts]
        end = np.append(begin[1:], 0)[: len(begin)]
        kept = end - begin >= self.least
        kept[first] = kept[np.minimum(first + 1, last)] = kept[last] = True
        run = np.flatnonzero(kept)
        number = run - np.repeat(first, np.diff(np.append(np.searchsorted(run, first), len(run)))) + 1
        rows = starts[kept]
        return _Rows(channel[rows], value[rows], time[rows], end[kept], np.isin(run, last), number)

    def joined(self, parts: Iterable[Any]) -> Iterator[Any]:
        """Batches of the runs. ``parts``: what :meth:`compute_parts` returned of samples that follow each other."""
        for rows in self._joined(map(_Rows.of_batch, parts)):
            yield _batch(rows)

    def _joined(self, parts: Iterable[_Rows]) -> Iterator[_Rows]:
        waiting = _Rows.of_batch(pa.RecordBatch.from_pylist([], _PARTS))  # the run that has not ended
        for rows in parts:
            if not len(rows.channel):
                continue
            if len(waiting.channel) and waiting.channel[0] == rows.channel[0]:
                same = waiting.value[0] == rows.value[0]
                rows.number[rows.channel == rows.channel[0]] += waiting.number[0] - same
                if same:
                    rows.begin[0] = waiting.begin[0]
                    waiting = waiting.part(slice(0, 0))
                else:
                    waiting.end[0], waiting.last[0] = rows.begin[0], False
            both = waiting.behind(rows)
            yield self._kept(both.part(slice(0, -1)))
            waiting = both.part(slice(-1, None))
        yield self._kept(waiting)

    def _kept(self, rows: _Rows) -> _Rows:
        return rows.part(rows.last | (rows.number <= 2) | (rows.end - rows.begin >= self.least))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Runs; (n,) each."""

    channel: Any
    value: Any
    begin: Any
    end: Any
    last: Any  # whether it has no end: then ``end`` is no matter
    number: Any

    @classmethod
    def of_batch(cls, part: Any) -> _Rows:
        """Runs of a batch of _PARTS, to be changed."""
        channel, value, begin, end, number = (part.column(name) for name in _PARTS.names)
        return cls(
            channel.to_numpy(),
            value.to_numpy(),
            begin.view(pa.int64()).to_numpy().copy(),
            end.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).copy(),
            end.is_null().to_numpy(zero_copy_only=False).copy(),
            number.to_numpy().copy(),
        )

    def part(self, chosen: Any) -> _Rows:
        """The runs at indices, or where a mask is true."""
        return _Rows(*(getattr(self, column.name)[chosen] for column in fields(self)))

    def behind(self, others: _Rows) -> _Rows:
        """These runs, and behind them others."""
        return _Rows(*(np.append(getattr(self, column.name), getattr(others, column.name)) for column in fields(self)))


def _batch(rows: _Rows) -> Any:
    columns = [
        pa.array(rows.channel),
        pa.array(rows.value),
        pa.array(rows.begin).view(TIME),
        pa.array(rows.end, mask=rows.last).view(TIME),
        pa.array(rows.number),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_PARTS)


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
