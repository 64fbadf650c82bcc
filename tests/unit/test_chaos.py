"""The schedule of faults, what a report calls a failure, and a disk that fills up."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.chaos.act import act
from ops.chaos.report import Report
from ops.chaos.rollups import Closed, Rollups
from ops.chaos.schedule import FAULTS, Step, schedule
from ops.rollups.verify import Difference
from simulator.compare import Comparison
from tests.patience import PATIENCE


def report(gaps: list[dict[str, Any]] | None = None, quarantined: int = 0, **counts: int) -> Report:
    total = Comparison()
    for name, count in counts.items():
        setattr(total, name, count)
    steps = schedule(1, 60, FAULTS)
    return Report(1, 60.0, "simulator", {"opcua": total, "all": total}, steps, gaps or [], quarantined, 1.0, {})


@given(seed=st.integers(0, 2**31 - 1), seconds=st.floats(10, 600))
def test_a_schedule_follows_from_its_seed_and_is_over_in_time(seed: int, seconds: float) -> None:
    steps = schedule(seed, seconds, FAULTS)
    assert steps == schedule(seed, seconds, FAULTS)
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    for step in steps:
        least, longest = step.fault.seconds
        assert least <= step.seconds <= longest
        assert step.at + step.seconds <= seconds


@given(seed=st.integers(0, 2**31 - 1))
def test_faults_of_a_lane_never_overlap_and_each_comes_before_any_comes_again(seed: int) -> None:
    steps = schedule(seed, 600, FAULTS)
    for lane in {fault.lane for fault in FAULTS}:
        of_lane = [step for step in steps if step.fault.lane == lane]
        assert all(a.at + a.seconds < b.at for a, b in pairwise(of_lane))
        kinds = sum(fault.lane == lane for fault in FAULTS)
        first = [step.fault for step in of_lane[:kinds]]
        assert len(set(first)) == len(first)


def test_other_seeds_are_other_schedules() -> None:
    assert schedule(1, 600, FAULTS) != schedule(2, 600, FAULTS)


def test_a_longer_run_begins_as_a_shorter_one() -> None:
    short, long = schedule(4, 100, FAULTS), schedule(4, 300, FAULTS)
    assert set(short) < set(long)


def test_nothing_wrong_is_no_failure() -> None:
    fine = report(published=10, stored=8, missing_recorded=2)
    assert fine.failures == []
    assert {key: fine.json()[key] for key in ("published", "stored", "missing_recorded", "missing_silent")} == {
        "published": 10, "stored": 8, "missing_recorded": 2, "missing_silent": 0,
    }  # fmt: skip


@pytest.mark.parametrize("count", ["duplicated", "invented", "altered", "missing_silent"])
def test_one_sample_that_is_wrong_is_a_failure(count: str) -> None:
    (failure,) = report(None, 0, **{count: 1}).failures
    assert failure.startswith("1 samples ")


def test_what_is_not_as_before_in_the_end_is_a_failure() -> None:
    fine = report()
    late = replace(fine, calm_seconds=60.4, not_calm=["polls of source load1 are late"])
    assert (fine.failures, late.failures) == ([], ["polls of source load1 are late 60 s after all faults"])


def test_rollups_that_differ_are_a_failure() -> None:
    difference = Difference("samples_1m", "a", datetime(2026, 1, 1, tzinfo=UTC), None, "sum", 1.0, 2.0)
    wrong = replace(report(), rollups=Rollups(Closed(1, 5), differences=[difference]))
    assert wrong.failures == ["1 differences between rollups and samples"]
    assert wrong.json()["minutes_closed"] == {"minutes": 1, "rows": 5}


def test_busy_processors_change_nothing_of_what_a_seed_did_before() -> None:
    before = [fault for fault in FAULTS if fault.lane != "machine"]
    steps = schedule(1, 3600, FAULTS)
    assert [step for step in steps if step.fault.lane != "machine"] == schedule(1, 3600, before)
    busy = [step for step in steps if step.fault.act == "busy"]
    assert len(busy) > 10
    assert {int(step.value) for step in busy} <= set(range(2, 10))


async def test_busy_processes_lead_sessions_of_their_own_and_end() -> None:
    (fault,) = [fault for fault in FAULTS if fault.act == "busy"]
    playing = asyncio.create_task(act(Step(0.0, fault, 60.0, 2.7), None))  # type: ignore[arg-type]
    ours = psutil.Process()
    async with asyncio.timeout(PATIENCE):
        while len(found := [p for p in ours.children() if "while True: pass" in p.cmdline()]) < 2:
            await asyncio.sleep(0.02)
    assert [os.getsid(process.pid) for process in found] == [process.pid for process in found]
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    assert not any(process.is_running() for process in found)


def test_what_stays_open_or_was_refused_is_a_failure() -> None:
    gap = {"reason": "stale", "gaps": 3, "backfilled": 0, "open": 2, "seconds": 1.0}
    assert report(gaps=[gap], quarantined=4).failures == ["4 rows in quarantine", "2 gaps still open"]


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
