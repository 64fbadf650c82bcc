"""Drawing of an answer: the curves of the channels that its rows name, with gaps, and where the rows say something.

What a row says is known by the kinds of its columns: ``channel``, ``channels`` and ``partners`` are names (else it is
about all of them); two times behind each other, of which the second one is an end, are an interval; other times are
moments; ``value`` at ``time`` is a point, where it is one of the channel's, and no sum or count.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from core.errors import OperationError
from core.files import write_atomically
from core.formatting import names_text
from core.imports import require_analysis

FORMATS = (".png", ".svg")
MAX_CHANNELS = 8  # a panel each
POINTS = 800  # buckets of a curve in an interval
_WIDTH = 150  # letters of a line
_NAMES = ("channel", "channels", "partners")
_SCORES = ("score", "times_limit", "regularity", "correlation", "covered_percent")
_POINTS = (None, "time_average", "percentile", "minimum", "maximum")  # aggregates that are values of the channel
_OWN_ENDS = ("ends", "until_when", "returned_at")
_FEW = 60  # buckets of a curve, each of which is seen; and moments of a channel, whose lines are not faint
_APART = 0.25  # share of an interval: a reference that ends this long before it has an axis of its own
_LONG = 5  # times an interval: so has a longer reference, beside which little of the interval would be seen
_CURVE, _MARK, _GAP, _EARLIER = "#1f77b4", "#d62728", "#9aa0a6", "#6a3d9a"


@dataclass(frozen=True, slots=True)
class Mark:
    """The place of a row on a channel's curve: an interval, a moment (end: None), or a point (with a value)."""

    channel: str | None  # None: all
    begin: datetime
    end: datetime | None = None
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    """An answer with what is drawn of it.

    ``curves``: rows by name and time with ``name``, ``unit``, ``time``, ``min``, ``avg``, ``max``; ``gaps``: rows with
    ``name``, ``from_time``, ``to_time`` (null: open), ``backfilled``; ``windows``: the reference, if there is one, and
    the interval; ``texts``: channels that have no curve, as their values are texts.
    """

    title: str
    rows: Any
    curves: Any
    gaps: Any
    windows: Sequence[tuple[datetime, datetime]]
    texts: frozenset[str] = frozenset()

    def figure(self) -> Any:
        """A figure of matplotlib."""
        from matplotlib.figure import Figure  # noqa: PLC0415 (only who draws has it)

        channels, left_out = named_channels(self.rows, self.texts)
        marks = list(marks_of(self.rows, self.windows[-1][1]))
        axes_windows = _axes(self._windows_with_data(marks))
        widths = [max(0.2, min(1.0, (e - b) / (axes_windows[-1][1] - axes_windows[-1][0]))) for b, e in axes_windows]
        figure = Figure(figsize=(12, 1.2 + 1.7 * max(1, len(channels))), layout="constrained")
        figure.suptitle(textwrap.shorten(self.title, 140), fontsize=10, x=0.01, ha="left")
        grid = figure.subplots(
            len(channels) or 1, len(axes_windows), sharex="col", sharey="row", squeeze=False, width_ratios=widths
        )
        breaks = [begin for begin, _ in axes_windows[1:]]
        for row, channel in zip(grid, channels, strict=False):
            self._draw_channel(row, channel, [mark for mark in marks if mark.channel in (channel, None)], breaks)
        for axes, window in zip(grid.T, axes_windows, strict=True):
            self._finish(axes, window)
        if left_out:
            names = [f"{name} (text)" if name in self.texts else name for name in left_out]
            figure.supxlabel(textwrap.fill(f"not drawn: {names_text(names, MAX_CHANNELS)}", _WIDTH), fontsize=8)
        return figure

    def write(self, path: Path) -> None:
        """Write it to a file, whole or not at all. Raises OSError."""
        content = BytesIO()
        self.figure().savefig(content, format=path.suffix[1:], dpi=110)
        write_atomically(path, content.getvalue())

    def _windows_with_data(self, marks: Sequence[Mark]) -> Sequence[tuple[datetime, datetime]]:
        """The windows, without the time of the reference in which there is nothing yet to be seen."""
        *reference, interval = self.windows
        begins = [*self.curves["time"].to_pylist(), *self.gaps["from_time"].to_pylist()]
        first = min([*begins, *(mark.begin for mark in marks)], default=interval[0])
        return [*((max(begin, first), end) for begin, end in reference if first < end), interval]

    def _draw_channel(
        self, row: Sequence[Any], channel: str, marks: Sequence[Mark], begins: Sequence[datetime]
    ) -> None:
        """Draw a channel. ``begins``: of further axes, over whose starts no value is held."""
        curve = _of_channel(self.curves, channel)
        gaps = [
            (gap["from_time"], gap["to_time"] or self.windows[-1][1])
            for gap in _of_channel(self.gaps, channel).to_pylist()
            if not gap["backfilled"]
        ]
        breaks = [*(begin for begin, _ in gaps), *(begin - timedelta(microseconds=1) for begin in begins)]
        time, low, middle, high = _broken(curve, sorted(breaks))
        unit = next((text for text in curve["unit"].to_pylist() if text), "")
        for axes in row:
            axes.fill_between(time, low, high, step="post", color=_CURVE, alpha=0.25, linewidth=0)
            marker = "." if len(time) <= _FEW else None
            # A value holds until the next one: a set point that is changed once a day was no ramp.
            axes.plot(time, middle, marker=marker, drawstyle="steps-post", color=_CURVE, linewidth=1)
            for begin, end in gaps:
                axes.axvspan(begin, end, facecolor=_GAP, alpha=0.35, hatch="//", edgecolor="white", linewidth=0)
            moments = [mark.begin for mark in marks if mark.end is None and mark.value is None]
            for moment in moments:
                axes.axvline(moment, color=self._color(moment), linewidth=1, alpha=1 if len(moments) <= _FEW else 0.3)
            for mark in marks:
                if mark.end is not None:
                    axes.axvspan(mark.begin, mark.end, color=self._color(mark.begin), alpha=0.2)
            points = [(mark.begin, mark.value) for mark in marks if mark.value is not None]
            axes.plot(*zip(*points, strict=True) if points else ([], []), "o", color=_MARK, markersize=3)
        scores = f"   {text}" if (text := _scores(self.rows, channel)) else ""
        row[0].set_title(f"{channel}{f' [{unit}]' if unit else ''}{scores}", fontsize=9, loc="left")

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
        locator = AutoDateLocator(tz=UTC, maxticks=10 if window[1] > since else 4)  # type: ignore[no-untyped-call]
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


def named_channels(rows: Any, texts: frozenset[str] = frozenset()) -> tuple[list[str], list[str]]:
    """The channels that rows name, as they come: those that are drawn, and those that are texts or too many."""
    columns = [rows[name].to_pylist() for name in rows.column_names if name in _NAMES]
    names = [name for values in zip(*columns, strict=True) for value in values for name in _texts(value)]
    channels = list(dict.fromkeys(names))
    curves = [name for name in channels if name not in texts]
    return curves[:MAX_CHANNELS], [name for name in channels if name in texts or name in curves[MAX_CHANNELS:]]


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
    return [value] if isinstance(value, str) else [text for text in value or () if text]  # type: ignore[attr-defined]


def _scores(rows: Any, channel: str) -> str:
    """Scores of the first row of a channel."""
    names = [name for name in rows.column_names if name in _NAMES]
    row: Mapping[str, Any]
    for row in rows.to_pylist():
        if any(channel in _texts(row[name]) for name in names):
            scores = [(name, row[name]) for name in _SCORES if isinstance(row.get(name), float)]
            return ", ".join(f"{name.replace('_', ' ')} {score:.3g}" for name, score in scores)
    return ""


def _axes(windows: Sequence[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Intervals that have an axis each: a reference right before the interval shares its axis."""
    since, until = windows[-1]
    if len(windows) == 1:
        return [(since, until)]
    begin, end = windows[0]
    length = until - since
    is_near = begin < since and since - end <= _APART * length and end - begin <= _LONG * length
    return [(begin, until)] if is_near else [(begin, end), (since, until)]


def _of_channel(table: Any, channel: str) -> Any:
    import pyarrow.compute as pc  # noqa: PLC0415

    return table.filter(pc.equal(table["name"].cast(pa.string()), channel))


def _broken(curve: Any, gaps: Sequence[datetime]) -> tuple[Any, Any, Any, Any]:
    """Time, minimum, mean and maximum of a curve, which is interrupted where gaps begin."""
    time = curve["time"].cast(pa.int64()).to_numpy()
    begins = np.array([gap.timestamp() * 1e6 for gap in gaps]).astype(np.int64)
    places = np.searchsorted(time, begins, "right")
    low, middle, high = (
        np.insert(curve[name].to_numpy().astype(float), places, np.nan) for name in ("min", "avg", "max")
    )
    return np.insert(time, places, begins).astype("datetime64[us]"), low, middle, high
