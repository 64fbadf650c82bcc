"""When overload begins and ends, what it is called, and what maintenance gives up for it."""

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

from ingest.scheduling import NICE
from ops.maintenance.jobs import jobs
from ops.maintenance.yielding import ORDER, Yielding
from ops.overload.measure import Pressure, _pace, waiting
from ops.overload.state import Look, Overload, Threshold, words
from ops.paths import CHECKOUT, State
from ops.supervisor import Program
from schema.queries import load
from tests.patience import PATIENCE
from tests.unit.test_ops_supervisor import pids, supervised, until_running


def seen(overload: Overload, *looks: Look, reachable: bool = True) -> list[int]:
    """The looks with which it changes."""
    return [i for i, look in enumerate(looks) if overload.take(look, reachable)]


def test_it_begins_when_ingest_is_behind_for_seconds_and_ends_by_itself() -> None:
    overload = Overload()
    lags = [0, 6, 0, 6, 7, 9, 4, 2, 1, 1, 1, 1, 1, 1]
    assert seen(overload, *(Look(100.0 + i, lag=lag) for i, lag in enumerate(lags))) == [5, 12]
    assert overload.since is None
    assert overload.worst.lag == 9


def test_its_begin_is_the_first_look_that_told_of_it() -> None:
    overload = Overload()
    seen(overload, *(Look(100.0 + i, lag=6) for i in range(3)))
    assert overload.since == 100.0


def test_late_polls_are_overload_only_where_the_machine_is_short_of_processors() -> None:
    slow_device = [Look(float(i), pressure=0.2, pace=2.4) for i in range(20)]
    assert seen(Overload(), *slow_device) == []
    starved = [Look(float(i), pressure=0.95, pace=2.4) for i in range(20)]
    assert seen(Overload(), *starved) == [4]
    busy_and_in_time = [Look(float(i), pressure=0.95) for i in range(20)]
    assert seen(Overload(), *busy_and_in_time) == []


def test_what_waits_for_a_database_that_is_away_is_no_overload() -> None:
    assert seen(Overload(), *(Look(float(i), lag=60) for i in range(20)), reachable=False) == []


@given(st.lists(st.floats(0, 10), min_size=1, max_size=60))
def test_between_two_changes_of_a_threshold_are_as_many_looks_as_it_asks_for(values: list[float]) -> None:
    threshold = Threshold(5.0, 1.5, 3, 4)
    for at, value in enumerate(values):
        was = threshold.since
        if threshold.take(value, float(at)):
            last = values[at - 2 : at + 1] if was is None else values[at - 3 : at + 1]
            assert all(v >= 5.0 for v in last) if was is None else all(v < 1.5 for v in last)
            assert threshold.since in (None, float(at - 2))


def test_it_is_said_in_one_sentence() -> None:
    report = {"since": 43_390.0, "lag_seconds": 8.0, "pace_seconds": 2.4, "cpu_pressure": 1.0, "spool_bytes": 1}
    said = "overloaded since 12:03:10 UTC, polls every 2.4 s, lag 8.0 s, CPU pressure 100 %"
    assert words(report, ["rollups", "seal"]) == f"{said}; waiting: rollups, seal"
    assert words(report | {"pace_seconds": 0.0}) == said.replace(", polls every 2.4 s", "")
    assert words(report | {"since": None}) == words(None) == ""


def test_the_oldest_batch_of_the_live_spools_counts(tmp_path: Path) -> None:
    now = int(time.time() * 1e6)
    for name, seconds in (("opcua", [3, 1]), ("modbus", []), ("opcua.backfill", [500])):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as spool:
            spool.create_function("first_sequence", 0, lambda: 1)
            spool.executescript(load("spool")["create"])
            for i, ago in enumerate(seconds):
                row = (i + 1, 1, "samples", 1, now - ago * 1_000_000, 0, 0, 0, b"")
                spool.execute(load("spool")["append"], row)
            spool.commit()
    (tmp_path / "push.sqlite").write_bytes(b"")  # it is just being made
    assert 3 <= waiting(tmp_path).seconds < 60
    assert waiting(tmp_path / "none").seconds == 0


def test_pressure_is_the_share_of_time_in_which_somebody_waited(tmp_path: Path) -> None:
    file = tmp_path / "cpu.pressure"
    file.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0.00 total=0\n")
    pressure = Pressure([file, tmp_path / "none"])
    assert pressure.look() == 0
    file.write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=999000000\nfull avg10=0.00 total=0\n")
    assert pressure.look() == 1
    time.sleep(0.01)
    assert pressure.look() == 0


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
def test_a_poll_that_takes_long_counts_before_there_is_a_pace(source: dict[str, Any], pace: float) -> None:
    assert _pace(source, 100.0) == pytest.approx(pace)


def test_without_pressure_information_the_load_tells() -> None:
    assert 0 <= Pressure([Path("/nonexistent")]).look() <= 1


def test_only_jobs_that_can_wait_do() -> None:
    names = [job.name for job in jobs()]
    assert [name for name in names if name in ORDER] == list(ORDER)
    never = {"retain", "readers", "logins", "presence", "ahead", "trim", "storage"}
    assert never == set(names) - set(ORDER)
    yielding = Yielding()
    for second in range(10):
        yielding.look(Look(float(second), pressure=1.0, lag=600.0))
    assert {name for name in names if yielding.why(name)} == set(ORDER)
    assert not any(yielding.waits(name) for name in never)


def test_jobs_are_given_up_in_their_order() -> None:
    yielding = Yielding()
    waiting_at = []
    for lag in (0.0, *ORDER.values()):
        yielding.look(Look(lag, lag=lag))
        waiting_at.append([name for name in ORDER if yielding.why(name)])
    assert waiting_at == [list(ORDER)[:n] for n in range(len(ORDER) + 1)]


def test_polls_that_are_late_for_want_of_a_processor_count_as_ingest_that_is_behind() -> None:
    slow_device, starved = Yielding(), Yielding()
    for second in range(10):
        slow_device.look(Look(float(second), pressure=0.1, pace=6.0))
        starved.look(Look(float(second), pressure=1.0, pace=6.0))
    assert [slow_device.why(job) for job in ORDER] == [""] * len(ORDER)
    assert all(starved.why(job).startswith("waits: ingest is behind since") for job in ORDER)


async def test_a_run_under_way_is_told_to_give_way_and_the_next_waits() -> None:
    yielding = Yielding()
    async with yielding.turn("compress") as give_way:
        for second in range(3):
            yielding.look(Look(float(second), lag=4.0))
        assert not give_way.is_set(), "it may end its slice"
        yielding._turns.copy().pop().began -= 600
        yielding.look(Look(3.0, lag=4.0))
        assert give_way.is_set()
    assert yielding.waits("compress")
    assert yielding.why("compress").startswith("waits: ingest is behind since 00:00:00 UTC")
    waits = asyncio.create_task(yielding.turn("rollups").__aenter__())
    await asyncio.sleep(0.05)
    assert not waits.done()
    for second in range(3):
        yielding.look(Look(10.0 + second, lag=0.1))
    async with asyncio.timeout(PATIENCE):
        await waits


async def test_a_machine_that_is_always_behind_gives_turns_all_the_same() -> None:
    """A slice, nine times as long a pause, and slices that double as long as they are not enough."""
    yielding = Yielding()
    for cuts in range(4):
        yielding.look(Look(float(cuts), lag=600.0))
        yielding._free_at = 0.0  # the pause is over
        async with asyncio.timeout(PATIENCE), yielding.turn("compress") as give_way:
            (turn,) = yielding._turns
            turn.began -= 5.0 * 2**cuts - 1
            yielding.look(Look(float(cuts), lag=600.0))
            assert not give_way.is_set()
            turn.began -= 1
            yielding.look(Look(float(cuts), lag=600.0))
            assert give_way.is_set()

        pause = yielding._free_at - time.monotonic()
        assert pause == pytest.approx(9 * 5.0 * 2**cuts, abs=1)


def test_what_collects_and_writes_leads_a_session_of_its_own_and_stops_when_told(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    code = "from ingest.scheduling import own_session; import time; own_session(); time.sleep(600)"
    state = State(tmp_path_factory.mktemp("s"))
    state.claim()
    program = Program("writer", [sys.executable, "-c", code], {"PYTHONPATH": str(CHECKOUT)})
    with supervised(state, [program]) as supervisor:
        supervisor.start_program("writer")
        until_running(supervisor, "writer")
        pid = pids(supervisor)["writer"]
        assert pid
        deadline = time.monotonic() + PATIENCE
        while os.getsid(pid) != pid:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        supervisor.stop_program("writer")
        assert pids(supervisor)["writer"] is None


def test_who_steps_back_is_nicer_than_others() -> None:
    code = "from ingest.scheduling import step_back; import os; step_back(); print(os.getpriority(0, 0))"
    said = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert int(said.stdout) >= NICE
