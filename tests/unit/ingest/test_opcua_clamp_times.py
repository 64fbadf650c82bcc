"""Values that are older than the change of their channel's node: each has the time of the change, until one is not."""

from __future__ import annotations

import numpy as np

from core.batch import Event, UInt32s
from ingest.opcua.decode.decoded import DataChange, Text
from ingest.opcua.subscription.tracking import ChannelTracking
from ingest.versions import ChannelVersions
from tests.memory_appender import MemoryAppender
from tests.unit.ingest.test_opcua_clocks import SECOND, START, TAGS


def columns(place: int, *times: int) -> DataChange:
    change = DataChange()
    change.handle.append(np.full(len(times), place, np.uint32))
    change.time.append(np.array(times, np.int64))
    change.time[0].flags.writeable = False  # as where it is a part of the notification
    return change


def events(tracking: ChannelTracking, change: DataChange) -> list[tuple[int | None, str | None, object]]:
    handles: UInt32s = np.concatenate([*change.handle, np.array([t.handle for t in change.texts], np.uint32)])
    events: list[Event] = tracking.origins(change, handles)
    return [(e.channel_id, e.text, e.detail.get("source_time")) for e in events]


def test_first_newer_source_timestamp_ends_clamping() -> None:
    tracking = ChannelTracking(TAGS)
    tracking.floor[:2] = START
    change = columns(1, START - 2 * SECOND, START, START - SECOND)
    tracking.clamp_times(change)
    assert change.time[0].tolist() == [START, START, START - SECOND]
    late = columns(1, START - SECOND)
    tracking.clamp_times(late)
    assert late.time[0].tolist() == [START - SECOND]
    other = columns(0, START - SECOND)
    tracking.clamp_times(other)
    assert other.time[0].tolist() == [START], "another channel's goes on"


def test_values_of_a_slow_clock_get_distinct_times() -> None:
    """One that is sent again is the same sample."""
    tracking = ChannelTracking(TAGS)
    tracking.floor[1] = START
    change = columns(1, START - 4 * SECOND, START - 3 * SECOND, START - 3 * SECOND, START - 2 * SECOND)
    tracking.clamp_times(change)
    assert change.time[0].tolist() == [START, START + 1, START + 1, START + 2]
    edited = ChannelTracking(TAGS, tracking)
    following = columns(1, START - SECOND)
    edited.clamp_times(following)
    assert following.time[0].tolist() == [START + 3]
    edited.floor[1] = START + 9 * SECOND
    anew = columns(1, START)
    edited.clamp_times(anew)
    assert anew.time[0].tolist() == [START + 9 * SECOND], "of another change"


def test_each_replaced_timestamp_is_recorded() -> None:
    tracking = ChannelTracking(TAGS)
    tracking.floor[1] = START
    for old in ((START - 3 * SECOND, START - 2 * SECOND), (START - SECOND,)):
        change = columns(1, *old)
        tracking.clamp_times(change)
        assert events(tracking, change) == [(11, "change", time) for time in old]
    text = DataChange(texts=[Text(1, "on", 0, START - 5 * SECOND, "String")])
    tracking.clamp_times(text)
    assert events(tracking, text) == [(11, "change", START - 5 * SECOND)]
    now = columns(1, START + SECOND)
    tracking.clamp_times(now)
    assert events(tracking, now) == [(11, "source", None)]


async def test_next_process_knows_that_clamping_ended() -> None:
    """Older values stay those of another node, as for the history."""
    spool = MemoryAppender()
    versions = ChannelVersions("s", 1, spool)
    versions.start(10, 1, START, new_address=True)
    versions.start(11, 1, START, new_address=True)
    await versions.flush()
    await versions.floor_reached({10: START})
    again = ChannelVersions("s", 1, MemoryAppender(spool.notes))
    assert (again.pending_floor(10), again.floor(10)) == (0, START)
    assert (again.pending_floor(11), again.floor(11)) == (START, START)
    again.start(10, 2, START + SECOND)
    assert (again.pending_floor(10), again.floor(10)) == (0, START)
    again.start(10, 3, START + 2 * SECOND, new_address=True)
    await again.flush()
    await again.floor_reached({10: START})
    assert again.pending_floor(10) == START + 2 * SECOND, "of a change before"
