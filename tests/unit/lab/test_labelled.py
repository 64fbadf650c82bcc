"""Recordings with labelled events: bad files and labels, calm windows, and how answers are judged."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from core.errors import OperationError
from core.timestamps import timestamp
from lab.bench.labelled import HALVES, Row, alarm, answer_rows, half_of, judged, window
from lab.bench.recordings import Event, Project, Recording, projects, read
from tests.labelled_recordings import FAULT, ROWS, write

_STEP = 1_000_000  # µs
_PROJECT = Project("p", *("",) * 6, calm=10.0, causes={"e": ["b"]})


def _recording(time: object, events: tuple[Event, ...] = (), project: Project = _PROJECT) -> Recording:
    at = np.asarray(time, np.int64) * _STEP
    return Recording(project, "p", ("a", "b", "c"), at, np.zeros((len(at), 3)), events)


def _event(since: int, until: int, name: str = "e") -> Event:
    return Event(name, since * _STEP, until * _STEP)


def test_the_table_names_each_file_and_each_known_option() -> None:
    assert set(projects()) == {"tep", "skab", "nab", "batadal"}
    for name, project in projects().items():
        assert len(project.revision) == 40, name
        assert project.licence, name


def test_file_that_is_missing_or_another_says_what_to_bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch)
    assert [one.unit for one in read(tmp_path, "tep")] == ["tep/d04"]
    path = tmp_path / "tep" / "d04_te.dat"
    path.write_text(path.read_text().replace("5", "6", 1))
    with pytest.raises(OperationError, match=r"d04_te\.dat: found SHA-256 .*; legal: .*: bring the files of"):
        read(tmp_path, "tep")
    path.unlink()
    with pytest.raises(OperationError, match=r"d04_te\.dat is missing: bring the files of .*, revision 0643318858"):
        read(tmp_path, "tep")


@pytest.mark.parametrize(
    ("time", "events", "error"),
    [
        ([0, 1, 1, 2], (), "found 1970-01-01T00:00:01.* twice; legal: ascending times"),
        ([0, 2, 1], (), "found 1970-01-01T00:00:01.* after a later time"),
        ([0, 1, 2], (_event(2, 5),), "found event e from .*; legal: within the data"),
        ([0, 1, 2], (_event(2, 2),), "found event e"),
    ],
)
def test_duplicate_times_and_labels_outside_are_errors(time: list[int], events: tuple[Event, ...], error: str) -> None:
    with pytest.raises(OperationError, match=error):
        _recording(time, events)


def test_calm_windows_have_no_event_and_as_much_calm_before() -> None:
    time = [*range(55), *range(200, 230)]
    windows = _recording(time, (_event(40, 50),)).calm_windows()
    assert [(since // _STEP, until // _STEP) for since, until in windows] == [
        (10, 20),
        (20, 30),
        (30, 40),
        (210, 220),
        (220, 230),
    ]


def test_windows_and_halves_depend_on_the_name_alone() -> None:
    events = [_event(100, 120, f"e{n}") for n in range(50)]
    windows = [window(event, 10 * _STEP) for event in events]
    assert all(92 * _STEP < since < 98 * _STEP and until == 120 * _STEP for since, until in windows)
    assert len({since for since, _ in windows}) > 10
    assert {half_of(event) for event in events} == set(HALVES)


def test_answer_is_judged_by_times_and_channels() -> None:
    recording, event = _recording(range(60), (_event(30, 50),)), _event(30, 50)

    def rows(*pairs: tuple[int | None, str]) -> list[Row]:
        return [Row(() if at is None else (at * _STEP,), (channel,)) for at, channel in pairs]

    def judge(*pairs: tuple[int | None, str]) -> tuple[bool, float | None, int | None]:
        one = judged(recording, event, (25 * _STEP, 50 * _STEP), "q", "default", rows(*pairs), 0.0, "")
        return one.found, one.onset, one.rank

    assert judge() == (False, None, None)
    assert judge((27, "b"), (50, "b")) == (False, None, None)
    assert judge((28, "a"), (33, "b")) == (True, -2.0, 2)
    assert judge((None, "b")) == (True, None, 1)
    assert judge(*[(26, "a")] * 10, (31, "b")) == (False, None, 1)  # nobody reads so far


def test_times_and_channels_are_read_from_any_answer() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    table = pa.table(
        {"from_time": [moment], "channels": [["u/a", "u/b"]], "what": ["up"], "channel": ["u/c"], "n": [1.0]}
    )
    [row] = answer_rows(table, "u/")
    assert (timestamp(row.times[0]), row.channels) == (moment, ("a", "b", "c"))


def test_pca_alarms_at_the_step_and_names_its_channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch)
    [fault] = read(tmp_path, "tep")
    [event] = fault.events
    [row] = alarm(fault, window(event, fault.project.calm_us))
    assert row.times[0] == event.since == fault.time[ROWS + FAULT]
    assert row.channels[0] == "XMV10"
    assert alarm(fault, (int(fault.time[FAULT]), int(fault.time[ROWS - 1]))) == []
