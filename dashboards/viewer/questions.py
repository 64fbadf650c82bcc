"""Questions of panels, answered as ``plantlog ask`` answers them, within limits that leave the machine to others.

The SQL of such a panel is DuckDB's, over the question's answer in the table ``answer``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from core.errors import OperationError, QueryError
from core.paths import State
from dashboards.viewer.frames import MAX_BYTES, Frame, frame, text_bytes
from history.archive.location import in_background
from history.questions import portions
from history.questions.drawing import Chart, Curve, Drawing
from history.questions.request import Request
from history.sql.sources.execution import Limits

NARROW = "choose a shorter time range or fewer channels, or use `plantlog ask`"
_MEMORY = "256MiB"
_MAX_ROWS = 20_000  # of an answer
_POINTS = 300  # buckets of a chart, which has a fourth of a wide window or all of a narrow one
_CURVE = ("time", "lowest", "highest", "mean")
_OTHER = ("time", "earlier lowest", "earlier highest", "earlier mean")  # of a run that is laid over it
_GRACE_SECONDS = 5.0  # at least, until a question has ended whose time is up


class Questions:
    """Asks one at a time."""

    def __init__(self, state: Path, seconds: float) -> None:
        """``seconds``: that a question may take."""
        self._state = State(state)
        self._seconds = seconds
        self._grace = max(_GRACE_SECONDS, seconds / 3)
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Future[Any]] = set()

    async def answer(self, request: Request, sql: str, parameters: Sequence[object], is_drawn: bool = False) -> Frame:
        """The rows of a query over the answer. ``is_drawn``: with charts of the channels that its column ``Channel``
        names first, and with notes. Raises QueryError."""
        async with self._turn:
            limits = Limits(_MEMORY, 2, self._seconds, NARROW, are_options=False, stop=Future())
            if self._running and (await asyncio.wait(self._running, timeout=self._grace))[1]:
                raise QueryError(503, "the archive does not answer: an earlier question still waits for it")
            task = in_background(_answer, self._state, request, limits, sql, parameters, is_drawn)
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            try:
                await asyncio.wait([task], timeout=limits.seconds + self._grace)
            except asyncio.CancelledError:  # the browser went on
                limits.stop.set_result(None)
                raise
            if not task.done():
                raise QueryError(504, f"the archive does not answer within {limits.seconds:g} s")
            try:
                table, notes, drawing = task.result()
            except OperationError as error:
                raise QueryError(504, str(error)) from error
        rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        if len(rows) > _MAX_ROWS:
            raise QueryError(504, f"the answer has more than {_MAX_ROWS:,} rows: {NARROW}")
        rows_frame = frame(table.column_names, [_kind(column.type) for column in table.schema], rows)
        if text_bytes(rows_frame.columns) > MAX_BYTES:
            raise QueryError(504, f"the texts of the answer have more than {MAX_BYTES:,} bytes: {NARROW}")
        rows_frame.notice, rows_frame.drawing = notes, drawing
        rows_frame.is_unknown = notes.startswith(portions.NOTHING_JUDGED)
        return rows_frame


def _answer(
    state: State, request: Request, limits: Limits, sql: str, parameters: Sequence[object], is_drawn: bool
) -> tuple[Any, str, dict[str, Any] | None]:
    """Table, notes, and what is drawn."""
    with portions.answer_session(state, request, limits) as session:
        table = session.table(sql, parameters)
        if not is_drawn:
            return table, "", None
        notes = portions.notes(session, request)
        if not table.num_rows:
            return table, notes, None
        names = [name for name in table["Channel"].to_pylist() if name] if "Channel" in table.column_names else []
        try:
            return table, notes, _drawn(portions.drawing(session, "", _POINTS, names))
        except OperationError as error:  # the rows are worth more
            return table, f"{notes}\nnot drawn: {error}", None


def _drawn(drawing: Drawing) -> dict[str, Any] | None:
    """JSON of a drawing for the page; None: there is no channel to draw."""
    charts = drawing.charts()
    if not charts:
        return None
    *reference, (since, _) = drawing.windows
    return {
        "axes": [_milliseconds(*axis) for axis in drawing.axes],
        "reference": [_milliseconds(*window) for window in reference],
        "since": _milliseconds(since)[0],
        "note": drawing.left_out,
        "charts": [_chart(chart, since) for chart in charts],
    }


def _chart(chart: Chart, since: datetime) -> dict[str, Any]:
    return {
        "channel": chart.channel,
        "units": chart.units,
        "scores": chart.scores,
        "curves": [
            _curve(names, curve, since)
            for names, curve in ((_CURVE, chart.curve), (_OTHER, chart.other))
            if curve is not None
        ],
        "gaps": [[*_milliseconds(begin, end), reason] for begin, end, reason in chart.gaps],
        "marks": [_milliseconds(mark.begin, mark.end or mark.begin) for mark in chart.marks],
    }


def _curve(names: Sequence[str], curve: Curve, since: datetime) -> dict[str, Any]:
    time, low, middle, high = curve
    columns = zip(*(column.tolist() for column in (time, low, high, middle)), strict=True)
    rows = [(moment.replace(tzinfo=UTC), *values) for moment, *values in columns]
    return frame(names, ["timestamptz", *["float8"] * 3], rows or [(since, None, None, None)]).json()


def _milliseconds(*moments: datetime) -> list[int]:
    return [round(moment.timestamp() * 1000) for moment in moments]


def _kind(data_type: Any) -> str:
    """PostgreSQL's name of a type of Arrow."""
    if pa.types.is_timestamp(data_type):
        return "timestamptz"
    if pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type):
        return "float8"
    return "bool" if pa.types.is_boolean(data_type) else "text"
