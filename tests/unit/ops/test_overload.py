"""Beginning and end of overload, its report, and the jobs that maintenance defers for it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.paths import CHECKOUT
from core.process.scheduling import NICE
from ops.maintenance.jobs import jobs
from ops.maintenance.overload.measure import Pressure, _pace, total_backlog
from ops.maintenance.overload.state import Indicators, Overload, Threshold, describe
from ops.maintenance.throttle import MAX_LAG, Throttle
from schema.queries import load
from tests.waiting import PATIENCE


def seen(overload: Overload, *looks: Indicators, reachable: bool = True) -> list[int]:
    """The looks with which it changes."""
    return [i for i, look in enumerate(looks) if overload.update(look, reachable)]


def test_overload_begins_when_ingest_is_behind_for_seconds_and_ends_by_itself() -> None:
    overload = Overload()
    lags = [0, 6, 0, 6, 7, 9, 4, 2, 1, 1, 1, 1, 1, 1]
    assert seen(overload, *(Indicators(100.0 + i, lag=lag) for i, lag in enumerate(lags))) == [5, 12]
    assert overload.since is None
    assert overload.worst.lag == 9


def test_overload_begins_with_the_first_observation_of_it() -> None:
    overload = Overload()
    seen(overload, *(Indicators(100.0 + i, lag=6) for i in range(3)))
    assert overload.since == 100.0


def test_late_polls_are_overload_only_where_the_machine_is_short_of_processors() -> None:
    slow_device = [Indicators(float(i), pressure=0.2, pace=2.4) for i in range(20)]
    assert seen(Overload(), *slow_device) == []
    starved = [Indicators(float(i), pressure=0.95, pace=2.4) for i in range(20)]
    assert seen(Overload(), *starved) == [4]
    busy_and_in_time = [Indicators(float(i), pressure=0.95) for i in range(20)]
    assert seen(Overload(), *busy_and_in_time) == []


def test_backlog_for_an_unreachable_database_is_no_overload() -> None:
    assert seen(Overload(), *(Indicators(float(i), lag=60) for i in range(20)), reachable=False) == []


@given(st.lists(st.floats(0, 10), min_size=1, max_size=60))
def test_overload_changes_need_the_configured_number_of_observations(values: list[float]) -> None:
    threshold = Threshold(5.0, 1.5, 3, 4)
    for at, value in enumerate(values):
        was = threshold.since
        if threshold.update(value, float(at)):
            last = values[at - 2 : at + 1] if was is None else values[at - 3 : at + 1]
            assert all(v >= 5.0 for v in last) if was is None else all(v < 1.5 for v in last)
            assert threshold.since in (None, float(at - 2))


def test_overload_is_described_in_one_sentence() -> None:
    report = {"since": 43_390.0, "lag_seconds": 8.0, "pace_seconds": 2.4, "cpu_pressure": 1.0, "spool_bytes": 1}
    output = "overloaded since 12:03:10 UTC, polls every 2.4 s, lag 8.0 s, CPU pressure 100 %"
    assert describe(report, ["rollups", "seal"]) == f"{output}; waiting: rollups, seal"
    assert describe(report | {"pace_seconds": 0.0}) == output.replace(", polls every 2.4 s", "")
    assert describe(report | {"since": None}) == describe(None) == ""


def test_overload_lag_is_that_of_the_oldest_live_batch(tmp_path: Path) -> None:
    now = int(time.time() * 1e6)
    for name, seconds in (("opcua", [3, 1]), ("modbus", []), ("opcua.backfill", [500])):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as spool:
            spool.create_function("first_sequence", 0, lambda: 1)
            spool.executescript(load("spool")["create_tables"])
            for i, ago in enumerate(seconds):
                row = (i + 1, 1, "samples", 1, now - ago * 1_000_000, 0, 0, 0, b"")
                spool.execute(load("spool")["insert_batch"], row)
            spool.commit()
    (tmp_path / "push.sqlite").write_bytes(b"")  # it is just being made
    assert 3 <= total_backlog(tmp_path).seconds < 60
    assert total_backlog(tmp_path / "none").seconds == 0


def test_pressure_is_the_share_of_time_with_waiting_tasks(tmp_path: Path) -> None:
    file = tmp_path / "cpu.pressure"
    file.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0.00 total=0\n")
    pressure = Pressure([file, tmp_path / "none"])
    assert pressure.sample() == 0
    file.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=999000000\nfull avg10=0.00 total=0\n")
    assert pressure.sample() == 1
    assert pressure.sample() == 0


@pytest.mark.parametrize(
    ("source", "pace"),
    [
        ({"state": "connected", "pace_seconds": 2.4, "due_at": 99_500_000}, 2.4),
        ({"state": "degraded", "pace_seconds": 0.0, "due_at": 80_000_000}, 20.0),  # a poll that goes on and on
        ({"state": "connected", "pace_seconds": 0.0, "due_at": 99_000_000}, 0.0),
        ({"state": "connected", "pace_seconds": 0.0, "due_at": 130_000_000}, 0.0),
        ({"state": "connected", "pace_seconds": 0.0, "due_at": 0}, 0.0),
        ({"state": "disconnected", "pace_seconds": 3.0, "due_at": 1_000_000}, 0.0),
        ({"state": "connected"}, 0.0),
    ],
)
def test_slow_poll_counts_before_a_pace_is_known(source: dict[str, Any], pace: float) -> None:
    assert _pace(source, 100.0) == pytest.approx(pace)


def test_load_average_is_used_without_pressure_information() -> None:
    assert 0 <= Pressure([Path("/nonexistent")]).sample() <= 1


def test_only_deferrable_jobs_wait() -> None:
    names = [job.name for job in jobs()]
    assert [name for name in names if name in MAX_LAG] == list(MAX_LAG)
    never = {"retain", "readers", "logins", "presence", "ahead", "trim", "storage", "certificate", "backup", "rehearse"}
    assert never == set(names) - set(MAX_LAG)
    yielding = Throttle()
    for second in range(10):
        yielding.observe(Indicators(float(second), pressure=1.0, lag=600.0))
    assert {name for name in names if yielding.wait_reason(name)} == set(MAX_LAG)
    assert not any(yielding.waits(name) for name in never)


def test_jobs_are_deferred_in_their_order() -> None:
    yielding = Throttle()
    waiting_at = []
    for lag in (0.0, *MAX_LAG.values()):
        yielding.observe(Indicators(lag, lag=lag))
        waiting_at.append([name for name in MAX_LAG if yielding.wait_reason(name)])
    assert waiting_at == [list(MAX_LAG)[:n] for n in range(len(MAX_LAG) + 1)]


def test_polls_late_for_lack_of_cpu_count_as_ingest_lag() -> None:
    slow_device, starved = Throttle(), Throttle()
    for second in range(10):
        slow_device.observe(Indicators(float(second), pressure=0.1, pace=6.0))
        starved.observe(Indicators(float(second), pressure=1.0, pace=6.0))
    assert [slow_device.wait_reason(job) for job in MAX_LAG] == [""] * len(MAX_LAG)
    assert all(starved.wait_reason(job).startswith("waits: ingest has been behind since") for job in MAX_LAG)


async def test_running_job_is_asked_to_yield_and_the_next_waits() -> None:
    yielding = Throttle()
    async with yielding.turn("compress") as stop_requested:
        for second in range(3):
            yielding.observe(Indicators(float(second), lag=4.0))
        assert not stop_requested.is_set(), "it may end its slice"
        yielding._turns.copy().pop().began -= 600
        yielding.observe(Indicators(3.0, lag=4.0))
        assert stop_requested.is_set()
    assert yielding.waits("compress")
    assert yielding.wait_reason("compress").startswith("waits: ingest has been behind since 00:00:00 UTC")
    waits = asyncio.create_task(yielding.turn("rollups").__aenter__())
    await asyncio.sleep(0.05)
    assert not waits.done()
    for second in range(3):
        yielding.observe(Indicators(10.0 + second, lag=0.1))
    async with asyncio.timeout(PATIENCE):
        await waits


async def test_constantly_overloaded_machine_still_gives_jobs_turns() -> None:
    """A slice, nine times as long a pause, and slices that double as long as they are not enough."""
    yielding = Throttle()
    for cuts in range(4):
        yielding.observe(Indicators(float(cuts), lag=600.0))
        yielding._free_at = 0.0  # the pause is over
        async with asyncio.timeout(PATIENCE), yielding.turn("compress") as stop_requested:
            (turn,) = yielding._turns
            turn.began -= 5.0 * 2**cuts - 4
            yielding.observe(Indicators(float(cuts), lag=600.0))
            assert not stop_requested.is_set()
            turn.began -= 4
            yielding.observe(Indicators(float(cuts), lag=600.0))
            assert stop_requested.is_set()

        pause = yielding._free_at - time.monotonic()
        assert pause == pytest.approx(9 * 5.0 * 2**cuts, abs=20)


@pytest.mark.parametrize("before", [0, 19])
def test_lower_priority_never_lowers_the_nice_value(before: int) -> None:
    code = (
        "import os; from core.process.scheduling import lower_priority; lower_priority(); print(os.getpriority(0, 0))"
    )
    command = ["nice", "-n", str(before), sys.executable, "-c", code]
    output = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert int(output.stdout) >= max(NICE, min(19, os.getpriority(os.PRIO_PROCESS, 0) + before))
