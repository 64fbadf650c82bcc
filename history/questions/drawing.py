"""Drawing of an answer: the curves of the channels that its rows name, with gaps, and where the rows say something.

What a row says is known by the kinds of its columns: ``channel``, ``channels`` and ``partners`` are names (else it is
about all of them); two times behind each other, of which the second one is an end, are an interval; other times are
moments; ``value`` at ``time`` is a point, where it is one of the channel's, and no sum or count; where there is
``other_at``, both runs are laid over each other, from their starts on.

What is drawn of each channel is a :class:`Chart`; here matplotlib draws it, in the viewer the browser does.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from core.errors import OperationError
from core.files import write_atomically
from core.formatting import names_text
from core.imports import require_analysis
from core.timestamps import microseconds

FORMATS = (".png", ".svg")
MAX_CHANNELS = 8  # a panel each
POINTS = 800  # buckets of a curve in an interval
_LOOKBACK = timedelta(days=1)  # before a drawing, in which the value that holds at its start is looked for
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_WIDTH = 150  # letters of a line
_NAMES = ("channel", "channels", "partners")
_SCORES = ("score", "times_limit", "regularity", "correlation", "covered_percent")
_POINTS = (None, "time_average", "percentile", "minimum", "maximum")  # aggregates that are values of the channel
_OWN_ENDS = ("ends", "until_when", "returned_at")
_FEW = 60  # buckets of a curve, each of which is seen; and moments of a channel, whose lines are not faint
_LONG = 5  # times an interval: a longer reference has an axis of its own: beside it little of the interval is seen
_OTHER_RUN = "other_at"  # column: of an earlier run that is compared with the interval
_CURVE, _MARK, _GAP, _EARLIER = "#1f77b4", "#d62728", "#9aa0a6", "#6a3d9a"


# Times with minimum, mean and maximum, which are NaN from where on no value holds.
Curve: TypeAlias = tuple[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Mark:
    """The place of a row on a channel's curve: an interval, a moment (end: None), or a point (with a value)."""

    channel: str | None  # None: all
    begin: datetime
    end: datetime | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Chart:
    """Chart of a channel.

    ``units``: the unit of measurement, each further one with the time from which it holds; ``gaps``: begin, end,
    reason; ``scores``: text, of the first row of the channel; ``other``: curve of an earlier run, as if it began with
    the interval.
    """

    channel: str
    units: Sequence[str]
    scores: str
    curve: Curve
    gaps: Sequence[tuple[datetime, datetime, str]]
    marks: Sequence[Mark]
    other: Curve | None = None


class CurveSource(Protocol):
    """Curves of channels, and what explains them, as tables of Arrow with the columns of :class:`Drawing`."""

    def curves(self, names: Sequence[str], since: datetime, until: datetime, step: timedelta) -> Any:
        """Good samples in buckets, each at the time of its first one; behind a bucket whose last sample is not good,
        a row without values."""

    def held(self, names: Sequence[str], since: datetime, at: datetime) -> Any:
        """Values that channels hold at a time, of the last samples before it, from ``since`` on, as rows of curves."""

    def gaps(self, names: Sequence[str], since: datetime, until: datetime) -> Any:
        """Gaps."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """An answer with what is drawn of it.

    ``curves``: rows by name and time with ``name``, ``unit``, ``time``, ``min``, ``avg``, ``max``; ``gaps``: rows with
    ``name``, ``from_time``, ``to_time`` (null: open), ``reason``, ``backfilled``; ``windows``: the reference, if there
    is one, and the interval; ``without_curve``: names without a curve, and what they are, such as ``text``; ``first``:
    channels that are drawn first, before those that rows name.
    """

    title: str
    rows: Any
    curves: Any
    gaps: Any
    windows: Sequence[tuple[datetime, datetime]]
    without_curve: Mapping[str, str] = field(default_factory=dict)
    first: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        source: CurveSource,
        title: str,
        rows: Any,
        windows: Sequence[tuple[datetime, datetime]],
        without_curve: Mapping[str, str] = _NO_NAMES,
        points: int = POINTS,
        first: Sequence[str] = (),
    ) -> Drawing:
        """Drawing with curves of so many buckets in a window. Values that hold at its edges are drawn from and to
        these."""
        names, _ = named_channels(rows, without_curve, first)
        curves, gaps = list[Any](), list[Any]()
        for since, until in windows:
            step = max(timedelta(microseconds=1), (until - since) // points)
            curve = source.curves(names, since, until, step)
            times = dict[str, list[datetime]]()
            for name, moment in zip(curve["name"].to_pylist(), curve["time"].to_pylist(), strict=True):
                times.setdefault(name, []).append(moment)
            late = [name for name in names if name not in times or times[name][0] >= since + step]
            curves += [*_held(source, late, since, until - since), curve]
            ended = [name for name in names if name not in times or times[name][-1] + 2 * step < until]
            curves += _held(source, ended, until, until - since)
            gaps.append(source.gaps(names, since, until))
        ordered = pa.concat_tables(curves).sort_by("time")
        return cls(title, rows, ordered, pa.concat_tables(gaps), windows, without_curve, first)

    @property
    def axes(self) -> list[tuple[datetime, datetime]]:
        """Intervals that have an axis each: a reference that ends where the interval begins shares its axis, and an
        earlier run is laid over it. A reference begins where there is something to be seen."""
        *reference, (since, until) = self.windows
        if not reference or self.is_of_runs:
            return [(since, until)]
        seen = self.curves["time"].filter(self.curves["avg"].is_valid())
        begins = [*seen.to_pylist(), *self.gaps["from_time"].to_pylist()]
        [(begin, end)] = reference
        begin = max(begin, min([*begins, *(mark.begin for mark in self._marks())], default=since))
        if begin >= end:
            return [(since, until)]
        is_near = end == since and end - begin <= _LONG * (until - since)
        return [(begin, until)] if is_near else [(begin, end), (since, until)]

    @property
    def is_of_runs(self) -> bool:
        """Return whether the reference is an earlier run, which is laid over the interval."""
        return len(self.windows) > 1 and _OTHER_RUN in self.rows.column_names

    @property
    def left_out(self) -> str:
        """Line about the channels that the answer names and that are not drawn; empty: all are."""
        _, names = named_channels(self.rows, self.without_curve, self.first)
        texts = [f"{name} ({self.without_curve[name]})" if name in self.without_curve else name for name in names]
        return f"not drawn: {names_text(texts, MAX_CHANNELS)}" if texts else ""

    @property
    def channels(self) -> list[str]:
        """Channels that are drawn: only those that rows name, even if other rows are about all of them."""
        return named_channels(self.rows, self.without_curve, self.first)[0]

    def charts(self) -> list[Chart]:
        """Charts of the channels that are drawn."""
        marks = list(self._marks())
        # No value is held over their start.
        edges = self.windows if self.is_of_runs else self.axes
        further = [begin - timedelta(microseconds=1) for begin, _ in edges[1:]]
        charts = []
        for channel in self.channels:
            curve = _of_channel(self.curves, channel)
            gaps = [
                (gap["from_time"], gap["to_time"] or self.windows[-1][1], gap["reason"] or "")
                for gap in _of_channel(self.gaps, channel).to_pylist()
                if not gap["backfilled"]
            ]
            broken = _broken(curve, sorted([*(begin for begin, _, _ in gaps), *further]))
            of_channel = [mark for mark in marks if mark.channel in (channel, None)]
            other = None
            if self.is_of_runs:
                earlier, (since, until) = self.windows
                other = _moved(_between(broken, *earlier), since - earlier[0])
                broken = _between(broken, since, until)
            charts.append(Chart(channel, _units(curve), _scores(self.rows, channel), broken, gaps, of_channel, other))
        return charts

    def figure(self) -> Any:
        """A figure of matplotlib."""
        from matplotlib.figure import Figure  # noqa: PLC0415 (only who draws has it)

        charts, windows = self.charts(), self.axes
        widths = [max(0.2, min(1.0, (e - b) / (windows[-1][1] - windows[-1][0]))) for b, e in windows]
        figure = Figure(figsize=(12, 1.2 + 1.7 * max(1, len(charts))), layout="constrained")
        figure.suptitle(textwrap.shorten(self.title, 140), fontsize=10, x=0.01, ha="left")
        grid = figure.subplots(
            len(charts) or 1, len(windows), sharex="col", sharey="row", squeeze=False, width_ratios=widths
        )
        for row, chart in zip(grid, charts, strict=False):
            self._draw_chart(row, chart)
        for axes, window in zip(grid.T, windows, strict=True):
            self._finish(axes, window)
        figure.legend(handles=self._legend(charts), loc="outside upper right", ncols=6, fontsize=8, frameon=False)
        if self.left_out:
            figure.supxlabel(textwrap.fill(self.left_out, _WIDTH), fontsize=8)
        return figure

    def write(self, path: Path) -> None:
        """Write it to a file, whole or not at all. Raises OSError."""
        content = BytesIO()
        self.figure().savefig(content, format=path.suffix[1:], dpi=110)
        write_atomically(path, content.getvalue())

    def _marks(self) -> Iterator[Mark]:
        return marks_of(self.rows, self.windows[-1][1])

    def _draw_chart(self, row: Sequence[Any], chart: Chart) -> None:
        for axes in row:
            for curve, color in ((chart.other, _EARLIER), (chart.curve, _CURVE)):
                if curve is None:
                    continue
                time, low, middle, high = curve
                axes.fill_between(time, low, high, step="post", color=color, alpha=0.25, linewidth=0)
                marker = "." if len(time) <= _FEW else None
                # A value holds until the next one: a set point that is changed once a day was no ramp.
                axes.plot(time, middle, marker=marker, drawstyle="steps-post", color=color, linewidth=1)
            for begin, end, _ in chart.gaps:
                axes.axvspan(begin, end, facecolor=_GAP, alpha=0.35, hatch="//", edgecolor="white", linewidth=0)
            moments = [mark.begin for mark in chart.marks if mark.end is None and mark.value is None]
            for moment in moments:
                axes.axvline(moment, color=self._color(moment), linewidth=1, alpha=1 if len(moments) <= _FEW else 0.3)
            for mark in chart.marks:
                if mark.end is not None:
                    color = self._color(mark.begin)  # with an edge: one at the end of the axis is narrow
                    axes.axvspan(mark.begin, mark.end, facecolor=(color, 0.2), edgecolor=(color, 0.6), linewidth=0.8)
            points = [(mark.begin, mark.value) for mark in chart.marks if mark.value is not None]
            axes.plot(*zip(*points, strict=True) if points else ([], []), "o", color=_MARK, markersize=3)
        unit = f" [{', '.join(chart.units)}]" if chart.units else ""
        scores = f"   {chart.scores}" if chart.scores else ""
        row[0].set_title(f"{chart.channel}{unit}{scores}", fontsize=9, loc="left")

    def _legend(self, charts: Sequence[Chart]) -> list[Any]:
        """Handles of what is drawn."""
        from matplotlib.lines import Line2D  # noqa: PLC0415
        from matplotlib.patches import Patch  # noqa: PLC0415

        marks = [mark for chart in charts for mark in chart.marks]
        since = self.windows[-1][0]
        handles: list[Any] = [Line2D([], [], color=_CURVE, label="means, between lowest and highest")]
        if self.is_of_runs:
            earlier = f"the run from {self.windows[0][0]:%Y-%m-%d %H:%M:%S} on"
            handles.append(Line2D([], [], color=_EARLIER, label=earlier))
        if any(mark.begin >= since for mark in marks):
            handles.append(Line2D([], [], color=_MARK, label="rows of the answer"))
        if any(mark.begin < since for mark in marks):
            handles.append(Line2D([], [], color=_EARLIER, label="rows before the interval"))
        if any(begin < since < end for begin, end in self.axes):
            handles.append(Patch(facecolor=("black", 0.04), edgecolor=_GAP, label="reference"))
        if any(chart.gaps for chart in charts):
            handles.append(Patch(facecolor=(_GAP, 0.35), hatch="//", edgecolor="white", label="gap"))
        return handles

    def _color(self, begin: datetime) -> str:
        return _EARLIER if begin < self.windows[-1][0] else _MARK

    def _finish(self, axes: Sequence[Any], window: tuple[datetime, datetime]) -> None:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter  # noqa: PLC0415

        since = self.windows[-1][0]
        for each in axes:
            each.set_xlim(*window)
            each.tick_params(labelsize=8)
            each.grid(visible=True, alpha=0.3)
            if window[0] < since < window[1]:
                each.axvspan(window[0], since, color="black", alpha=0.04, linewidth=0)
                each.axvline(since, color="black", linewidth=0.8, linestyle=":")
        most = 10 if window[1] > since else 4
        locator = AutoDateLocator(tz=UTC, minticks=1, maxticks=most)  # type: ignore[no-untyped-call]
        axes[-1].xaxis.set_major_locator(locator)
        axes[-1].xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
        axes[-1].set_xlabel("reference" if window[1] <= since else "UTC", fontsize=8)


def require_format(path: Path) -> None:
    """Raise OperationError if a drawing can't be written to such a file, or matplotlib is not installed."""
    if path.suffix not in FORMATS:
        raise OperationError(f"--plot: found {str(path)!r}; legal: a file that ends with {' or '.join(FORMATS)}")
    if not path.absolute().parent.is_dir():
        raise OperationError(f"--plot: found {str(path)!r}; legal: a file in a folder that exists")
    require_analysis("--plot", "matplotlib")


def named_channels(
    rows: Any, without_curve: Collection[str] = (), first: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """The channels that rows name, those of ``first`` before the others: those that are drawn, and those that have no
    curve or are too many."""
    columns = [rows[name].to_pylist() for name in rows.column_names if name in _NAMES]
    names = [name for values in zip(*columns, strict=True) for value in values for name in _texts(value)]
    channels = list(dict.fromkeys([*first, *names]))
    curves = [name for name in channels if name not in without_curve]
    return curves[:MAX_CHANNELS], [name for name in channels if name in without_curve or name in curves[MAX_CHANNELS:]]


def names_without_curve(names: Iterable[str], kinds: Mapping[str, str]) -> dict[str, str]:
    """Names without a curve, and what they are: texts, or no channels, such as sources. ``kinds``: of channels."""
    return {name: kind for name in names if (kind := kinds.get(name, "no channel")) in ("text", "no channel")}


def marks_of(rows: Any, until: datetime) -> Iterator[Mark]:
    """The marks of rows. ``until``: the end of intervals that are open."""
    fields = list(rows.schema)
    times = [field.name for field in fields if pa.types.is_timestamp(field.type)]
    ends = {
        before.name: field.name
        for before, field in pairwise(fields)
        if before.name in times and field.name in times and _is_end(field.name)
    }
    if {"time", "value"} <= {*rows.column_names}:
        times = ["time"]  # others are of the samples that the value is made of
    times = [name for name in times if name != _OTHER_RUN]
    names = [field.name for field in fields if field.name in _NAMES]
    for row in rows.to_pylist():
        channels: list[str | None] = [name for column in names for name in _texts(row[column])] or [None]
        for column in times:
            if column in ends.values() or row[column] is None:
                continue
            end = (row[ends[column]] or until) if column in ends else None
            value = row["value"] if column == "time" and isinstance(row.get("value"), float) else None
            if value is not None and row.get("aggregate") not in _POINTS:
                continue
            yield from (Mark(channel, row[column], end, value) for channel in channels)


def _is_end(name: str) -> bool:
    return name in _OWN_ENDS or name.endswith(("to_time", "_to"))


def _texts(value: object) -> list[str]:
    return [text for text in ([value] if isinstance(value, str) else value or ()) if text]  # type: ignore[attr-defined]


def _units(curve: Any) -> list[str]:
    """Units of a curve in their order, each further one with its first time; none if it never had one."""
    rows = zip(curve["unit"].to_pylist(), curve["time"].to_pylist(), strict=True)
    units = [(unit or "no unit", next(rows_of_unit)[1]) for unit, rows_of_unit in groupby(rows, itemgetter(0))]
    if {unit for unit, _ in units} <= {"no unit"}:
        return []
    return [units[0][0], *(f"{unit} from {time:%Y-%m-%d %H:%M:%S} on" for unit, time in units[1:])]


def _scores(rows: Any, channel: str) -> str:
    """Scores of the first row of a channel."""
    names = [name for name in rows.column_names if name in _NAMES]
    row: Mapping[str, Any]
    for row in rows.to_pylist():
        if any(channel in _texts(row[name]) for name in names):
            if row.get("shares"):  # the score is of all channels together
                return f"share {dict(zip(row['channels'], row['shares'], strict=True))[channel]:.3g}"
            scores = [(name, row[name]) for name in _SCORES if isinstance(row.get(name), float)]
            return ", ".join(f"{name.replace('_', ' ')} {score:.3g}" for name, score in scores)
    return ""


def _held(source: CurveSource, names: Sequence[str], at: datetime, length: timedelta) -> Iterator[Any]:
    """Rows of a curve: the values that channels hold at a time. Samples are looked for in so much time before it, and
    if there are none, in a day."""
    for lookback in (length, _LOOKBACK):
        if names:
            held = source.held(names, at - lookback, at)
            yield held
            names = sorted({*names} - {*held["name"].to_pylist()})


def _of_channel(table: Any, channel: str) -> Any:
    import pyarrow.compute as pc  # noqa: PLC0415

    return table.filter(pc.equal(table["name"].cast(pa.string()), channel))


def _broken(curve: Any, gaps: Sequence[datetime]) -> Curve:
    """Time, minimum, mean and maximum of a curve, which is interrupted where gaps begin."""
    time = curve["time"].cast(pa.int64()).to_numpy()
    begins = np.array([gap.timestamp() * 1e6 for gap in gaps]).astype(np.int64)
    places = np.searchsorted(time, begins, "right")
    low, middle, high = (
        np.insert(curve[name].to_numpy().astype(float), places, np.nan) for name in ("min", "avg", "max")
    )
    return np.insert(time, places, begins).astype("datetime64[us]"), low, middle, high


def _between(curve: Curve, since: datetime, until: datetime) -> Curve:
    time, *values = curve
    begin, end = (np.datetime64(microseconds(at), "us") for at in (since, until))
    inside = (time >= begin) & (time <= end)
    low, middle, high = (value[inside] for value in values)
    return time[inside], low, middle, high


def _moved(curve: Curve, by: timedelta) -> Curve:
    time, low, middle, high = curve
    return time + np.timedelta64(by), low, middle, high
