"""Gaps of polls that came late: few, however many channels there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random

import numpy as np
import pytest

from core.batch import STANDBY, Gap
from ingest.modbus.poll import Failure, Poll
from ingest.modbus.poll_writer import PollWriter
from ingest.status import SourceStatus
from tests.batches import gaps_of
from tests.memory_appender import MemoryAppender

N, BLOCK, SECOND = 5000, 125, 1_000_000
ALL = range(N // BLOCK)


def poll(at: int, blocks: Iterable[int] = ALL) -> Poll:
    """Blocks of 125 tags, read a millisecond after each other."""
    made = Poll(at)
    for k in blocks:
        made.at = at + 1000 * k
        tags = np.arange(k * BLOCK, (k + 1) * BLOCK, dtype=np.int32)
        made.read(tags, made.at)
        made.add(tags, made.at, np.zeros(BLOCK), 0)
    return made


async def written(*polls: Poll, intervals: Iterable[float] = (1.0,) * N) -> tuple[MemoryAppender, list[Gap]]:
    spool = MemoryAppender()
    status = SourceStatus(1, "plc", "modbus", "", N)
    writer = PollWriter(status, np.arange(1, N + 1, dtype=np.int32), list(intervals), spool, 0)
    running = asyncio.create_task(writer.run())
    for each in polls:
        writer.add(each)
        await asyncio.sleep(0)
    writer.stop()
    await running
    assert sum(len(notes) for notes in spool.notes.values()) < 200
    return spool, gaps_of(spool.batches)


def at_rest(last: int) -> list[Poll]:
    return [poll(k * SECOND) for k in range(1, last + 1)]


async def test_stall_is_one_gap_of_the_source() -> None:
    _, recorded = await written(*at_rest(5), poll(60 * SECOND), poll(61 * SECOND))
    assert recorded == [Gap(5 * SECOND + 39_000, 60 * SECOND + 39_000, "poll_missed", None, "polls came late")]


async def test_consecutive_stalls_are_one_gap() -> None:
    _, recorded = await written(*at_rest(2), *(poll(at * SECOND) for at in (10, 17, 30, 41, 42, 43)))
    assert {gap.from_time for gap in recorded} == {2 * SECOND + 39_000}
    assert recorded[-1].to_time == 41 * SECOND + 39_000


async def test_channels_with_different_silences_share_the_common_gap() -> None:
    """One half is late; the other was read all the time."""
    late, read = [k for k in ALL if k % 2], [k for k in ALL if k % 2 == 0]
    _, recorded = await written(*at_rest(3), *(poll(k * SECOND, read) for k in range(4, 9)), poll(9 * SECOND))
    (gap,) = recorded
    assert gap.channel_ids == tuple(c + 1 for k in late for c in range(k * BLOCK, (k + 1) * BLOCK))
    assert (gap.from_time, gap.to_time) == (3 * SECOND + 39_000, 9 * SECOND + 39_000)


async def test_slowly_polled_channels_are_not_missing_with_the_others() -> None:
    slow = range(N // BLOCK // 2, N // BLOCK)
    intervals = [1.0] * (N // 2) + [60.0] * (N // 2)
    fast = range(N // BLOCK // 2)
    _, recorded = await written(*at_rest(3), poll(30 * SECOND, fast), poll(63 * SECOND, slow), intervals=intervals)
    assert [gap.channel_ids for gap in recorded] == [tuple(range(1, N // 2 + 1))]
    _, recorded = await written(*at_rest(3), poll(300 * SECOND, fast), poll(301 * SECOND, slow), intervals=intervals)
    assert [(gap.channel_ids, gap.to_time) for gap in recorded] == [(None, 300 * SECOND + 19_000)]


async def written_together(*polls: Poll) -> MemoryAppender:
    """The disk was busy: all of them wait."""
    spool = MemoryAppender()
    writer = PollWriter(
        SourceStatus(1, "plc", "modbus", "", N), np.arange(1, N + 1, dtype=np.int32), [1.0] * N, spool, 0
    )
    for each in polls:
        writer.add(each)
    writer.stop()
    await writer.run()
    return spool


def starved(seed: int) -> list[Poll]:
    """Five seconds at rest, a minute in which our process runs for moments only, and five at rest."""
    random = Random(seed)
    made, now, due, runs_to = [], 0.0, 1.0, 5.0 + random.random()
    while now < 70.0:
        now = max(now, due)
        due += 1 + int(now - due)
        each = Poll(round(now * SECOND))
        for k in ALL:
            now += 0.002
            if runs_to < now < 65.0:
                now += random.uniform(1.0, 8.0)
                runs_to = now + random.uniform(0.01, 0.3)
            each.at = round(now * SECOND)
            tags = np.arange(k * BLOCK, (k + 1) * BLOCK, dtype=np.int32)
            each.read(tags, each.at)
            each.add(tags, each.at, np.zeros(BLOCK), 0)
        made.append(each)
    return made


@pytest.mark.parametrize("seed", range(5))
async def test_blocks_that_were_silent_for_different_times_share_the_gaps_of_a_stall(seed: int) -> None:
    spool, _ = await written(*starved(seed))
    rows = {(channel, gap.from_time) for gap in spool.gaps() for channel in gap.channel_ids or (None,)}
    assert 1 <= len(rows) <= 30, "a channel each were 5000 and more"
    missing = sum((gap.to_time or 0) - gap.from_time for gap in spool.gaps())
    assert missing >= 45 * SECOND


async def test_lateness_of_polls_in_one_batch_is_relative_to_the_previous_poll() -> None:
    spool = await written_together(*at_rest(4), poll(9 * SECOND), poll(10 * SECOND))
    assert [(gap.channel_ids, gap.from_time, gap.to_time) for gap in spool.gaps()] == [
        (None, 4 * SECOND + 39_000, 9 * SECOND + 39_000)
    ]


async def test_pace_applies_from_the_poll_that_reported_it() -> None:
    """The silence before it is on record; what came before is not judged by it, though it was written later."""
    late = poll(16 * SECOND)
    late.paces.append((range(N), 6.0))
    spool = await written_together(*at_rest(4), poll(10 * SECOND), late, poll(22 * SECOND))
    assert [(gap.from_time, gap.to_time) for gap in spool.gaps()] == [(4 * SECOND + 39_000, 16 * SECOND + 39_000)]


async def test_ended_pace_excuses_no_later_silence() -> None:
    """The poll that is in time again stalls halfway, and so does the next one: two gaps of all channels."""
    slow, again, stalls = poll(SECOND), poll(20 * SECOND, range(20)), poll(23 * SECOND, range(20))
    slow.paces.append((range(N), 9.0))
    again.paces.append((range(N), 1.0))
    for made, at in ((again, 22 * SECOND), (stalls, 30 * SECOND)):
        rest = poll(at, range(20, 40))
        for tags, when in zip(*(np.split(column, 20) for column in rest.rounds[0].columns()), strict=True):
            made.read(tags, int(when[0]))
        made.at = rest.at
    spool = await written_together(slow, poll(10 * SECOND), poll(19 * SECOND), again, stalls)
    assert [(gap.channel_ids, gap.from_time, gap.to_time) for gap in spool.gaps()] == [
        (None, 20 * SECOND + 19_000, 22 * SECOND + 39_000),
        (None, 23 * SECOND + 19_000, 30 * SECOND + 39_000),
    ]


async def test_source_is_absent_until_the_first_poll_of_a_batch() -> None:
    spool = await written_together(
        *at_rest(2), Poll(3 * SECOND, lost="cut"), *(poll(k * SECOND) for k in range(10, 14))
    )
    assert [(gap.reason, gap.from_time, gap.to_time) for gap in spool.gaps()] == [
        ("disconnected", 2 * SECOND + 39_000, 10 * SECOND + 39_000)
    ]


async def test_an_outage_lasts_until_each_channel_that_was_due_is_read() -> None:
    """The device answers one block, and the rest in the next poll; every second half is read once a minute."""
    first, rest = range(1), range(1, N // BLOCK)
    _, recorded = await written(
        *at_rest(5), Poll(6 * SECOND, lost="cut"), poll(10 * SECOND, first), poll(11 * SECOND, rest)
    )
    assert [(gap.channel_ids, gap.from_time, gap.to_time) for gap in recorded if gap.to_time is not None] == [
        (None, 5 * SECOND + 39_000, 10 * SECOND),
        *((tuple(range(k * BLOCK + 1, (k + 1) * BLOCK + 1)), 10 * SECOND, 11 * SECOND + k * 1000) for k in rest),
    ]
    assert {gap.reason for gap in recorded} == {"disconnected"}

    failed, silent = (
        Poll(11 * SECOND, failures=[Failure(range(BLOCK, N), "poll_failed", "time-out")]),
        poll(10 * SECOND, first),
    )
    _, recorded = await written(*at_rest(5), Poll(6 * SECOND, lost="cut"), silent, failed, failed)
    of_rest = [(gap.reason, gap.from_time, gap.to_time) for gap in recorded if gap.channel_ids is not None]
    assert of_rest == [
        ("disconnected", 10 * SECOND, None),
        ("disconnected", 10 * SECOND, 10 * SECOND),
        ("poll_failed", 10 * SECOND, None),
    ]

    back = poll(12 * SECOND, first)
    back.failures += failed.failures
    _, recorded = await written(*at_rest(5), Poll(6 * SECOND, lost="cut"), failed, back)
    assert [(gap.channel_ids is None, gap.reason, gap.from_time, gap.to_time) for gap in recorded] == [
        (True, "disconnected", 5 * SECOND + 39_000, None),
        (False, "poll_failed", 12 * SECOND, None),
        (True, "disconnected", 5 * SECOND + 39_000, 12 * SECOND),
    ]

    intervals = [1.0] * (N // 2) + [60.0] * (N // 2)
    fast, slow = range(N // BLOCK // 2), range(N // BLOCK // 2, N // BLOCK)
    back, minute = poll(10 * SECOND, fast), poll(61 * SECOND, slow)
    _, recorded = await written(*at_rest(5), Poll(6 * SECOND, lost="cut"), back, minute, intervals=intervals)
    assert [gap.channel_ids for gap in recorded] == [None, None], "no poll of the slow ones was due"


async def test_an_outage_ends_where_the_device_refuses_every_tag() -> None:
    refusing = [
        Poll(at * SECOND, failures=[Failure(range(N), "refused", "exception 2: illegal data address")])
        for at in (10, 11)
    ]
    _, recorded = await written(*at_rest(5), Poll(6 * SECOND, lost="cut"), *refusing)
    assert [(gap.channel_ids is None, gap.reason, gap.from_time, gap.to_time) for gap in recorded] == [
        (True, "disconnected", 5 * SECOND + 39_000, None),
        (False, "refused", 10 * SECOND, None),
        (True, "disconnected", 5 * SECOND + 39_000, 10 * SECOND),
    ]
    cut = Poll(10 * SECOND, lost="cut", failures=refusing[0].failures)
    _, recorded = await written(*at_rest(5), Poll(6 * SECOND, lost="cut"), cut)
    assert [gap.to_time for gap in recorded] == [None], "it was away again before the poll ended"


async def test_time_in_which_the_other_member_polls_is_a_gap_of_its_own() -> None:
    """Also within an outage: a source that could not be reached is not read for another reason from then on."""
    standby = Poll(7 * SECOND, lost="the other member polls", lost_reason=STANDBY)
    _, recorded = await written(*at_rest(5), standby, Poll(20 * SECOND), poll(60 * SECOND))
    assert recorded[0] == Gap(5 * SECOND + 39_000, None, STANDBY, None, "the other member polls")
    assert recorded[1:] == [Gap(5 * SECOND + 39_000, 60 * SECOND + 39_000, STANDBY, None, "the other member polls")]

    lost = Poll(6 * SECOND, lost="no response"), Poll(90 * SECOND, lost="no response")
    _, recorded = await written(*at_rest(5), lost[0], standby, standby, lost[1], poll(100 * SECOND))
    ended = [(gap.from_time, gap.to_time, gap.reason) for gap in recorded if gap.to_time is not None]
    assert ended == [
        (5 * SECOND + 39_000, 7 * SECOND, "disconnected"),
        (7 * SECOND, 90 * SECOND, STANDBY),
        (90 * SECOND, 100 * SECOND + 39_000, "disconnected"),
    ]


@pytest.mark.parametrize("ending", ["killed", "stopped"])
async def test_an_outage_that_follows_a_downtime_at_once_is_a_gap_of_its_own(ending: str) -> None:
    """The next process begins at 30 s, and finds the network cut; the device is back at 60 s."""
    spool = MemoryAppender(
        {"heard:1": str(10 * SECOND), **({"stopped:1": str(10 * SECOND)} if ending == "stopped" else {})}
    )
    status = SourceStatus(1, "plc", "modbus", "", N)
    writer = PollWriter(status, np.arange(1, N + 1, dtype=np.int32), [1.0] * N, spool, 30 * SECOND)
    for each in (
        Poll(33 * SECOND, lost="time-out"),
        Poll(36 * SECOND, lost="time-out"),
        poll(60 * SECOND),
        poll(61 * SECOND),
    ):
        writer.add(each)
    writer.stop()
    await writer.run()
    assert spool.gaps() == [
        Gap(10 * SECOND, 30 * SECOND, ending, None, f"plantlog was {ending}"),
        Gap(30 * SECOND, 60 * SECOND + 39_000, "disconnected", None, "time-out"),
    ]


async def test_text_with_undecodable_bytes_is_uncertain() -> None:
    first, second = poll(SECOND), poll(2 * SECOND)
    first.texts, second.texts = [(0, SECOND, "AUTO")], [(0, 2 * SECOND, "AUT\ufffd")]
    spool, _ = await written(first, second)
    assert [(event.text, event.status) for event in spool.events("text")] == [("AUTO", 0), ("AUT\ufffd", 0x40000000)]
