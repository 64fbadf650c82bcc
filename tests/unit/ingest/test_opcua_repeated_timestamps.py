"""A source timestamp that stands still: no value is lost while the server timestamp tells values apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.batch import Event
from ingest.opcua.subscription.repeated_timestamps import Dated, RepeatedTimestamps
from tests.unit.ingest.test_opcua_clocks import TAGS

Row: TypeAlias = tuple[int, int, int, float]  # place, source timestamp, server timestamp, value
ARRIVAL = 10_000


class Channels:
    """The table that the samples of some messages give."""

    def __init__(self) -> None:
        self.state = RepeatedTimestamps(TAGS)
        self.table: dict[tuple[int, int], float] = {}  # (place, time) → value

    def date(self, rows: Sequence[Row], arrival: int = ARRIVAL) -> Dated:
        place = np.array([row[0] for row in rows], np.uint32)
        source, server = (np.array([row[k] for row in rows], np.int64) for k in (1, 2))
        value = np.array([row[3] for row in rows], np.float64)
        return self.state.date(place, source, server, value, np.zeros(len(rows), np.uint32), arrival)

    def add(self, *rows: Row, arrival: int = ARRIVAL) -> Dated:
        """A message; its samples are on disk."""
        dated = self.date(rows, arrival)
        keep = np.ones(len(rows), bool) if dated.keep is None else dated.keep
        for k in np.flatnonzero(keep).tolist():
            key, value = (rows[k][0], int(dated.time[k])), rows[k][3]
            assert self.table.setdefault(key, value) == value, "the database refuses it"
        self.stored(rows, dated)
        return dated

    def stored(self, rows: Sequence[Row], dated: Dated) -> None:
        """These are on disk."""
        keep = np.ones(len(rows), bool) if dated.keep is None else dated.keep
        place, value = np.array([row[0] for row in rows], np.uint32), np.array([row[3] for row in rows], np.float64)
        self.state.stored(place[keep], dated.time[keep], value[keep], np.zeros(int(keep.sum()), np.uint32))


def test_each_value_of_a_frozen_source_timestamp_is_stored() -> None:
    channels = Channels()
    for n in range(101):
        dated = channels.add((1, 7, 100 + n, float(n)), (0, 100 + n, 100 + n, 1.0))
        assert dated.gaps == []
    assert [(time, value) for (place, time), value in channels.table.items() if place == 1] == [
        (7, 0.0), *((100 + n, float(n)) for n in range(1, 101)),
    ]  # fmt: skip
    assert len(channels.table) == 202


def test_whole_seconds_at_10_hz_lose_nothing_and_stay_in_order() -> None:
    channels = Channels()
    for message in range(40):  # of 5 values each; the server is 120 ms later than the device
        ticks = range(message * 5 + 10, message * 5 + 15)
        channels.add(*((1, tick // 10 * 1000, tick * 100 + 120, float(tick)) for tick in ticks))
    samples = sorted((time, value) for (_, time), value in channels.table.items())
    assert [value for _, value in samples] == [float(tick) for tick in range(10, 210)]


def test_identical_repeat_is_dropped() -> None:
    channels = Channels()
    channels.add((1, 7, 100, 1.0))
    assert channels.add((1, 7, 110, 1.0), (0, 7, 7, 3.0)).keep.tolist() == [False, True]  # type: ignore[union-attr]
    channels.add((1, 7, 120, 2.0))
    channels.add((1, 7, 130, 2.0))
    assert channels.table == {(1, 7): 1.0, (0, 7): 3.0, (1, 120): 2.0}


def test_message_that_comes_again_gives_the_same_samples() -> None:
    channels = Channels()
    messages = [[(1, 7, 100 + 10 * n + k, float(n + k)) for k in range(3)] for n in range(4)]
    channels.date(messages[0])  # it was not stored
    for message in messages:
        channels.add(*message)
    table = dict(channels.table)
    assert len(table) == 12
    for message in (messages[3], messages[0], messages[2], messages[3]):
        channels.add(*message)
    assert channels.table == table


def test_message_that_comes_late_is_dated_as_in_order() -> None:
    first, second, third = ([(1, 7, v, float(v % 2)) for v in at] for at in ((100, 101), (102, 103), (104, 105)))
    in_order, late = Channels(), Channels()
    for message in (first, second, third):
        in_order.add(*message)
    for message in (first, third, second):
        late.add(*message)
    assert late.table == in_order.table and len(late.table) == 6


def test_buffered_values_keep_their_source_timestamps() -> None:
    channels = Channels()
    channels.add((1, 100, 100, 1.0))
    channels.add((1, 50, 200, 2.0), (1, 60, 200, 3.0))
    assert channels.table == {(1, 100): 1.0, (1, 50): 2.0, (1, 60): 3.0}


def test_values_without_timestamps_keep_their_order() -> None:
    channels = Channels()
    channels.add((1, ARRIVAL, 0, 1.0), (1, ARRIVAL, 0, 2.0), (0, ARRIVAL, 0, 5.0), (1, ARRIVAL, 0, 3.0))
    channels.add((1, ARRIVAL + 100, 0, 4.0), arrival=ARRIVAL + 100)
    expected = {(1, ARRIVAL + n): 1.0 + n for n in range(3)} | {(0, ARRIVAL): 5.0, (1, ARRIVAL + 100): 4.0}
    assert channels.table == expected


@pytest.mark.parametrize("server", [0, 5, 7, 100])
def test_what_cannot_be_told_apart_is_one_gap(server: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("ingest.opcua.subscription.repeated_timestamps.monotonic", lambda: clock[0])
    channels, gaps, refused = Channels(), [], []
    for n in range(100):
        clock[0] += 0.1
        second = 7 + n // 10 * 1000
        frozen = server and server + n // 10 * 1000
        dated = channels.add((1, second, frozen, float(n)), (1, second, frozen, float(n)), (0, 8 + n, 0, 1.0))
        gaps += dated.gaps
        refused += [event.detail["refused"] for event in dated.conflicts]
        assert channels.state.ended() == []
    assert gaps == [(11, 7)]
    assert refused == [2, 4, 8, 16, 32, 64, 128]
    assert channels.state.gaps == 1
    clock[0] += 5
    channels.add((1, 20_000, 0, 1.0))
    clock[0] += 6
    channels.add((1, 21_000, 0, 2.0))
    assert channels.state.ended() == [([11], 20_000)]
    assert channels.state.gaps == 0 and channels.state.ended() == []


def test_restarted_process_goes_on_with_server_timestamps() -> None:
    before, after = Channels(), Channels()
    for n in range(3):
        before.add((1, 7, 100 + n, float(n)))
    after.table = before.table
    after.state.restore([11], [], 102)
    for n in range(3, 6):
        after.add((1, 7, 100 + n, float(n)))
    assert list(after.table.values()) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 4), st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
    max_size=6,
)


@given(st.lists(st.tuples(ROWS, st.booleans()), max_size=8))
def test_no_value_is_dropped_that_is_not_known(messages: list[tuple[list[Row], bool]]) -> None:
    """Whatever the timestamps: a value is stored, or an equal one of its channel is, or it is in a gap."""
    channels = Channels()
    with_gap: set[int] = set()
    known: set[tuple[int, bytes]] = set()
    for unsorted, durable in messages:
        rows = sorted(unsorted, key=lambda row: row[1])
        dated = channels.date(rows)
        keep = np.ones(len(rows), bool) if dated.keep is None else dated.keep
        with_gap |= {channel - 10 for channel, _ in dated.gaps}
        known |= {(row[0], np.float64(row[3]).tobytes()) for row, k in zip(rows, keep, strict=True) if k}
        for place in {row[0] for row in rows}:
            times = [int(t) for row, t, k in zip(rows, dated.time, keep, strict=True) if k and row[0] == place]
            assert len(set(times)) == len(times) or any(row[2] for row in rows), "two samples of one time"
        for row, k in zip(rows, keep, strict=True):
            assert k or row[0] in with_gap or (row[0], np.float64(row[3]).tobytes()) in known
        if durable:
            channels.stored(rows, dated)


def test_conflict_at_a_time_after_the_year_9999_is_recorded() -> None:
    channels, time = Channels(), 2**59  # µs, as a source timestamp of 64 bits can say
    (event,) = channels.add((1, time, 0, 0.5), (1, time, 0, 0.75)).conflicts
    assert event.detail["at"] == str(time)


@pytest.mark.parametrize("messages", [[[1.0, 2.0]], [[1.0], [2.0]], [[1.0, 2.0, 3.0]]])
def test_conflict_names_the_value_that_is_stored(messages: list[list[float]]) -> None:
    channels = Channels()
    channels.add((1, 6, 0, 0.5))
    conflicts: list[Event] = []
    for values in messages:
        later = [(1, 8, 0, 9.0)] if values is messages[-1] else []
        conflicts += channels.add(*((1, 7, 0, value) for value in values), *later).conflicts
    assert {event.detail["kept_value"] for event in conflicts} == {"1.0"}
    assert channels.table == {(1, 6): 0.5, (1, 7): 1.0, (1, 8): 9.0}


@pytest.mark.parametrize("messages", [[[(7, 1.0), (7, 2.0)], [(9, 3.0)]], [[(7, 1.0), (7, 2.0), (9, 3.0)]]])
def test_gap_of_a_single_refused_value_ends_with_the_next_sample(
    messages: list[list[tuple[int, float]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("ingest.opcua.subscription.repeated_timestamps.monotonic", lambda: clock[0])
    channels = Channels()
    channels.add((1, 6, 0, 0.5))
    gaps = [gap for rows in messages for gap in channels.add(*((1, at, 0, value) for at, value in rows)).gaps]
    clock[0] += 11
    assert (gaps, channels.state.ended()) == ([(11, 7)], [([11], 9)])
