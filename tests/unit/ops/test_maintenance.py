"""Maintenance without a database: when jobs run, what a disk budget takes, and how long the room lasts."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from core.config import snapshot
from core.config.load import load
from core.paths import State
from ops.maintenance.backup import rehearse_when_due
from ops.maintenance.disk_budget import BudgetChoice, StorageUnit, choose, days_left, duration, growth
from ops.maintenance.job import Connection, Job, JobContext, JobResult, JobSkipped
from ops.maintenance.jobs import jobs
from ops.maintenance.process import Maintenance, backoff, next_start
from tests.ports import free_port
from tests.waiting import until

DAY = timedelta(days=1)
START = datetime(2026, 3, 1, tzinfo=UTC)
MIB = 1024**2

_SECONDS = st.floats(0, 1e9)
_UNITS = st.lists(
    st.builds(
        lambda day, relation, size, free: StorageUnit(relation, START + day * DAY, START + (day + 1) * DAY, size, free),
        st.integers(0, 20),
        st.sampled_from(["samples_raw", "samples_packed"]),
        st.integers(0, 1000),
        st.booleans(),
    ),
    max_size=30,
    unique_by=lambda unit: (unit.relation, unit.from_time),
)


@given(st.floats(1, 1e5), _SECONDS, st.floats(0, 1e5), st.integers(0, 2000), st.booleans())
def test_job_is_due_after_its_end_within_interval_or_backoff(
    every: float, started: float, took: float, failures: int, more: bool
) -> None:
    ended = started + took
    due = next_start(every, started, ended, failures, more)
    assert ended <= due <= ended + max(every, 300)
    if failures == 0 and more:
        assert due == ended
    if failures == 0 and not more and took < every:
        assert due == started + every
    if failures:
        assert due <= ended + backoff(failures + 1)


def test_backoff_doubles_up_to_five_minutes() -> None:
    assert [backoff(n) for n in (1, 2, 3, 7, 8, 5000)] == [5, 10, 20, 300, 300, 300]


@given(_UNITS, st.integers(0, 20_000), st.none() | st.integers(0, 20_000))
def test_disk_budget_drops_only_as_many_oldest_days_as_needed(
    units: list[StorageUnit], size: int, budget: int | None
) -> None:
    choice = choose(size, budget, units)
    over = 0 if budget is None else size - budget
    may_go = [unit for unit in units if unit.free]
    freed = sum(unit.bytes for unit in choice.units)
    assert set(choice.units) <= set(may_go)
    if over <= 0:
        assert choice == BudgetChoice()
    elif sum(unit.bytes for unit in may_go) < over:
        assert choice.units == ()
        assert choice.lacking == over - sum(unit.bytes for unit in may_go)
    else:
        assert choice.lacking == 0
        assert freed >= over
        newest = max(unit.to_time for unit in choice.units)
        assert set(choice.units) == {unit for unit in may_go if unit.to_time <= newest}, "whole days, oldest first"
        assert freed - sum(unit.bytes for unit in choice.units if unit.to_time == newest) < over, "not a day too many"


def test_days_left_are_words() -> None:
    assert [duration(left) for left in (None, 0.6, 41.2, 1234.0, 9e9)] == [
        "", "disk lasts 1 day", "disk lasts 41 days", "disk lasts 1,234 days", "disk lasts for years",
    ]  # fmt: skip


def test_growth_is_the_size_of_the_last_closed_days() -> None:
    days = [StorageUnit("r", START + n * DAY, START + (n + 1) * DAY, 100 if n < 5 else 700) for n in range(12)]
    assert growth(days, START + 12 * DAY, START + 12.5 * DAY) == 700
    assert growth(days[:3], START + 3 * DAY, START + 3.1 * DAY) == 100
    week = [StorageUnit("packed", START, START + 7 * DAY, 7000)]
    assert growth(week, START + 7 * DAY, START + 7 * DAY) == 1000


def test_growth_of_the_first_day_is_its_size_so_far() -> None:
    today = [StorageUnit("r", START, START + DAY, 100)]
    assert growth(today, START, START + DAY / 4) == 400
    assert growth([], START, START) == 0


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=40), st.floats(0, 40))
def test_growth_lies_between_the_smallest_and_largest_day(sizes: list[int], hours: float) -> None:
    days = [StorageUnit("r", START + n * DAY, START + (n + 1) * DAY, size + 1) for n, size in enumerate(sizes)]
    closed = START + len(days) * DAY
    grows = growth(days, closed, closed + timedelta(hours=hours))
    assert min(sizes) * 0.999 <= grows <= max(sizes) * 1.001 + 2


def test_days_left_until_the_budget_is_used() -> None:
    assert days_left(0, None, None, 100, 0) is None, "neither a budget nor a disk that we see"
    assert days_left(0, None, 1000, 100, 0) == 10
    assert days_left(0, None, 1000, 100, 50) == 20, "half of it goes by age"
    assert days_left(0, None, 1000, 100, 200) == math.inf
    assert days_left(500, 1000, 10_000, 100, 0) == math.inf, "the budget stops it before the disk is full"
    assert days_left(500, 100_000, 10_000, 100, 0) == 100, "the disk is full first"
    assert days_left(500, 1000, None, 100, 0) == 5, "the disk is not ours to see: the budget"


def test_jobs_have_unique_names_and_descriptions() -> None:
    todo = jobs()
    assert len({job.name for job in todo}) == len(todo)
    assert all(job.about and job.every >= 10 and job.slice_seconds > 0 for job in todo)


async def test_rehearsal_before_the_first_backup_has_not_run(tmp_path: Path) -> None:
    (tmp_path / "tags.csv").write_text("name,address\na,holding:0\n")
    (passphrase := tmp_path / "passphrase").touch(0o600)
    passphrase.write_text("correct-horse-battery-staple")
    (config := tmp_path / "plant.toml").write_text(
        f'[plant]\nname = "p"\n[backup]\nrepository = "/srv/backup"\npassphrase_file = "{passphrase}"\n'
        '[[source]]\nname = "plc"\nkind = "modbus"\naddress = "tcp://127.0.0.1:1"\ntags = "tags.csv"\n'
    )
    (state := State(tmp_path / "state")).claim()
    snapshot.save(state.root, config, {}, load(config))
    context = JobContext("", "", state)
    assert await rehearse_when_due(context, cast(Connection, None)) == JobSkipped("not run yet: no backup was listed")


async def test_unreachable_database_is_retried_and_stops_no_job(tmp_path: Path) -> None:
    async def work(context: JobContext, connection: Connection) -> JobResult:
        raise AssertionError("there is no database")

    nobody = f"postgresql://u:p@127.0.0.1:{free_port()}/d"
    context = JobContext(nobody, nobody, State(tmp_path))
    todo = [
        Job(name, work, "", every=0.01, slice_seconds=1, heavy=heavy)
        for name, heavy in (("a", True), ("b", True), ("c", False))
    ]
    maintenance = Maintenance(context, todo)
    working = asyncio.create_task(maintenance.run())
    await until(lambda: all(report["failures"] for report in maintenance.reports()))
    working.cancel()
    await asyncio.wait((working,))
    assert maintenance.database.startswith("unreachable: database: ConnectionRefusedError")
    for report in maintenance.reports():
        assert (report["outcome"], report["state"]) == ("failed", "waiting")
        assert report["next_at"] >= report["started_at"] + backoff(1)
