"""Gaps while our clock is set."""

from __future__ import annotations

from itertools import pairwise

import pytest

from core.batch import GapBatch
from ingest.gaps import Gaps
from tests.unit.ingest.test_gaps import Disk, status


@pytest.mark.parametrize("reason", ["disconnected", "stopped"])
async def test_gap_that_begins_before_the_last_one_is_not_part_of_it(reason: str) -> None:
    """The source's clock was set back in between."""
    disk = Disk()
    gaps = Gaps(status(), disk)
    await gaps.record(100, 110, "disconnected")
    await gaps.open(40, reason)
    await gaps.close(45)
    assert disk.intervals(None) == [(40, 45), (100, 110)]


async def test_repeated_times_are_a_gap_until_the_clock_has_caught_up() -> None:
    disk = Disk()
    gaps = Gaps(status(), disk)
    await gaps.clock_set(1000, 400)
    assert disk.intervals(None) == [(400, 1000)]
    gaps = Gaps(status(), Disk(disk.notes))  # a process started since knows of it
    gaps = Gaps(status(), disk)
    await gaps.clock_set(500, 450)  # set back again, before it had caught up
    assert disk.intervals(None) == [(400, 500), (450, 1000)]
    await gaps.clock_set(600, 1200)  # set right: no time is between 1000 and 1200
    assert disk.intervals(None) == [(400, 500), (450, 600), (1000, 1200)]
    await gaps.clock_set(1300, 1500)
    assert disk.intervals(None) == [(400, 500), (450, 600), (1000, 1200), (1300, 1500)]
    assert {gap.reason for gap in disk.recorded()} == {"clock_set"}


async def test_clock_set_forward_is_no_gap_of_an_unpolled_source() -> None:
    disk = Disk()
    gaps = Gaps(status(), disk)
    await gaps.clock_set(1000, 2000, polled=False)
    assert not disk.recorded()
    await gaps.clock_set(2100, 1900, polled=False)
    assert disk.intervals(None) == [(1900, 2100)]


async def test_gap_open_during_a_clock_set_back_closes_with_the_next_sample() -> None:
    disk = Disk()
    gaps = Gaps(status(), disk)
    await gaps.record(700, 800, "poll_missed")  # with times that come again
    await gaps.open(900, "disconnected", "gone")
    await gaps.open(300, "refused", "illegal", [2])
    await gaps.open(950, "poll_failed", "busy", [3])
    await gaps.clock_set(1000, 400)
    await gaps.close(420)
    await gaps.close(430, [2, 3])
    assert disk.intervals(None) == [(400, 1000), (401, 420), (700, 800), (900, 1000)]
    assert disk.intervals(2) == [(300, 430)], "it began before the times that come again, and just goes on"
    assert disk.intervals(3) == [(401, 430), (950, 1000)]
    await gaps.open(600, "poll_missed")
    assert gaps.open_since() == 600, "what ended with the old times is not gone on with"


async def test_later_statement_wins_although_the_clock_was_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table keeps what has the highest revision: a gap that was closed an hour before it was opened stays open."""
    disk = Disk()
    monkeypatch.setattr("ingest.gaps.now_us", lambda: 9_000_000)
    gaps = Gaps(status(), disk)
    await gaps.open(10, "poll_failed", "busy", [1, 2])
    await gaps.open(10, "poll_failed", "too", [3])
    monkeypatch.setattr("ingest.gaps.now_us", lambda: 5_000_000)
    await gaps.close(20, [1, 2])
    gaps = Gaps(status(), disk)  # nor in a process that was started since
    await gaps.close(20, [3])
    received = [(b.received_at, len(b)) for b in disk.batches if isinstance(b, GapBatch)]
    assert all(after >= before + n for (before, n), (after, _) in pairwise(received))
