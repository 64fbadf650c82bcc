"""Recorded gaps cover the time that collectors reported, also over restarts and with a disk that refuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from core.batch import Batch, EventBatch, Gap
from core.errors import SpoolError, SpoolFull
from core.timestamps import now_us
from ingest.appender import Notes
from ingest.gaps import Gaps
from ingest.status import SourceStatus
from tests.batches import gaps_of
from tests.memory_appender import MemoryAppender


class Disk(MemoryAppender):
    """Takes gaps only while it is told to."""

    refuses = False

    async def append(self, batch: Batch, notes: Notes | None = None, beside: Sequence[EventBatch] = ()) -> None:
        if self.refuses:
            raise SpoolFull("not now")
        await super().append(batch, notes, beside)

    def recorded(self) -> list[Gap]:
        """Gaps as they were appended, in order."""
        return gaps_of(self.batches)

    def rows(self) -> dict[tuple[int | None, int], Gap]:
        """Gaps that the table would have: by channel and start, the last revision."""
        each: dict[tuple[int | None, int], Gap] = {}
        for gap in self.recorded():
            for channel in gap.channel_ids if gap.channel_ids is not None else (None,):
                each[channel, gap.from_time] = gap
        return each

    def intervals(self, channel: int | None) -> list[tuple[int, int | None]]:
        """From and to of one channel's gaps, in order."""
        return sorted((at, gap.to_time) for (of, at), gap in self.rows().items() if of == channel)

    def times(self, channel: int | None, now: int, *, backfilled: bool = True) -> set[int]:
        """The units of time in one channel's gaps, with or without those that were backfilled."""
        gaps = [gap for (of, _), gap in self.rows().items() if of == channel and (backfilled or not gap.backfilled)]
        return {at for gap in gaps for at in range(gap.from_time, now if gap.to_time is None else gap.to_time)}


def status() -> SourceStatus:
    return SourceStatus(1, "plc", "modbus", "", 3)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def gaps(disk: Disk) -> Gaps:
    return Gaps(status(), disk)


async def test_channels_of_one_cause_share_a_gap() -> None:
    disk = Disk()
    shown = status()
    gaps = Gaps(shown, disk)
    await gaps.open(10, "poll_failed", "exception 6", [1, 2, 3])
    assert disk.recorded() == [Gap(10, None, "poll_failed", (1, 2, 3), "exception 6")]
    assert shown.open_gaps == 3 and gaps.open_since(2) == 10 and gaps.open_since() is None
    await gaps.close(20, [1, 3])
    assert disk.recorded()[1:] == [Gap(10, 20, "poll_failed", (1, 3), "exception 6")]
    assert shown.open_gaps == 1 and gaps.open_since(1) is None


async def test_channels_that_are_removed_are_missing_from_then_on(disk: Disk, gaps: Gaps) -> None:
    """Their open gaps end then. An empty gap would mean that nothing was missing."""
    await gaps.remove(5, [])
    await gaps.open(10, "poll_failed", "", [1])
    await gaps.remove(20, [1, 2, 3])
    assert disk.recorded()[1:] == [
        Gap(10, 20, "poll_failed", (1,), ""),
        Gap(20, 21, "removed", (2, 3), "removed from the configuration"),
    ]
    assert gaps.channels() == []


async def test_sample_from_the_future_ends_no_gap(disk: Disk, gaps: Gaps) -> None:
    future = now_us() + 2 * 86_400_000_000
    await gaps.open(10, "stale", "", [1])
    await gaps.close(future, [1])
    assert gaps.open_since(1) == 10
    await gaps.close(20, [1])
    await gaps.record(30, future, "overflow", "", [2])
    await gaps.open(future, "stale", "", [3])
    ends = [gap.to_time for gap in disk.recorded()]
    assert ends[:2] == [None, 20]
    assert ends[2] is not None and ends[2] <= now_us()
    since = gaps.open_since(3)
    assert since is not None and since <= now_us()


async def test_open_gap_is_not_opened_twice_nor_closed_twice(disk: Disk, gaps: Gaps) -> None:
    await gaps.close(5, [1])
    assert disk.recorded() == []
    await gaps.open(10, "poll_failed", "", [1])
    await gaps.open(15, "spool_full", "", [1, 2])
    assert disk.rows() == {
        (1, 10): Gap(10, None, "poll_failed", (1,)),
        (2, 15): Gap(15, None, "spool_full", (2,)),
    }


async def test_adjacent_gaps_of_one_reason_merge(disk: Disk, gaps: Gaps) -> None:
    await gaps.open(10, "poll_failed", "first", [1])
    await gaps.close(20, [1])
    await gaps.open(20, "poll_failed", "second", [1])
    await gaps.close(30, [1])
    await gaps.open(30, "spool_full", "", [1])  # of another reason
    await gaps.close(40, [1])
    await gaps.open(41, "spool_full", "", [1])  # not adjacent
    assert disk.intervals(1) == [(10, 30), (30, 40), (41, None)]


async def test_recorded_gaps_merge_as_opened_ones_do(disk: Disk, gaps: Gaps) -> None:
    await gaps.record(10, 20, "poll_missed", "", [1, 2])
    await gaps.record(20, 30, "poll_missed", "", [1])
    await gaps.open(30, "poll_missed", "", [1])
    await gaps.close(40, [1])
    assert disk.intervals(1) == [(10, 40)] and disk.intervals(2) == [(10, 20)]


async def test_gap_never_ends_before_it_begins(disk: Disk, gaps: Gaps) -> None:
    await gaps.open(10, "killed")
    await gaps.close(5)
    await gaps.record(10, 3, "stale", "", [1])
    assert disk.intervals(None) == [(10, 10)] and disk.intervals(1) == [(10, 10)]


async def test_source_gap_is_independent_of_channel_gaps(disk: Disk, gaps: Gaps) -> None:
    await gaps.open(10, "disconnected")
    await gaps.open(5, "refused", "", [1])
    await gaps.close(20)
    assert disk.intervals(None) == [(10, 20)] and disk.intervals(1) == [(5, None)]


async def test_cancelled_gap_means_nothing_was_missing(disk: Disk, gaps: Gaps) -> None:
    await gaps.open(10, "subscription_lost", "", [1, 2])
    await gaps.end_without_loss([1, 3])
    assert disk.intervals(1) == [(10, 10)] and disk.intervals(2) == [(10, None)]
    assert gaps.open_since(1) is None and not disk.intervals(3)


async def test_backfill_marks_the_same_gap(disk: Disk, gaps: Gaps) -> None:
    await gaps.record(10, 20, "disconnected")
    await gaps.backfilled(10, 20, "disconnected", "", None)
    assert disk.rows() == {(None, 10): Gap(10, 20, "disconnected", None, "", True)}


async def test_backfill_leaves_what_was_joined_with_a_gap(disk: Disk, gaps: Gaps) -> None:
    """Two lost notifications after the same data: the second gap contains the first, and what was before it."""
    for end in (30, 40):
        await gaps.record(20, end, "not_available", "", [1, 2])
        await gaps.record(10, 20, "not_available", "", [1, 2])
    await gaps.backfilled(10, 20, "not_available", "filled", [1])
    assert disk.intervals(1) == [(10, 20), (20, 40)]
    assert [gap.backfilled for (of, _), gap in sorted(disk.rows().items()) if of == 1] == [True, False]
    await gaps.backfilled(20, 40, "not_available", "filled", [1, 2])
    assert disk.intervals(1) == [(10, 20), (20, 40)]
    assert [gap.backfilled for (of, _), gap in sorted(disk.rows().items())] == [True, True, False, True]
    assert disk.intervals(2) == [(10, 20), (20, 40)]


async def test_backfill_leaves_an_open_gap_that_was_joined_with_a_gap(disk: Disk, gaps: Gaps) -> None:
    await gaps.record(10, 20, "disconnected")
    await gaps.record(20, 25, "disconnected")
    await gaps.open(25, "disconnected")
    await gaps.backfilled(12, 20, "disconnected", "filled", None)
    assert disk.intervals(None) == [(10, 12), (12, 20), (20, None)]
    gaps = Gaps(status(), disk)
    await gaps.end_without_loss()
    assert disk.intervals(None) == [(10, 12), (12, 20), (20, 25)]


async def test_open_gap_stays_open_after_a_restart(disk: Disk, gaps: Gaps) -> None:
    await gaps.open(10, "disconnected", "gone")
    await gaps.open(11, "refused", "illegal", [2])
    after = Disk(disk.notes)
    shown = status()
    again = Gaps(shown, after)
    assert (again.open_since(), again.open_since(2), shown.open_gaps) == (10, 11, 2)
    await again.open(50, "killed")  # it is on record already
    await again.close(60)
    await again.close(70, [2])
    assert after.rows() == {
        (None, 10): Gap(10, 60, "disconnected", None, "gone"),
        (2, 11): Gap(11, 70, "refused", (2,), "illegal"),
    }
    assert set(after.notes) == {"closed-gap:1", "gaps-said:1"}, "nothing is open; what ended last is known"


async def test_gap_refused_by_the_disk_is_written_with_the_next_one(disk: Disk, gaps: Gaps) -> None:
    disk.refuses = True
    await gaps.open(10, "spool_full", "", [1])
    await gaps.close(20, [1])
    await gaps.open(30, "spool_full", "", [1])
    assert disk.recorded() == [] and disk.notes == {}
    with pytest.raises(SpoolError, match="gaps of source"):
        await gaps.flush_or_raise()
    disk.refuses = False
    await gaps.flush_or_raise()
    assert disk.intervals(1) == [(10, 20), (30, None)]
    assert Gaps(status(), Disk(disk.notes)).open_since(1) == 30


async def test_metrics_count_all_gaps_and_open_gaps() -> None:
    shown = SourceStatus(1, "counted", "modbus", "", 3)
    gaps = Gaps(shown, Disk())
    await gaps.open(10, "poll_failed", "", [1, 2])
    await gaps.open(12, "poll_failed", "", [2, 3])
    await gaps.close(20, [1])
    assert REGISTRY.get_sample_value("plantlog_open_gaps", {"source": "counted"}) == 2
    counted = REGISTRY.get_sample_value("plantlog_gaps_total", {"source": "counted", "reason": "poll_failed"})
    assert counted == 2, "a gap of several channels counts once"


CHANNELS = (None, 1, 2)
REASONS = ("poll_failed", "poll_missed")
words = st.one_of(
    st.tuples(st.just("open"), st.integers(0, 4), st.sampled_from(REASONS)),
    st.tuples(st.just("close"), st.integers(0, 4), st.just("")),
    st.tuples(st.just("record"), st.integers(0, 4), st.sampled_from(REASONS)),
    st.tuples(st.just("fill"), st.integers(0, 4), st.just("")),
    st.tuples(st.sampled_from(["restart", "refuse", "take"]), st.just(0), st.just("")),
)


@given(st.lists(st.tuples(words, st.sampled_from(CHANNELS)), max_size=40))
async def test_recorded_gaps_equal_the_model(story: list[tuple[tuple[str, int, str], int | None]]) -> None:
    """By channel, the union of the recorded intervals is that of the reported ones, whatever happens in between.

    Time goes on with the story, as it does for a collector: no gap begins before what is known already. Each gap that
    ended is filled at some time after that.
    """
    disk = Disk()
    gaps = Gaps(status(), disk)
    expected: dict[int | None, set[int]] = {channel: set() for channel in CHANNELS}  # units of time
    filled: dict[int | None, set[int]] = {channel: set() for channel in CHANNELS}
    holes: dict[int | None, list[tuple[int, int]]] = {channel: [] for channel in CHANNELS}
    since: dict[int | None, int] = {}
    now = 0

    async def fill(channel: int | None) -> None:
        start, end = holes[channel].pop(0)
        await gaps.backfilled(start, end, REASONS[0], "", None if channel is None else [channel])
        filled[channel].update(range(start, end))

    for (word, step, reason), channel in story:
        of: Iterable[int] | None = None if channel is None else [channel]
        before, now = now, now + step
        if word == "open":
            await gaps.open(now, reason, "", of)
            since.setdefault(channel, now)
        elif word == "close":
            await gaps.close(now, of)
            if channel in since:
                expected[channel].update(range(since.pop(channel), now))
                holes[channel] += [(begin, now) for begin, _ in gaps.ended(now, of) if begin < now]
        elif word == "record" and channel not in since:
            await gaps.record(before, now, reason, "", of)
            expected[channel].update(range(before, now))
            holes[channel] += [(begin, now) for begin, _ in gaps.ended(now, of) if begin < now]
        elif word == "fill" and holes[channel]:
            await fill(channel)
        elif word in ("refuse", "take"):
            disk.refuses = word == "refuse"
            await gaps.flush()
        elif word == "restart" and not disk.refuses:
            gaps = Gaps(status(), disk)
    disk.refuses = False
    await gaps.flush()
    for channel in [channel for channel, some in holes.items() for _ in some]:
        await fill(channel)
    now += 1
    for channel, start in since.items():
        expected[channel].update(range(start, now))
        assert gaps.open_since(channel) is not None
    for channel in CHANNELS:
        assert disk.times(channel, now) == expected[channel], channel
        assert disk.times(channel, now, backfilled=False) >= expected[channel] - filled[channel], channel


async def test_empty_gap_extension_does_not_revoke_the_previous_gap(disk: Disk, gaps: Gaps) -> None:
    await gaps.open(10, "disconnected", "cut")
    await gaps.close(60)
    await gaps.open(55, "disconnected", "cut again")  # the subscription made at 60 had not published yet
    assert disk.intervals(None) == [(10, None)]
    gaps = Gaps(status(), disk)  # after a kill
    await gaps.end_without_loss()  # and it still had all
    assert disk.intervals(None) == [(10, 60)]


async def test_gap_of_another_reason_does_not_replace_the_previous_one(disk: Disk, gaps: Gaps) -> None:
    await gaps.record(10, 60, "not_available", "notification 7")
    gaps = Gaps(status(), disk)
    await gaps.open(10, "killed")  # nothing was published behind notification 7
    assert disk.intervals(None) == [(10, 60), (60, None)]
    await gaps.end_without_loss()
    assert disk.intervals(None) == [(10, 60), (60, 60)]


some = st.one_of(st.none(), st.sets(st.integers(1, 4), min_size=1))
together = st.tuples(
    st.sampled_from(["open", "close", "record", "forget", "restart", "clock"]),
    some,
    st.integers(0, 4),
    st.sampled_from(REASONS),
)


@given(st.lists(together, max_size=30))
async def test_shared_gaps_equal_individual_gaps(
    story: list[tuple[str, set[int] | None, int, str]],
) -> None:
    """The rows of all are those of each channel by itself, in a record of its own."""
    channels: tuple[int | None, ...] = (None, 1, 2, 3, 4)
    shared, alone = Disk(), {channel: Disk() for channel in channels}
    gaps, each = Gaps(status(), shared), {channel: Gaps(status(), disk) for channel, disk in alone.items()}
    now = 10
    for word, of, step, reason in story:
        before, now = now, now + step
        concerned: list[tuple[Gaps, set[int] | None]] = [(gaps, of)]
        concerned += [(each[None], None)] if of is None else [(each[c], {c}) for c in of]
        for record, which in concerned:
            if word == "open":
                await record.open(now, reason, "", which)
            elif word == "close":
                await record.close(now, which)
            elif word == "record":
                await record.record(before, now, reason, "", which)
            elif word == "forget":
                await record.end_without_loss(which)
        if word == "restart":
            gaps, each = Gaps(status(), shared), {channel: Gaps(status(), disk) for channel, disk in alone.items()}
        elif word == "clock" and of is None:
            for record in (gaps, *each.values()):
                await record.clock_set(now, now - 3, polled=False)
    for channel in channels:
        assert shared.intervals(channel) == alone[channel].intervals(channel), channel
        assert gaps.open_since(channel) == each[channel].open_since(channel)


async def test_cost_of_a_gap_does_not_grow_with_its_channels() -> None:
    words, notes = {}, {}
    for count in (10, 100_000):
        disk = Disk()
        gaps = Gaps(status(), disk)
        await gaps.open(10, "poll_failed", "busy", range(1, count))
        await gaps.open(11, "poll_failed", "busy", range(count, 2 * count))
        await gaps.close(20, range(1, count // 2))
        await gaps.record(20, 30, "poll_missed", "", range(1, count // 2))
        words[count] = len(disk.recorded())
        notes[count] = sum(len(name) + len(note) for name, note in disk.notes.items())
        again = Gaps(status(), Disk(disk.notes))
        assert again.open_since(count // 2) == 10 and again.open_since(count) == 11 and again.open_since(1) is None
    assert words[10] == words[100_000] == 4
    assert notes[100_000] < notes[10] + 30


async def test_withdrawn_gap_leaves_what_it_was_joined_with(disk: Disk, gaps: Gaps) -> None:
    await gaps.record(10, 20, "not_available", "")
    await gaps.record(20, 30, "not_available", "")
    await gaps.withdraw_recorded(20, 30, "not_available")
    assert disk.intervals(None) == [(10, 20)]
    await gaps.withdraw_recorded(10, 20, "not_available")
    assert disk.intervals(None) == [(10, 10)], "nothing was missing"
    await gaps.open(10, "disconnected", "")
    assert gaps.open_since() == 10, "it continues no gap that was withdrawn"
    await gaps.close(12)
    await gaps.record(50, 60, "not_available", "", [1])
    await gaps.record(70, 80, "stale", "", [1])
    await gaps.withdraw_recorded(50, 60, "not_available", [1])
    assert disk.intervals(1) == [(50, 50), (70, 80)]
