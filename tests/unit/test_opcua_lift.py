"""Values that are older than the change of their channel's node: each has the time of the change, until one is not."""

from __future__ import annotations

import numpy as np

from ingest.batch import Event, UInt32s
from ingest.opcua.data_change import DataChange, Text
from ingest.opcua.tracking import Tracking
from ingest.versions import Versions
from tests.appender import Kept
from tests.unit.test_opcua_clocks import SECOND, START, TAGS


def columns(place: int, *times: int) -> DataChange:
    change = DataChange()
    change.handle.append(np.full(len(times), place, np.uint32))
    change.time.append(np.array(times, np.int64))
    change.time[0].flags.writeable = False  # as where it is a part of the notification
    return change


def events(tracking: Tracking, change: DataChange) -> list[tuple[int | None, str | None, object]]:
    handles: UInt32s = np.concatenate([*change.handle, np.array([t.handle for t in change.texts], np.uint32)])
    said: list[Event] = tracking.origins(change, handles)
    return [(e.channel_id, e.text, e.detail.get("source_time")) for e in said]


def test_the_first_value_that_is_not_older_ends_it() -> None:
    tracking = Tracking(TAGS)
    tracking.floor[:2] = START
    change = columns(1, START - 2 * SECOND, START, START - SECOND)
    tracking.lift(change)
    assert change.time[0].tolist() == [START, START, START - SECOND]
    late = columns(1, START - SECOND)
    tracking.lift(late)
    assert late.time[0].tolist() == [START - SECOND]
    other = columns(0, START - SECOND)
    tracking.lift(other)
    assert other.time[0].tolist() == [START], "another channel's goes on"


def test_values_of_a_clock_that_is_behind_are_kept_apart() -> None:
    """One that is sent again is the same sample."""
    tracking = Tracking(TAGS)
    tracking.floor[1] = START
    change = columns(1, START - 4 * SECOND, START - 3 * SECOND, START - 3 * SECOND, START - 2 * SECOND)
    tracking.lift(change)
    assert change.time[0].tolist() == [START, START + 1, START + 1, START + 2]
    edited = Tracking(TAGS, tracking)
    following = columns(1, START - SECOND)
    edited.lift(following)
    assert following.time[0].tolist() == [START + 3]
    edited.floor[1] = START + 9 * SECOND
    anew = columns(1, START)
    edited.lift(anew)
    assert anew.time[0].tolist() == [START + 9 * SECOND], "of another change"


def test_each_replaced_time_is_said() -> None:
    tracking = Tracking(TAGS)
    tracking.floor[1] = START
    for old in ((START - 3 * SECOND, START - 2 * SECOND), (START - SECOND,)):
        change = columns(1, *old)
        tracking.lift(change)
        assert events(tracking, change) == [(11, "change", time) for time in old]
    text = DataChange(texts=[Text(1, "on", 0, START - 5 * SECOND, "String")])
    tracking.lift(text)
    assert events(tracking, text) == [(11, "change", START - 5 * SECOND)]
    now = columns(1, START + SECOND)
    tracking.lift(now)
    assert events(tracking, now) == [(11, "source", None)]


async def test_the_next_process_knows_that_it_ended() -> None:
    """What is older stays another node's, as for the history."""
    kept = Kept()
    versions = Versions("s", 1, kept)
    versions.begin(10, 1, START, another_place=True)
    versions.begin(11, 1, START, another_place=True)
    await versions.say()
    await versions.reached({10: START})
    again = Versions("s", 1, Kept(kept.notes))
    assert (again.lift(10), again.floor(10)) == (0, START)
    assert (again.lift(11), again.floor(11)) == (START, START)
    again.begin(10, 2, START + SECOND)
    assert (again.lift(10), again.floor(10)) == (0, START)
    again.begin(10, 3, START + 2 * SECOND, another_place=True)
    await again.say()
    await again.reached({10: START})
    assert again.lift(10) == START + 2 * SECOND, "of a change before"
