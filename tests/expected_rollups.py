"""Rollups as schema/tables/rollups.sql describes them, made in plain Python from all samples and gaps at once.

Every sum is made in the same order, so that results are equal to the bit.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from core.batch import Gap

Sample = tuple[int, float, int]  # time in µs, value, StatusCode
Row = tuple[object, ...]  # n, min, max, sum, area, first, last, known, first_time, last_time, n_good, holds
States = tuple[int, int]  # entered, known µs

_MINUTE = 60_000_000
_HOUR = 60 * _MINUTE
_HOLD = 24 * _HOUR


@dataclass(slots=True)
class Rollups:
    """By (channel, bucket's begin in µs), states by (channel, bucket, state)."""

    minutes: dict[tuple[int, int], Row] = field(default_factory=dict)
    hours: dict[tuple[int, int], Row] = field(default_factory=dict)
    state_minutes: dict[tuple[int, int, float], States] = field(default_factory=dict)
    state_hours: dict[tuple[int, int, float], States] = field(default_factory=dict)
    held: dict[tuple[int, int, int], tuple[float, int, bool]] = field(default_factory=dict)
    """By (width in µs, channel, begin) of a bucket without samples: value, µs that it holds, and whether to the end."""


@dataclass(frozen=True, slots=True)
class _Point:
    """A sample, or the begin of a gap (half a µs behind a sample of that time)."""

    at: float
    good: float | None
    sample: bool

    @property
    def holds(self) -> float | None:
        """The value, unless it is too large to be summed."""
        return None if self.good is None or abs(self.good) > 1e280 else self.good


@dataclass(frozen=True, slots=True)
class _Piece:
    """A minute that has a row, or the begin of a gap where there is none."""

    begins: int
    until: float
    row: Row | None
    carries: float | None
    carried_until: int


def rollups(samples: Mapping[int, Mapping[int, tuple[float, int]]], gaps: Iterable[tuple[int, Gap]]) -> Rollups:
    """All rollups of ``samples`` (channel → time → (value, status)); states as if all channels were discrete."""
    begins = defaultdict(set)
    for channel, gap in gaps:
        if gap.to_time != gap.from_time and not gap.backfilled:
            begins[channel].add(gap.from_time)
    made = Rollups()
    for channel, of_channel in samples.items():
        course = [
            _Point(at, None if status & 1 << 31 or math.isnan(v) else v, True) for at, (v, status) in of_channel.items()
        ]
        course += [_Point(at + 0.5, None, False) for at in begins[channel]]
        course.sort(key=lambda point: point.at)
        _minutes(made, channel, course)
        _hours(made, channel, begins[channel])
        _held(made, channel, course)
    return made


def _held(made: Rollups, channel: int, course: Sequence[_Point]) -> None:
    filled = {width: {int(p.at) // width for p in course if p.sample} for width in (_MINUTE, _HOUR)}
    for point, later in zip(course, [*course[1:], None], strict=True):
        if point.holds is None:
            continue
        ends = int(point.at) + _HOLD if later is None else min(math.floor(later.at), int(point.at) + _HOLD)
        for width in (_MINUTE, _HOUR):
            for begin in range(int(point.at) // width * width, ends, width):
                if begin // width not in filled[width]:
                    known = min(ends, begin + width) - begin
                    made.held[width, channel, begin] = (point.holds, known, begin + width <= ends)


def _weight(value: float) -> float:
    return value if 1e-280 <= abs(value) <= 1e280 else 0.0


def _round(total: float, terms: float, most: float) -> float:
    near = float(round(total * 1e6)) / 1e6 if abs(total) < 9e9 else math.inf
    return near + 0 if abs(near - total) <= 2.3e-16 * terms * abs(total) + 2.3e-16 * terms * most else total


def _sum(terms: Iterable[float]) -> float:
    total: float | None = None
    for term in terms:
        total = term if total is None else total + term
    return 0.0 if total is None else total


def _most(goods: Sequence[float]) -> float:
    return _weight(min(max(-min(goods), *goods), 1e280)) if goods else 0.0


def _minutes(made: Rollups, channel: int, course: list[_Point]) -> None:
    minute_batch = defaultdict(list)
    for before, point in zip([None, *course], course, strict=False):
        minute_batch[math.floor(point.at) // _MINUTE].append((before, point))
    for minute, pairs in minute_batch.items():
        if not any(point.sample for _, point in pairs):
            continue
        begin, end = minute * _MINUTE, (minute + 1) * _MINUTE
        parts: list[tuple[float, int]] = []  # value, µs
        entered: dict[float, int] = defaultdict(int)
        for before, point in pairs:
            if before is not None and before.holds is not None:
                held = min(math.floor(point.at), int(before.at) + _HOLD) - max(int(before.at), begin)
                parts.append((before.holds, max(0, held)))
            if point.holds is not None:
                known = before is not None and before.holds == point.holds and before.at + _HOLD >= point.at
                entered[point.holds + 0] += not known
        last = pairs[-1][1]
        goods = [point for _, point in pairs if point.good is not None]
        values = [point.good for point in goods if point.good is not None]
        behind = (last.holds, end - int(last.at)) if last.holds is not None else (0.0, 0)
        area = _sum(_weight(value) * (held / 1e6) for value, held in parts)
        n = sum(point.sample for _, point in pairs)
        most = _most(values)
        made.minutes[channel, begin] = (
            n,
            min(values, default=None),
            max(values, default=None),
            _round(_sum(_weight(value) for value in values), n, most),
            _round(area + _weight(behind[0]) * (behind[1] / 1e6), n + 1, most * 60),
            values[0] if values else None,
            values[-1] if values else None,
            sum(held for _, held in parts) + behind[1],
            int(goods[0].at) if goods else None,
            int(goods[-1].at) if goods else None,
            len(goods),
            last.holds is not None,
        )
        _put_states(made.state_minutes, channel, begin, [*parts, behind] if last.holds is not None else parts, entered)


def _put_states(
    states: dict[tuple[int, int, float], States],
    channel: int,
    begin: int,
    parts: Iterable[tuple[float, int]],
    entered: Mapping[float, int],
) -> None:
    known: dict[float, int] = defaultdict(int)
    for value, held in parts:
        known[value + 0] += held
    for state in {*known, *entered}:
        if known[state] > 0 or entered.get(state, 0) > 0:
            states[channel, begin, state] = (entered.get(state, 0), known[state])


def _hours(made: Rollups, channel: int, gaps: Iterable[int]) -> None:
    rows = {begin: row for (of, begin), row in made.minutes.items() if of == channel}
    pieces = [
        _Piece(begin, begin + _MINUTE, row, row[6] if row[11] else None, (row[9] or 0) + _HOLD)  # type: ignore[arg-type,operator]
        for begin, row in rows.items()
    ]
    pieces += [_Piece(at, at + 0.5, None, None, 0) for at in gaps if at - at % _MINUTE not in rows]
    pieces.sort(key=lambda piece: piece.until)
    for hour in sorted({begin - begin % _HOUR for begin in rows}):
        end = hour + _HOUR
        inside = [i for i, piece in enumerate(pieces) if hour + 0.5 < piece.until <= end]
        areas, parts = [], []
        for i in inside:
            piece, before = pieces[i], pieces[i - 1] if i > 0 else None
            held = 0
            if before is not None and before.carries is not None:
                held = int(max(0, min(piece.begins, before.carried_until) - max(hour, before.until)))
                parts.append((before.carries, held))
                areas.append(_weight(before.carries) * (held / 1e6) + (piece.row[4] if piece.row else 0))  # type: ignore[operator]
            else:
                areas.append(0.0 + (piece.row[4] if piece.row else 0))  # type: ignore[operator]
        last = pieces[inside[-1]]
        behind = 0
        if last.carries is not None:
            behind = int(max(0, min(end, last.carried_until) - last.until))
            parts.append((last.carries, behind))
        made.hours[channel, hour] = _hour([pieces[i].row for i in inside], areas, parts, last, behind, end)
        minutes = {
            key: value for key, value in made.state_minutes.items() if key[0] == channel and hour <= key[1] < end
        }
        entered: dict[float, int] = defaultdict(int)
        for (_, _, state), (n, known) in minutes.items():
            entered[state] += n
            parts.append((state, known))
        _put_states(made.state_hours, channel, hour, parts, entered)


def _hour(
    rows: list[Row | None], areas: list[float], parts: list[tuple[float, int]], last: _Piece, behind: int, end: int
) -> Row:
    of: list[tuple[object, ...]] = list(zip(*(row for row in rows if row is not None), strict=True))
    n, low, high, total, _, first, final, known, first_time, last_time, n_good, _ = (
        [value for value in column if value is not None] for column in of
    )
    most = _most([*low, *high])  # type: ignore[list-item]
    area = _sum(areas) + (_weight(last.carries) * (behind / 1e6) if last.carries is not None else 0)
    return (
        sum(n),  # type: ignore[arg-type]
        min(low, default=None),  # type: ignore[type-var]
        max(high, default=None),  # type: ignore[type-var]
        _round(_sum(total), sum(n), most),  # type: ignore[arg-type]
        _round(area, len(rows) + 1, most * 3600),
        first[0] if first else None,
        final[-1] if final else None,
        sum(known) + sum(held for _, held in parts),  # type: ignore[arg-type]
        min(first_time, default=None),  # type: ignore[type-var]
        max(last_time, default=None),  # type: ignore[type-var]
        sum(n_good),  # type: ignore[arg-type]
        last.carries is not None and last.carried_until >= end,
    )
