"""The schedule of faults, what a report calls a failure, and a disk that fills up."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.paths import State
from history.rollups import RollupDifference
from lab.chaos.machines import faults as machines
from lab.chaos.report import Report, TrialOutcome
from lab.chaos.schedule import FAULTS, Fault, schedule, soak_schedule
from lab.chaos.settling import ClosedMinutes, RollupResult
from lab.chaos.soak import Soak, SoakResult, Usage, trends, unexplained
from simulator.compare_samples import Comparison


def report(gaps: list[dict[str, Any]] | None = None, quarantined: int = 0, **counts: int) -> Report:
    total = Comparison()
    for name, count in counts.items():
        setattr(total, name, count)
    steps = schedule(1, 60, FAULTS)
    return Report(1, 60.0, "simulator", {"opcua": total, "all": total}, steps, gaps or [], quarantined, 1.0, {})


@given(seed=st.integers(0, 2**31 - 1), seconds=st.floats(10, 600))
def test_schedule_follows_from_its_seed_and_ends_in_time(seed: int, seconds: float) -> None:
    steps = schedule(seed, seconds, FAULTS)
    assert steps == schedule(seed, seconds, FAULTS)
    assert [step.at for step in steps] == sorted(step.at for step in steps)
    for step in steps:
        least, longest = step.fault.seconds
        assert least <= step.seconds <= longest
        assert step.at + step.seconds <= seconds


@given(seed=st.integers(0, 2**31 - 1))
def test_faults_of_a_domain_never_overlap_and_take_turns(seed: int) -> None:
    steps = schedule(seed, 600, FAULTS)
    for domain in {fault.domain for fault in FAULTS}:
        of_lane = [step for step in steps if step.fault.domain == domain]
        assert all(a.at + a.seconds < b.at for a, b in pairwise(of_lane))
        kinds = sum(fault.domain == domain and not fault.ends_writer for fault in FAULTS)
        first = [step.fault for step in of_lane if not step.fault.ends_writer][:kinds]
        assert len(set(first)) == len(first)


@given(seed=st.integers(0, 2**31 - 1))
def test_schedule_leaves_the_writer_time_to_close_minutes(seed: int) -> None:
    ends = [step.at for step in schedule(seed, 3600, FAULTS) if step.fault.ends_writer]
    assert len(ends) > 5
    lives = [b - a for a, b in pairwise([*ends, 3600.0])]
    assert all(life >= 150 for life, end in zip(lives, ends, strict=True) if end // 240 < (end + life) // 240)
    assert all(end % 240 <= 90 for end in ends)


def test_short_schedule_stops_and_kills_the_writer() -> None:
    ends = {step.fault.name for step in schedule(1, 180, FAULTS) if step.fault.ends_writer}
    assert ends == {"writer killed", "writer stopped and started"}


def test_other_seeds_are_other_schedules() -> None:
    assert schedule(1, 600, FAULTS) != schedule(2, 600, FAULTS)


def test_longer_schedule_begins_like_a_shorter_one() -> None:
    short, long = schedule(4, 100, FAULTS), schedule(4, 300, FAULTS)
    assert set(short) < set(long)


def test_clean_report_has_no_failure() -> None:
    fine = report(published=10, stored=8, missing_recorded=2)
    assert fine.failures == []
    assert {key: fine.json()[key] for key in ("published", "stored", "missing_recorded", "missing_silent")} == {
        "published": 10, "stored": 8, "missing_recorded": 2, "missing_silent": 0,
    }  # fmt: skip


@pytest.mark.parametrize("count", ["duplicated", "invented", "altered", "missing_silent"])
def test_one_wrong_sample_is_a_failure(count: str) -> None:
    (failure,) = report(None, 0, **{count: 1}).failures
    assert failure.startswith("1 samples ")


def test_unrecovered_state_is_a_failure() -> None:
    fine = report()
    late = replace(fine, recovery_seconds=60.4, not_recovered=["polls of source load1 are late"])
    assert (fine.failures, late.failures) == ([], ["polls of source load1 are late 60 s after all faults"])


def test_differing_rollups_are_a_failure() -> None:
    difference = RollupDifference("samples_1m", "a", datetime(2026, 1, 1, tzinfo=UTC), None, "sum", 1.0, 2.0)
    wrong = replace(report(), rollups=RollupResult(ClosedMinutes(1, 5), differences=[difference]))
    assert wrong.failures == ["1 differences between rollups and samples"]
    assert wrong.json()["minutes_closed"] == {"minutes": 1, "rows": 5}


def test_writer_that_closes_no_minutes_is_a_failure() -> None:
    none, some = RollupResult(due=True), RollupResult(closed_after=ClosedMinutes(1, 5), due=True)
    assert replace(report(), rollups=none).failures == [
        "the writer closed no minute of the rollups, so this was not tested"
    ]
    assert replace(report(), rollups=some).failures == replace(report(), rollups=RollupResult()).failures == []


def test_cpu_load_faults_do_not_change_the_rest_of_a_schedule() -> None:
    before = [fault for fault in FAULTS if fault.domain != "machine"]
    steps = schedule(1, 3600, FAULTS)
    assert [step for step in steps if step.fault.domain != "machine"] == schedule(1, 3600, before)
    busy = [step for step in steps if step.fault.act == "busy"]
    assert len(busy) > 10
    assert {int(step.value) for step in busy} <= set(range(2, 10))


def test_open_gaps_and_quarantined_rows_are_failures() -> None:
    gap = {"reason": "stale", "gaps": 3, "backfilled": 0, "open": 2, "seconds": 1.0}
    assert report(gaps=[gap], quarantined=4).failures == ["4 rows in quarantine", "2 gaps still open"]


@pytest.mark.parametrize("faults", [FAULTS, machines.FAULTS], ids=["appliance", "machines"])
def test_fault_names_are_unique(faults: Sequence[Fault]) -> None:
    assert len({fault.name for fault in faults}) == len(faults)


@given(seed=st.integers(0, 2**31 - 1))
def test_each_machine_fails_once_alone_and_the_kinds_take_turns(seed: int) -> None:
    steps = machines.single_steps(seed)
    assert steps == machines.single_steps(seed)
    assert sorted(step.fault.name for step in steps) == sorted(fault.name for fault in machines.FAULTS)
    assert {step.fault.domain for step in steps[:3]} == {"member", "link", "server"}
    kinds = [step.fault.name.replace("2", "1") for step in steps]
    assert set(kinds[:19]) == set(kinds), "with one member or the other"


def test_sample_that_is_missing_after_a_single_fault_is_a_failure() -> None:
    step = machines.single_steps(1)[0]
    fine, wrong = (replace(report(), outcomes=[TrialOutcome(step, 1.0, missing, 0)]) for missing in (0, 3))
    assert fine.failures == []
    assert wrong.failures == [f"3 samples missing after {step.fault.name}, which was alone"]


@given(seed=st.integers(0, 2**31 - 1), minutes=st.integers(1, 90))
def test_a_soak_has_one_fault_in_each_minute(seed: int, minutes: int) -> None:
    steps = soak_schedule(seed, minutes * 60.0, FAULTS)
    assert steps == soak_schedule(seed, minutes * 60.0, FAULTS)
    assert [int(step.at // 60) for step in steps] == list(range(minutes))
    assert all(step.at + step.seconds <= 60 * (minute + 1) for minute, step in enumerate(steps))
    assert len({step.fault for step in steps[: len(FAULTS)]}) == min(minutes, len(FAULTS))


@given(slope=st.floats(-50, 50), levels=st.lists(st.floats(10, 500), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_a_trend_is_the_growth_with_age_whatever_a_process_began_with(
    slope: float, levels: list[float], seed: int
) -> None:
    noise = np.random.default_rng(seed)
    samples = [
        Usage(pid, age, level + slope * age / 3600 + noise.normal(0, 0.1), 20)
        for pid, level in enumerate(levels)
        for age in range(0, 3600, 15)
    ]
    memory, descriptors = trends(samples)["memory"], trends(samples)["descriptors"]
    assert abs(memory.slope - slope) < 6 * memory.error
    assert 0 < memory.error < 0.1
    assert (descriptors.median, descriptors.slope, descriptors.error) == (20, 0, 0)


def test_a_process_that_is_always_young_has_no_trend() -> None:
    assert math.isnan(trends([Usage(1, 60.0, 100.0, 20)] * 9)["memory"].slope)


def test_errors_in_the_logs_are_those_that_no_fault_explains(tmp_path: Path) -> None:
    (tmp_path / "writer.log").write_text(
        "2026-11-25 09:00:00.100 Z ERROR ingest.writer: before the soak\n"
        "2026-11-25 10:00:00.100 Z ERROR ingest.writer: during the fault\n"
        "2026-11-25 10:01:20.100 Z ERROR ingest.writer: right after it\n"
        "2026-11-25 10:30:00.100 Z WARNING ingest.writer: no error\n"
        "2026-11-25 10:31:00.100 Z ERROR ingest.writer: without a fault\n"
        "2026-11-25 11:30:00.100 Z ERROR ingest.writer: after the soak\n"
    )
    (tmp_path / "postgres.log.1").write_text(
        "2026-11-25 10:30:00.100 Z [7] plantlog_reader@plantlog ERROR:  canceling statement\n"
        "2026-11-25 10:30:00.100 Z [7] LOG:  checkpoint\n"
    )
    begin = datetime(2026, 11, 25, 10, tzinfo=UTC).timestamp()
    errors = unexplained(tmp_path, begin - 1800, begin + 3600, [(begin, begin + 10)])
    assert [error.partition(": ")[0] for error in errors] == ["postgres.log.1", "writer.log"]
    assert errors[1].endswith("without a fault")
    soaked = replace(report(), soak=SoakResult({}, errors))
    assert soaked.failures == ["2 errors in the logs that are about no fault"]


def test_a_soak_notes_when_its_faults_began_and_ended(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.log.mkdir(parents=True)
    soak = Soak(state)
    with soak.fault():
        line = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}.000 Z ERROR ingest: during the fault"
    (state.log / "writer.log").write_text(line)
    assert soak.result(time.time()).errors == []


def test_what_is_logged_after_a_soak_is_not_counted(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.log.mkdir(parents=True)
    soak = Soak(state)
    ahead = f"{datetime.now(UTC) + timedelta(minutes=10):%Y-%m-%d %H:%M:%S}.000 Z ERROR ingest: no fault"
    (state.log / "writer.log").write_text(ahead)
    assert soak.result(time.time()).errors == []
    assert soak.result(time.time() + 3600).errors == [f"writer.log: {ahead}"]
