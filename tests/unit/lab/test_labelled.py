"""Recordings with labelled events: bad files and labels, calm windows, and how answers are judged."""

from __future__ import annotations

import gzip
import struct
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from core.errors import OperationError
from core.timestamps import timestamp
from lab.bench.labelled import HALVES, Row, alarm, answer_rows, half_of, judged, measure, window
from lab.bench.recordings import Event, Project, Recording, projects, read
from tests.labelled_recordings import FAULT, ROWS, write, write_slow, write_text

_STEP = 1_000_000  # µs
_PROJECT = Project("p", *("",) * 6, calm=10.0, causes={"e": ["b"]})


def _recording(time: object, events: tuple[Event, ...] = (), project: Project = _PROJECT) -> Recording:
    at = np.asarray(time, np.int64) * _STEP
    return Recording(project, "p", ("a", "b", "c"), at, np.zeros((len(at), 3)), events)


def _event(since: int, until: int, name: str = "e") -> Event:
    return Event(name, since * _STEP, until * _STEP)


def test_the_table_names_each_file_and_each_known_option() -> None:
    assert set(projects()) == {"tep", "skab", "nab", "batadal", "hss", "bibmon", "gecco"}
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


def test_bad_recordings_are_said_before_a_server_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, monkeypatch)
    (place := tmp_path / "place").mkdir()
    (tmp_path / "tep" / "d00_te.dat").unlink()
    with pytest.raises(OperationError, match=r"d00_te\.dat is missing: bring the files of"):
        measure(place, tmp_path, ["tep"], ["first_mover"], False, HALVES, pytest.fail)
    assert list(place.iterdir()) == []


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


def test_event_without_a_value_is_an_error() -> None:
    value = np.zeros((60, 1))
    value[30:50] = np.nan
    at = np.arange(60) * _STEP
    with pytest.raises(OperationError, match=r"p: found event e from .* without a value; legal: an event has values"):
        Recording(_PROJECT, "p", ("a",), at, value, (_event(30, 50),))
    Recording(_PROJECT, "p", ("a",), at, value, (_event(30, 51),))


def test_missing_values_take_the_value_before_and_are_counted() -> None:
    value = np.array([[np.nan, 1.0], [2.0, np.nan], [4.0, np.nan]])
    recording = Recording(_PROJECT, "p", ("a", "b"), np.arange(3) * _STEP, value, ())
    assert recording.filled().value.tolist() == [[3.0, 1.0], [2.0, 1.0], [4.0, 1.0]]
    assert recording.notes() == ["p: 3 values of 2 channels are missing"]


def test_events_that_follow_another_are_left_out_where_the_project_says_so() -> None:
    events = (_event(12, 14, "e1"), _event(20, 22, "e2"), _event(40, 42, "e3"))
    assert len(_recording(range(60), events).events_apart) == 3
    recording = _recording(range(60), events, replace(_PROJECT, apart=True))
    assert [event.name for event in recording.events_apart] == ["e1", "e3"]
    assert recording.notes() == ["p: 1 of 3 events follow another too closely and are left out"]


_CYCLES = """Timestamp,Labels,a
0,0,1
0.05,0,2
0.05,1,9
0.1,1,3
0,0,4
0.05,0,5
"""


def test_cycles_follow_each_other_and_the_first_of_two_samples_at_a_time_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(tmp_path, monkeypatch, "hss/HRSS_anomalous_standard.csv", _CYCLES)
    [recording] = read(tmp_path, "hss")
    assert (recording.unit, recording.channels) == ("hss/anomalous_standard", ("a",))
    assert (recording.time - recording.time[0]).tolist() == [0, 50_000, 100_000, 150_000, 200_000]
    assert recording.value[:, 0].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    [event] = recording.events
    assert (event.name, event.since, event.until) == (
        "anomalous_standard/1",
        int(recording.time[1]),  # the label of the sample that is left out counts
        int(recording.time[3]),
    )
    assert "1 samples at the time of the one before are left out" in recording.notes()[0]


def test_text_that_means_missing_is_missing_and_any_other_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_slow(tmp_path, monkeypatch)
    [recording] = read(tmp_path, "bibmon")
    assert (recording.step_us, recording.channels) == (300 * _STEP, ("tag0", "tag100", "tag102"))
    assert np.isnan(recording.value).sum(0).tolist() == [290, 288, 288]
    write_slow(tmp_path, monkeypatch, "bad")
    with pytest.raises(
        OperationError, match=r"bibmon: could not convert .*'bad'.*; legal: a number, 'Inp OutRange', 'Bad', 'Scan"
    ):
        read(tmp_path, "bibmon")


def _data_frame(columns: dict[str, tuple[int, NDArray[Any]]]) -> bytes:
    """Columns (type of R, values) in R's serialization; their names twice, the second time by reference."""

    def text(value: str) -> bytes:
        return struct.pack(">ii", 9 | 0x40000, len(value)) + value.encode()

    vectors = b"".join(struct.pack(">ii", kind, len(v)) + v.tobytes() for kind, v in columns.values())
    names = b"".join(text(name) for name in columns)
    return b"".join(
        (
            b"X\n" + struct.pack(">iii", 2, 0x30202, 0x20300),
            struct.pack(">ii", 19 | 0x200, len(columns)) + vectors,
            struct.pack(">ii", 2 | 0x400, 1) + text("names") + struct.pack(">ii", 16, len(columns)) + names,
            struct.pack(">ii", 2 | 0x400, 1) + text("class") + struct.pack(">ii", 16, 1) + text("data.frame"),
            struct.pack(">i", 254),
        )
    )


def test_data_frame_of_r_is_read_and_its_missing_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time = (np.arange(10) * 60).astype(">f8")
    flow = np.array([1, 2, -(2**31), 4, 5, 6, 7, 8, 9, 10], ">i4")
    label = np.array([0, 0, 0, 1, 1, 0, 0, 0, 0, 1], ">i4")
    frame = _data_frame({"Time": (14, time), "Fm": (13, flow), "EVENT": (10, label)})
    write_text(tmp_path, monkeypatch, "gecco/waterDataTraining.RDS", gzip.compress(frame))
    [recording] = read(tmp_path, "gecco")
    assert recording.channels == ("Fm",)
    assert recording.value[:4, 0].tolist()[:2] == [1.0, 2.0]
    assert np.isnan(recording.value[2, 0])
    assert [(event.since // _STEP, event.until // _STEP) for event in recording.events] == [(180, 300), (540, 600)]
    complex_numbers = _data_frame({"Time": (15, time)})
    write_text(tmp_path, monkeypatch, "gecco/waterDataTraining.RDS", gzip.compress(complex_numbers))
    with pytest.raises(OperationError, match=r"found type 15 at byte 22 of R's .*; legal: vectors of numbers"):
        read(tmp_path, "gecco")


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
    assert judge((26, "a"), (33, "b")) == (True, 3.0, 2)  # a row of before is read first
    assert judge((26, "b"), (33, "a")) == (True, 3.0, None)
    assert judge(*[(26, "a")] * 10, (31, "b")) == (False, None, 2)  # nobody reads so far


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
