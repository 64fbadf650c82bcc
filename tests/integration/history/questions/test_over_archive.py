"""Questions about days that retention dropped: the answers are those from before, or an error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from core.errors import OperationError
from core.installation import ALL
from core.paths import State
from history import notebook
from history.archive_days import writer
from history.questions import portions
from history.questions.ask import TimeRange, answer
from history.questions.drawing import Drawing, marks_of, named_channels
from history.questions.request import Request
from history.sql.session import Session
from history.sql.sources.execution import Limits
from schema.queries import load
from schema.question_files import REFERENCE, questions
from tests.command import run as plantlog
from tests.database import Database, prepared
from tests.integration.history.archive_maintenance import Maintained
from tests.integration.history.questions.answers import LIMITS, assert_same
from tests.integration.history.questions.recorded_plant import plant, recorded_plant
from tests.integration.history.questions.recording import Recording, at

__all__ = ["plant"]  # a fixture
_RANGE = TimeRange(at(3600).isoformat(), at(4800).isoformat())
OPTIONS: dict[str, dict[str, str]] = {  # of questions that need some, or have more to show with them
    "aggregates": {
        "aggregate": "time_average,total,duration_in_state,count_transitions,increase,rate,percentile",
        "step": "7 min",
    },
    "change_points": {"step": "10 s"},
    "correlation": {"target": "boiler/sp"},
    "interpolated": {"step": "130 s"},
}
_COMPARING = [
    one.name
    for one in questions().values()
    if any(known.type == REFERENCE for known in one.parameters)
    and one.name not in ("implausible", "stuck_sensors")  # no sensor of the next day is
]


async def _record(database: Database, folder: Path) -> None:
    async with recorded_plant(database, folder) as (_, recording):
        await _record_next_day(recording)


async def _record_and_archive(database: Database, folder: Path) -> None:
    async with recorded_plant(database, folder) as (maintenance, recording):
        with pytest.MonkeyPatch.context() as patch:
            # A file for each unit: numbers of channels are not in their order.
            patch.setattr(writer, "_FILE_SAMPLES", 1)
            assert (await maintenance.job()).outcome == "ok"
        assert await maintenance.drop() == ["chunk"]
        assert await maintenance.stored() == {}
        await _record_next_day(recording)


async def _record_next_day(recording: Recording) -> None:
    """A day that is not archived. (It stands for both plants, as values hold until the next one.)"""
    await recording.samples("boiler/moving", [90_000.0], [1.0])
    await recording.samples("boiler/slow", [88_000.0], [11.0])
    seconds, random = np.arange(90_001.0, 91_201.0), np.random.default_rng(2)
    late = seconds >= 90_801
    swinging = random.normal(50, 0.5, 1200) + 5 * np.sin(2 * np.pi * seconds / 60)
    await recording.samples("boiler/swinging", seconds, swinging)
    await recording.samples("boiler/sister", seconds, swinging + 20 * late)
    await recording.samples("boiler/moving", seconds, random.normal(50, 0.5, 1200) + 20 * late)


@pytest.fixture(scope="module")
def stored(server: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[State]:
    """State folder of the plant; its samples are in the database."""
    folder = tmp_path_factory.mktemp("stored")
    with prepared(server, template, "stored_day", partial(_record, folder=folder)):
        yield State(folder / "state")


@pytest.fixture(scope="module")
def archived(server: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[State]:
    """State folder of the same plant; the samples of its first day are only in the archive."""
    folder = tmp_path_factory.mktemp("archived")
    with prepared(server, template, "archived_day", partial(_record_and_archive, folder=folder)):
        yield State(folder / "state")


def ask(
    state: State,
    name: str,
    options: Mapping[str, str],
    time_range: TimeRange = _RANGE,
    channels: Sequence[str] = (),
    limits: Limits = LIMITS,
) -> tuple[list[dict[str, Any]], str]:
    """The rows that ``plantlog ask`` answers; if there are none, why."""
    table, why = answer(state, questions()[name], time_range, channels, options, ALL, limits)
    return table.to_pylist(), why


@pytest.mark.slow
@pytest.mark.parametrize("name", questions())
def test_answer_is_the_same_from_the_archive(
    stored: State, archived: State, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several portions of channels are read."""
    monkeypatch.setattr(portions, "_SAMPLES", 1000)
    expected, _ = ask(stored, name, OPTIONS.get(name, {}))
    assert expected
    assert_same(ask(archived, name, OPTIONS.get(name, {}))[0], expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", _COMPARING)
def test_answer_is_the_same_where_some_is_archived_and_some_is_not(stored: State, archived: State, name: str) -> None:
    """The reference, or the begin of the interval, is archived."""
    if name in _COMPARING:
        since, options = at(90_001), {"reference": f"{at(2400).isoformat()}..{at(3600).isoformat()}"}
    else:
        since, options = at(4000), {}
    interval = TimeRange(since.isoformat(), at(91_201).isoformat())
    channels = ["boiler/swinging", "boiler/sister", "boiler/moving"]
    expected, _ = ask(stored, name, options, interval, channels)
    assert expected
    assert_same(ask(archived, name, options, interval, channels)[0], expected)


@pytest.mark.slow
def test_reason_of_no_rows_is_the_same_from_the_archive(stored: State, archived: State) -> None:
    rows, why = ask(archived, "stuck_sensors", {"hold": "10 days"})
    assert rows == []
    assert "3 channels not judged, not analog: boiler/energy, boiler/mode, boiler/recipe" in why
    assert ask(stored, "stuck_sensors", {"hold": "10 days"}) == ([], why)


@pytest.mark.slow
def test_question_that_needs_too_much_memory_is_divided(
    stored: State, archived: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All channels together need too much memory, half of them or fewer do not."""
    sizes: list[int] = []
    add = portions._add

    def counted(session: Session, request: Request, groups: Sequence[Sequence[str]], *rest: Any) -> None:
        sizes.append(len(groups))
        add(session, request, groups, *rest)

    monkeypatch.setattr(portions, "_add", counted)
    for megabytes in range(30, 8, -2):  # how much it takes is DuckDB's affair
        sizes.clear()
        with suppress(OperationError):
            rows, _ = ask(archived, "gaps_and_coverage", {}, limits=replace(LIMITS, memory=f"{megabytes}MiB"))
            if len(sizes) > 1:
                assert sizes[0] > max(sizes[1:])
                assert_same(rows, ask(stored, "gaps_and_coverage", {})[0])
                return
    pytest.fail("no limit divides it")


def test_text_channel_has_no_correlation(archived: State) -> None:
    assert ask(archived, "correlation", {"target": "boiler/mode"})[0] == []


def test_command_answers_as_json(archived: State) -> None:
    words = ("--from", at(3600).isoformat(), "--to", at(90_010).isoformat(), "-c", "boiler/*", "--json")
    result = plantlog(archived.root, "ask", "stuck_sensors", *words)
    assert "boiler/stuck" in [row["channel"] for row in json.loads(result.out)], result.err


def test_interval_of_archive_and_database_is_one(archived: State) -> None:
    """Samples of the archive at 4000 and 4700 s, and one of the database."""
    interval = TimeRange(at(4000).isoformat(), at(90_010).isoformat())
    options = {"aggregate": "minimum,maximum,count_transitions"}
    rows, _ = ask(archived, "aggregates", options, interval, ["boiler/slow"])
    values = [(row["aggregate"], row["value"]) for row in rows]
    assert values == [("count_transitions", 3), ("maximum", 11), ("minimum", 3)]


async def test_samples_that_are_nowhere_are_an_error(plant: tuple[Maintained, Recording]) -> None:
    maintenance, recording = plant
    await maintenance.owner.execute("UPDATE plant.installation SET archive_from = NULL, archive_location = NULL")
    await recording.channel("boiler/new")
    assert await maintenance.drop() == ["chunk"]
    state = maintenance.site.plant.state
    for name in questions():
        if name != "correlation":
            with pytest.raises(OperationError, match=f"{name}: retention dropped samples of 2026-03-09, which are not"):
                await asyncio.to_thread(ask, state, name, OPTIONS.get(name, {}))
    # A channel that had none, and a time of which nothing was dropped.
    later = TimeRange(at(900_000).isoformat(), at(901_000).isoformat())
    for interval, channels in ((_RANGE, ["boiler/new"]), (later, [])):
        rows, _ = await asyncio.to_thread(ask, state, "stuck_sensors", {}, interval, channels)
        assert rows == []


def test_duckdb_writes_numbers_as_postgresql_does() -> None:
    numbers = [0.0, 40.0, -12.5, 1e14, 1e15, -1.5e15, 1234567890123456.0, 9999999999999998.0, 1e16, 1e-4, 1e-5, 1.5e300]
    expected = (
        "0 40 -12.5 100000000000000 1e+15 -1.5e+15 1.234567890123456e+15 9.999999999999998e+15 1e+16 0.0001 1e-05"
    )
    with duckdb.connect() as connection:
        connection.execute(load("duckdb")["texts"])
        rows = [connection.execute("SELECT number_text(?::DOUBLE)", [number]).fetchone() for number in numbers]
    assert " ".join(row[0] for row in rows if row) == f"{expected} 1.5e+300"


_WITHOUT_TIMES = {
    "correlation",
    "oscillation",
    "what_changed",
}  # rows are about all of the interval


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_answer_is_drawn(archived: State, tmp_path: Path) -> None:
    for name, question in questions().items():
        path = tmp_path / f"{name}.svg"
        table, _ = answer(archived, question, _RANGE, [], OPTIONS.get(name, {}), limits=LIMITS, plot=path)
        drawing = path.read_text()
        channels, _ = named_channels(table)
        assert channels, name
        for channel in channels:
            expected = "(text)" if channel in ("boiler/mode", "boiler/recipe") else f"<!-- {channel}"
            assert expected in drawing, f"{name} does not draw {channel}"
        assert bool(list(marks_of(table, at(4800)))) == (name not in _WITHOUT_TIMES), name


@pytest.fixture(params=["stored", "archived"])
def drawn(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[Sequence[str], float, float], Drawing]:
    """Draws channels from so many seconds on, until so many; of archived ones, the notebook draws the same."""
    state: State = request.getfixturevalue(request.param)

    def draw(channels: Sequence[str], since: float, until: float) -> Drawing:
        drawings, in_notebook = list[Drawing](), list[Drawing]()
        monkeypatch.setattr("history.questions.ask._draw", lambda drawing, _: drawings.append(drawing))
        monkeypatch.setattr(Drawing, "figure", lambda *drawing: in_notebook.extend(drawing))
        interval = TimeRange(at(since).isoformat(), at(until).isoformat())
        table, _ = answer(
            state,
            questions()["gaps_and_coverage"],
            interval,
            channels,
            {"complete": "true"},
            limits=LIMITS,
            plot=tmp_path / "drawn.svg",
        )
        if request.param == "archived":
            folder = str(state.root.with_name("archive"))
            notebook.plot(folder, start=at(since), end=at(until), answer=table)
            for one, expected in zip(in_notebook[-1].charts(), drawings[-1].charts(), strict=True):
                assert (one.channel, one.units) == (expected.channel, expected.units)
                assert [max(at(since), gap[0]) for gap in one.gaps] == [max(at(since), gap[0]) for gap in expected.gaps]
                for values, others in zip(one.curve, expected.curve, strict=True):
                    np.testing.assert_allclose(values.astype(float), others.astype(float))
        return drawings[-1]

    return draw


def test_values_that_hold_at_the_edges_are_drawn(drawn: Callable[[Sequence[str], float, float], Drawing]) -> None:
    """A value before the interval holds, and the last one until its end, but not behind a gap or a bad value."""
    channels = ["boiler/slow", "boiler/silent", "boiler/missing", "boiler/mode"]
    drawings = [drawn(channels, since, 4300) for since in (4010, 4150)]
    assert {*drawings[0].rows["channel"].to_pylist()} >= {*channels[:3]}
    held, behind_gap = (
        {
            name: [(row["time"], row["avg"]) for row in drawing.curves.to_pylist() if row["name"] == name]
            for name in channels
        }
        for drawing in drawings
    )
    assert held["boiler/slow"] == [(at(4010), 3.0)], "the gap at 4100 s ends it"
    assert behind_gap["boiler/slow"] == [], "nobody knows it after the gap"
    last = held["boiler/silent"][-2:]
    assert (last[1][0], last[0][0] < at(4200)) == (at(4300), True), "held where no gap is recorded"
    assert held["boiler/missing"][-1][0] < at(4200)
    assert held["boiler/mode"] == []


def test_no_value_is_held_from_a_bad_sample_on(drawn: Callable[[Sequence[str], float, float], Drawing]) -> None:
    """Bad samples at 4800 s and 4801 s: alone in their buckets, or behind good ones in the last one of the day."""
    for until in (4900, 9000):
        [chart] = drawn(["boiler/moving"], 4700, until).charts()
        time, _, middle, _ = chart.curve
        ends = time[np.isnan(middle)].tolist()
        assert ends[-1] == at(4801).replace(tzinfo=None)
        assert np.isnan(middle).tolist().index(True) == len(middle) - len(ends), "nothing is drawn behind them"


def test_values_from_before_a_change_keep_their_unit(drawn: Callable[[Sequence[str], float, float], Drawing]) -> None:
    """Also those that are held from before the interval, and those of the bucket in which the unit changes."""
    for since, until, units in (
        (4300, 4400, ["°C"]),
        (1000, 9007, ["°C", "K from 2026-03-09 11:15:00 on"]),
        (4600, 4700, ["K"]),
        (4950, 4960, ["K"]),
    ):
        [chart] = drawn(["boiler/sp"], since, until).charts()
        assert chart.units == units


@pytest.mark.slow
def test_answer_without_rows_is_not_drawn(archived: State, tmp_path: Path) -> None:
    span, path = ("--from", _RANGE.since, "--to", _RANGE.until), tmp_path / "drawn.png"
    result = plantlog(archived.root, "ask", "change_points", *span, "--least-score", "1e9", "--plot", path)
    assert (result.code, path.exists()) == (0, False), result.err
    assert "no rows" in result.out
    result = plantlog(archived.root, "ask", "stuck_sensors", *span, "--plot", path)
    assert (result.code, path.read_bytes()[:4]) == (0, b"\x89PNG"), result.err
    result = plantlog(archived.root, "ask", "stuck_sensors", *span, "--plot", tmp_path / "drawn.pdf")
    assert (result.code, result.out) == (1, "")
    assert "legal: a file that ends with .png or .svg" in result.err


_ALONE = [
    "a/*",
    "b/*",
    "boiler/drifting",
    "boiler/energy",
    "boiler/gapped",
    "boiler/missing",
    "boiler/sp",
    "boiler/stuck",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "configuration", [{}, {"stepped": True, "simple_bounds": True, "use_sloped_extrapolation": True}]
)
def test_historian_functions_of_a_notebook_answer_as_the_questions(
    archived: State, configuration: dict[str, Any]
) -> None:
    """Of channels whose values around the interval are archived."""
    folder, since, until = str(archived.root.with_name("archive")), _RANGE.since, _RANGE.until
    names = OPTIONS["aggregates"]["aggregate"].split(",")
    options = {name: str(value).lower() for name, value in configuration.items()}
    for name, own in (("aggregates", OPTIONS["aggregates"]), ("interpolated", OPTIONS["interpolated"])):
        expected, _ = answer(archived, questions()[name], _RANGE, _ALONE, {**own, **options}, limits=LIMITS)
        if name == "aggregates":
            rows = notebook.aggregates(folder, _ALONE, since, until, aggregate=names, step="7m", **configuration)
        else:
            rows = notebook.interpolated(folder, _ALONE, since, until, step=timedelta(seconds=130), **configuration)
        assert expected.num_rows > 20
        assert_same(rows.to_pylist(), expected.to_pylist())
    times = [at(3700), at(4300)]
    options = {"times": ",".join(time.isoformat() for time in times)}
    expected, _ = answer(archived, questions()["interpolated"], TimeRange(), ["boiler/sp"], options, limits=LIMITS)
    assert_same(notebook.interpolated(folder, "boiler/sp", times=times).to_pylist(), expected.to_pylist())
    with pytest.raises(notebook.ArchiveError, match="--aggregate: found median; legal: time_average, "):
        notebook.aggregates(folder, "boiler/sp", since, until, aggregate="median")
