"""Drawings of answers: what is marked by the kinds of columns, and what a figure shows."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from core.errors import OperationError
from history.codec.row_groups import TIME
from history.questions import drawing
from history.questions.drawing import Drawing, Mark, marks_of, named_channels, names_without_curve, require_format

START = datetime(2026, 3, 9, 10, tzinfo=UTC)
END = START + timedelta(hours=1)


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


def rows(**columns: tuple[Any, list[Any]]) -> Any:
    return pa.table({name: pa.array(values, kind) for name, (kind, values) in columns.items()})


def curves(*names: str, since: datetime = START) -> Any:
    minutes = [since + timedelta(minutes=i) for i in range(60)]
    values = np.sin(np.arange(60))
    parts = [
        pa.table(
            {
                **{"name": pa.array([name] * 60), "unit": pa.array(["bar"] * 60), "time": pa.array(minutes, TIME)},
                **{"min": values - 0.1, "avg": values, "max": values + 0.1},
            }
        )
        for name in names
    ]
    return pa.concat_tables(parts)


def gaps(*intervals: tuple[str, datetime, datetime | None, bool]) -> Any:
    names = ("name", "from_time", "to_time", "backfilled", "reason")
    kinds = (pa.string(), TIME, TIME, pa.bool_(), pa.string())
    columns = list(zip(*((*interval, "stale") for interval in intervals), strict=True)) or [()] * len(names)
    return pa.table({n: pa.array(column, kind) for n, kind, column in zip(names, kinds, columns, strict=True)})


def test_two_times_are_an_interval_where_the_second_one_is_an_end() -> None:
    answer = rows(
        channel=(pa.string(), ["a", "b"]),
        copy_from=(TIME, [at(1), at(2)]),
        copy_to=(TIME, [at(3), None]),
        peak_at=(TIME, [at(4), None]),
        score=(pa.float64(), [2.0, 1.0]),
    )
    assert list(marks_of(answer, END)) == [Mark("a", at(1), at(3)), Mark("a", at(4)), Mark("b", at(2), END)]
    moments = rows(channel=(pa.string(), ["a"]), first_at=(TIME, [at(1)]), last_at=(TIME, [at(3)]))
    assert list(marks_of(moments, END)) == [Mark("a", at(1)), Mark("a", at(3))]
    ended = rows(unit=(pa.string(), ["u"]), departed_at=(TIME, [None]), returned_at=(TIME, [None]))
    assert not list(marks_of(ended, END)), "a row that only has a note marks nothing"


def test_all_channels_that_a_row_names_are_marked() -> None:
    names = pa.list_(pa.string())
    answer = rows(channel=(pa.string(), ["a", None]), partners=(names, [["b", "c"], None]), time=(TIME, [at(1), at(2)]))
    assert named_channels(answer) == (["a", "b", "c"], [])
    assert [(mark.channel, mark.begin) for mark in marks_of(answer, END)] == [
        *(("a", at(1)), ("b", at(1)), ("c", at(1))),
        (None, at(2)),
    ]
    many = rows(channel=(pa.string(), [f"c{i}" for i in range(11)]))
    assert [len(part) for part in named_channels(many)] == [drawing.MAX_CHANNELS, 3]


def test_rows_of_all_and_of_sources_have_no_curve_of_their_own() -> None:
    answer = rows(channel=(pa.string(), ["", "plc", "b", "a"]), time=(TIME, [at(1), at(2), at(3), at(4)]))
    names, _ = named_channels(answer)
    without_curve = names_without_curve(names, {"a": "analog", "b": "analog"})
    assert without_curve == {"plc": "no channel"}
    drawn = Drawing("q", answer, curves("a", "b"), gaps(), [(START, END)], without_curve, first=["a"])
    marks = {chart.channel: [mark.begin for mark in chart.marks] for chart in drawn.charts()}
    assert marks == {"a": [at(1), at(4)], "b": [at(1), at(3)]}
    assert list(marks) == ["a", "b"], "those that are to be the first"
    assert drawn.left_out == "not drawn: plc (no channel)"
    of_all = rows(channel=(pa.string(), ["", "plc"]), time=(TIME, [at(1), at(2)]))
    nothing = Drawing("q", of_all, curves("a", "b"), gaps(), [(START, END)], without_curve)
    assert (nothing.channels, nothing.charts()) == ([], [])


def test_value_at_a_time_is_a_point() -> None:
    before = (TIME, [at(0.5)])
    answer = rows(channel=(pa.string(), ["a"]), time=(TIME, [at(1)]), value=(pa.float64(), [4.0]), before_time=before)
    assert list(marks_of(answer, END)) == [Mark("a", at(1), None, 4.0)]
    kinds = (pa.string(), ["total", "minimum"])
    both = rows(
        channel=(pa.string(), ["a", "a"]), time=(TIME, [at(1)] * 2), aggregate=kinds, value=(pa.float64(), [9e9, 4.0])
    )
    assert [mark.value for mark in marks_of(both, END)] == [4.0], "a sum has another scale"


def test_figure_has_a_panel_for_each_channel_and_breaks_at_gaps() -> None:
    answer = rows(
        channel=(pa.string(), ["a", "b"]), moved_at=(TIME, [at(20), at(30)]), times_limit=(pa.float64(), [9.5, 3.0])
    )
    recorded = gaps(("a", at(10), at(15), False), ("b", at(40), None, False), ("b", at(5), at(6), True))
    figure = Drawing("q", answer, curves("a", "b"), recorded, [(START, END)]).figure()
    first, second = figure.axes
    assert [axes.get_title("left") for axes in (first, second)] == [
        "a [bar]   times limit 9.5",
        "b [bar]   times limit 3",
    ]
    assert first.get_lines()[0].get_drawstyle() == "steps-post", "a value holds until the next one"
    curve = first.get_lines()[0].get_ydata()
    assert np.flatnonzero(np.isnan(curve)).tolist() == [11], "behind the sample of minute 10"
    assert len(curve) == 61
    assert [len(axes.patches) for axes in (first, second)] == [1, 1], "a backfilled gap is none"


@pytest.mark.parametrize(
    ("before", "hours", "columns"), [(timedelta(), 1, 1), (timedelta(minutes=5), 1, 2), (timedelta(), 8, 2)]
)
def test_reference_that_ends_earlier_or_is_long_has_an_axis_of_its_own(
    before: timedelta, hours: int, columns: int
) -> None:
    answer = rows(channel=(pa.string(), ["a"]), changed_at=(TIME, [at(5)]))
    reference = START - before - timedelta(hours=hours), START - before
    both = pa.concat_tables([curves("a", since=reference[0]), curves("a")])
    figure = Drawing("q", answer, both, gaps(), [reference, (START, END)]).figure()
    assert len(figure.axes) == columns


@pytest.mark.parametrize("minutes", [40, 100, 115, 240, 290, 800, 26 * 60, 30 * 24 * 60])
def test_narrow_axis_has_a_few_times(minutes: int) -> None:
    """No reference is too long or too short for them: a warning is an error here."""
    answer = rows(channel=(pa.string(), ["a"]), changed_at=(TIME, [at(5)]))
    reference = START - timedelta(days=1, minutes=minutes), START - timedelta(days=1)
    both = pa.concat_tables([curves("a", since=reference[0]), curves("a")])
    figure = Drawing("q", answer, both, gaps(), [reference, (START, END)]).figure()
    assert 1 <= len(figure.axes[0].get_xticks()) <= 5


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_an_earlier_run_is_laid_over_the_interval() -> None:
    answer = rows(
        channel=(pa.string(), ["a"]), from_time=(TIME, [at(5)]), to_time=(TIME, [at(9)]), other_at=(TIME, [at(-85)])
    )
    earlier = at(-90), at(-30)
    both = pa.concat_tables([curves("a", since=earlier[0]), curves("a")])
    drawn = Drawing("q", answer, both, gaps(), [earlier, (START, END)])
    [chart] = drawn.charts()
    assert chart.other is not None
    assert [mark.begin for mark in chart.marks] == [at(5)], "what it was compared with is no row"
    for time, *_ in (chart.curve, chart.other):
        assert (time[0], time[-1]) == (np.datetime64("2026-03-09T10:00"), np.datetime64("2026-03-09T10:59"))
    figure = drawn.figure()
    assert len(figure.axes) == 1
    assert legend(figure) == [
        "means, between lowest and highest",
        "the run from 2026-03-09 08:30:00 on",
        "rows of the answer",
    ]


def test_a_legend_says_what_is_drawn() -> None:
    answer = rows(channel=(pa.string(), ["a"] * 2), moved_at=(TIME, [at(-5), at(5)]))
    both = pa.concat_tables([curves("a", since=at(-60)), curves("a")])
    figure = Drawing("q", answer, both, gaps(("a", at(10), at(15), False)), [(at(-60), START), (START, END)]).figure()
    assert legend(figure)[1:] == ["rows of the answer", "rows before the interval", "reference", "gap"]


def test_channels_of_a_departure_have_their_shares() -> None:
    lists = pa.list_(pa.string()), pa.list_(pa.float64())
    answer = rows(score=(pa.float64(), [248.0]), channels=(lists[0], [["b", "a"]]), shares=(lists[1], [[0.998, 0.002]]))
    charts = Drawing("q", answer, curves("a", "b"), gaps(), [(START, END)]).charts()
    assert [(chart.channel, chart.scores) for chart in charts] == [("b", "share 0.998"), ("a", "share 0.002")]


def test_reference_begins_where_something_is_to_be_seen() -> None:
    answer = rows(channel=(pa.string(), ["a"]), changed_at=(TIME, [at(5)]))
    figures = [
        Drawing("q", answer, curves("a", since=first), gaps(), [(at(-600), START), (START, END)]).figure()
        for first in (at(-10), START)
    ]
    limits = [axes.get_xlim() for figure in figures for axes in figure.axes]
    lengths = [round((end - begin) * 24 * 60) for begin, end in limits]
    assert lengths == [70, 60], "ten hours of nothing have no axis"


def test_reference_without_good_samples_has_no_axis() -> None:
    answer = rows(channel=(pa.string(), ["a"]), changed_at=(TIME, [at(5)]))
    bad = curves("a", since=at(-600))
    for column in ("min", "avg", "max"):
        bad = bad.set_column(bad.column_names.index(column), column, pa.nulls(len(bad), pa.float64()))
    drawn = Drawing("q", answer, pa.concat_tables([bad, curves("a")]), gaps(), [(at(-600), START), (START, END)])
    assert drawn.axes == [(START, END)]


def test_each_unit_of_a_curve_is_named() -> None:
    answer = rows(channel=(pa.string(), ["a"]), changed_at=(TIME, [at(5)]))
    before, after = curves("a").slice(0, 30), curves("a").slice(30)
    after = after.set_column(1, "unit", pa.array(["mbar"] * 30))
    drawn = Drawing("q", answer, pa.concat_tables([before, after]), gaps(), [(START, END)])
    [axes] = drawn.figure().axes
    assert axes.get_title("left") == "a [bar, mbar from 2026-03-09 10:30:00 on]"


def test_texts_and_channels_too_many_are_named_in_lines_that_fit() -> None:
    names = [f"hall/line{i}/conveyor_temperature" for i in range(20)]
    answer = rows(channel=(pa.string(), ["hall/mode", *names]))
    drawn = Drawing("q", answer, curves(*names[:2]), gaps(), [(START, END)], {"hall/mode": "text"})
    figure = drawn.figure()
    assert [axes.get_title("left").partition(" ")[0] for axes in figure.axes] == names[: drawing.MAX_CHANNELS]
    note = next(text for text in figure.texts if text.get_text().startswith("not drawn: "))
    assert note.get_text().startswith("not drawn: hall/mode (text), hall/line8/")
    assert note.get_text().endswith("and 5 more")
    figure.draw_without_rendering()
    box = note.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1


def test_answer_without_channels_or_samples_is_drawn(tmp_path: Path) -> None:
    nothing = curves("a").slice(0, 0)
    for answer in (rows(time=(TIME, [at(5)])), rows(channel=(pa.string(), ["a"]), time=(TIME, [at(5)]))):
        for suffix, head in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
            path = tmp_path / f"drawn{suffix}"
            Drawing("q", answer, nothing, gaps(), [(START, END)]).write(path)
            assert path.read_bytes().startswith(head)


def test_wrong_file_and_missing_library_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OperationError, match=r"--plot: found '.*x\.pdf'; legal: a file that ends with \.png or \.svg"):
        require_format(tmp_path / "x.pdf")
    with pytest.raises(OperationError, match="legal: a file in a folder that exists"):
        require_format(tmp_path / "none" / "x.png")
    require_format(tmp_path / "x.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(OperationError, match=r"--require-hashes -r requirements-analysis\.lock"):
        require_format(tmp_path / "x.png")
