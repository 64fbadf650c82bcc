"""Polls that come late at random: what goes on record is all of it, no more than that, and few words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from core.batch import Gap
from ingest.modbus.poll import Poll
from ingest.modbus.poll_writer import PollWriter
from ingest.status import SourceStatus
from tests.memory_appender import MemoryAppender

BLOCKS, SECOND = 8, 1_000_000
PAUSE = st.sampled_from([0.001] * 12 + [0.1, 0.4, 0.9, 1.4, 2.2, 5.0, 30.0])  # s, before an answer
ROUND = st.lists(PAUSE, min_size=1, max_size=BLOCKS).map(lambda some: (some * BLOCKS)[: max(2, len(some))])
WHOLE = st.lists(PAUSE, min_size=BLOCKS, max_size=BLOCKS)
SLOW = 10.0  # s, the interval of the last blocks where there are two


def polls(rounds: Sequence[Sequence[float]], intervals: Sequence[float]) -> Iterator[Poll]:
    """Each round: the pauses before its answers; one that has few of them is given up, and the next one goes on.

    Rounds are due at every interval, or as soon as the device is free.
    """
    now, turn = 0.0, 0
    due = dict.fromkeys(intervals, 1.0)
    for pauses in rounds:
        interval = min(due, key=lambda one: due[one])
        now = max(now, due[interval])
        due[interval] += interval * (1 + max(0, int((now - due[interval]) / interval)))
        blocks = [k for k in range(BLOCKS) if intervals[k] == interval]
        poll = Poll(round(now * SECOND))
        for pause in pauses[: len(blocks)]:
            now += pause
            turn += 1
            tags, at = np.array([2 * (k := blocks[turn % len(blocks)]), 2 * k + 1], np.int32), round(now * SECOND)
            poll.read(tags, at)
            poll.add(tags, at, np.zeros(2), 0)
            poll.at = at
        yield poll


async def _written(made: Sequence[Poll], intervals: Sequence[float], together: Sequence[bool]) -> MemoryAppender:
    spool = MemoryAppender()
    writer = PollWriter(
        SourceStatus(1, "plc", "modbus", "", 2 * BLOCKS),
        np.arange(2 * BLOCKS, dtype=np.int32),
        [interval for interval in intervals for _ in range(2)],
        spool,
        0,
    )
    running = asyncio.create_task(writer.run())
    for k, poll in enumerate(made):
        writer.add(poll)
        if not together[k % len(together)]:  # else the next one is written with it
            for _ in range(20):
                await asyncio.sleep(0)
        await writer.wait_for_room()
    writer.stop()
    await running
    return spool


def samples_and_gaps(
    rounds: Sequence[Sequence[float]], intervals: Sequence[float], together: Sequence[bool]
) -> tuple[Any, ...]:
    """Each channel's samples, the round that each was in ends, and gaps."""
    made = list(polls(rounds, intervals))
    reads = [[each.columns() for each in poll.rounds] for poll in made]
    spool = asyncio.run(_written(made, intervals, together))
    had: dict[int, list[tuple[int, int]]] = {c: [(0, 0)] for c in range(2 * BLOCKS)}
    for read in reads:
        for tags, at in read:
            for tag, when in zip(tags.tolist(), at.tolist(), strict=True):
                had[tag].append((when, int(at.max())))
    for c, times in had.items():
        assert [t for t, _ in times[1:]] == [t for t, _, _ in spool.samples(c)]
    return had, spool.gaps()


def of(channel: int, gaps: Sequence[Gap]) -> list[tuple[int, int]]:
    """Sorted, and apart from each other."""
    joined: list[tuple[int, int]] = []
    for gap in sorted(gaps, key=lambda gap: gap.from_time):
        assert gap.to_time is not None and gap.from_time < gap.to_time and gap.reason == "poll_missed"
        if gap.channel_ids is None or channel in gap.channel_ids:
            if joined and gap.from_time <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(joined[-1][1], gap.to_time)
            else:
                joined.append((gap.from_time, gap.to_time))
    return joined


def outside(since: int, until: int, gaps: Sequence[tuple[int, int]]) -> list[int]:
    """Lengths of the parts of an interval that are in no gap."""
    ends = [since, *(min(max(t, since), until) for gap in gaps for t in gap), until]
    return [end - begin for begin, end in zip(ends[::2], ends[1::2], strict=True)]


ROUNDS = st.lists(st.one_of(WHOLE, WHOLE, ROUND), min_size=1, max_size=25)
INTERVALS = st.sampled_from([(1.0,) * BLOCKS, (1.0,) * 5 + (SLOW,) * 3])


@given(
    st.lists(st.one_of(WHOLE, WHOLE, ROUND), min_size=1, max_size=25), INTERVALS, st.lists(st.booleans(), min_size=1)
)
@example([[0.001] * BLOCKS] * 4, (1.0,) * BLOCKS, [True])
@example([[0.001] * BLOCKS, [0.7] * BLOCKS, [0.7] * BLOCKS, [0.001] * BLOCKS], (1.0,) * BLOCKS, [False])
def test_every_silence_has_a_gap_and_every_gap_a_silence(
    rounds: list[list[float]], intervals: tuple[float, ...], together: list[bool]
) -> None:
    had, gaps = samples_and_gaps(rounds, intervals, together)
    for channel, times in had.items():
        period, known = round(intervals[channel // 2] * SECOND), of(channel, gaps)
        for (before, over), (after, _) in pairwise(times):
            assert max(outside(before, after, known)) <= 2 * period, f"{channel}: {before} to {after}, {known}"
            if after - before <= 1.1 * period:  # a gap may end with the last block of the poll
                begin = min(over, after)
                assert sum(outside(begin, after, known)) == after - begin, f"{channel}: {before} to {after}, {known}"
        assert all(end <= max(over for each in had.values() for _, over in each) for _, end in known)
