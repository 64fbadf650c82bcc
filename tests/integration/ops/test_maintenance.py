"""The jobs on a real database: together, twice at once, killed in the middle, and when something is in their way."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import urllib.request
from asyncio.subprocess import Process
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from core import metrics
from core.config.model import HealthOptions
from core.errors import OperationError
from core.process.scheduling import NICE
from ops.appliance.status import StatusMonitor
from ops.deployment import Running
from ops.maintenance.job import Connection, Job, JobConnection, JobContext, JobResult, JobSkipped, run
from ops.maintenance.jobs import jobs
from ops.maintenance.process import Maintenance
from schema.queries import load
from tests import children
from tests.config_in_force import activate
from tests.database import Database
from tests.maintenance import (
    DAY,
    SAMPLES,
    SLEEPING,
    add_installation,
    add_plant,
    asleep,
    day,
    job_context,
    pack_days,
    run_ok,
    sample_counts,
    set_retention,
    until_awake,
)
from tests.ports import free_ports
from tests.states import claimed
from tests.waiting import PATIENCE, until

JOBS = {job.name: job for job in jobs()}


async def runs(owner: Connection, job: str) -> list[tuple[str | None, int | None, str]]:
    rows = await owner.fetch(
        "SELECT r.outcome, r.rows, r.detail FROM plant.job_run AS r WHERE r.job = $1 ORDER BY r.id", job
    )
    return [tuple(row) for row in rows]


def configured_state(state: Path, database: Database, port: int) -> Path:
    """A state folder and a configuration for a maintenance process."""
    (state / "secrets").mkdir(parents=True, exist_ok=True)
    (state / "secrets" / "maintenance.dsn").write_text(database.maintenance_dsn)
    (state / "secrets" / "owner.dsn").write_text(database.owner_dsn)
    (state / "plant.toml").write_text(
        f'[plant]\nname = "demo"\n[health]\nport = {port}\n[[source]]\nname = "plc"\nkind = "modbus"\n'
        'address = "tcp://127.0.0.1:502"\ntags = "tags.csv"\n'
    )
    (state / "tags.csv").write_text("name,address\nc1,holding:0\n")
    return state


def process(state: Path) -> AbstractAsyncContextManager[Process]:
    """A maintenance process as the supervisor starts it."""
    activate(state, state / "plant.toml")
    return children.running("ops.maintenance", "--state", state)


async def test_every_job_runs_as_the_login_for_maintenance(
    owner: Connection, database: Database, tmp_path: Path
) -> None:
    await add_plant(owner, 9, 8)
    await set_retention(owner, "fast", raw=5)
    context = job_context(database, tmp_path)
    for job in JOBS.values():
        done = await run(job, context)
        assert done.outcome in ("ok", "skipped"), (job.name, done)
        assert (await runs(owner, job.name))[-1][0] == done.outcome
        assert metrics.job_runs.labels(job=job.name, outcome=done.outcome)._value.get() >= 1
    forms = "SELECT DISTINCT s.form FROM plant.storage() AS s WHERE s.relation LIKE 'samples%' AND s.rows > 0"
    (form,) = [row["form"] for row in await owner.fetch(forms)]
    assert form in ("packed", "columnstore")
    hours = 2 * 2 * 24 if form == "packed" else 0
    assert await owner.fetchval("SELECT count(*) FROM plant.samples_packed") == hours
    assert await sample_counts(owner) == {(ago, channel): SAMPLES for ago in (9, 8) for channel in (1, 3)}


async def test_unavailable_job_is_recorded_once_as_skipped(
    owner: Connection, database: Database, tmp_path: Path
) -> None:
    async def lacking(context: JobContext, connection: Connection) -> JobSkipped:
        return JobSkipped("this build has no plant.nothing()")

    job = Job("nothing", lacking, "", every=10, slice_seconds=10)
    for _ in range(3):
        assert (await run(job, job_context(database, tmp_path))).outcome == "skipped"
    assert await runs(owner, "nothing") == [("skipped", None, "this build has no plant.nothing()")]


async def test_sealing_session_is_throttled_and_ends_on_yield(
    owner: Connection, database: Database, tmp_path: Path
) -> None:
    """It is not the job's own: it would take the processor from ingest, and go on reading the day."""
    await add_plant(owner, 9, 8)
    context = job_context(database, tmp_path)
    await add_installation(owner, context.installation)
    (tmp_path / "postgres" / "cluster").mkdir(parents=True)  # the server is on this machine
    other = await asyncpg.connect(database.owner_dsn)
    waiting = """
    SELECT a.pid FROM pg_stat_activity AS a
    WHERE a.application_name = 'plantlog seal' AND a.wait_event_type = 'Lock'"""

    async def waits() -> bool:
        return bool(await owner.fetch(waiting))

    async def gone() -> bool:
        return not await waits()

    async with other.transaction():
        await other.execute("LOCK TABLE plant.seal_work IN ACCESS EXCLUSIVE MODE")
        stop_requested = asyncio.Event()
        sealing = asyncio.create_task(run(JOBS["seal"], context, stop_requested))
        await until(waits)
        assert psutil.Process(await owner.fetchval(waiting)).nice() == NICE
        stop_requested.set()
        assert (await sealing).done.more
        await until(gone)
    await other.close()


async def test_a_job_runs_once_at_a_time(owner: Connection, database: Database, tmp_path: Path) -> None:
    inside, leave = asyncio.Event(), asyncio.Event()

    async def slow(context: JobContext, connection: Connection) -> JobResult:
        inside.set()
        await leave.wait()
        return JobResult(1)

    job, context = Job("slow", slow, "", every=10, slice_seconds=60), job_context(database, tmp_path)
    first = asyncio.create_task(run(job, context))
    await inside.wait()
    second = await run(job, context)
    assert (second.outcome, second.done.detail) == ("skipped", "running in another process")
    leave.set()
    assert (await first).outcome == "ok"
    assert await runs(owner, "slow") == [("ok", 1, "")]


async def test_frequent_job_keeps_its_connection_but_not_its_lock(
    owner: Connection, database: Database, tmp_path: Path
) -> None:
    pids: list[int] = []

    async def note(context: JobContext, connection: Connection) -> JobResult:
        pids.append(connection.get_server_pid())
        await connection.execute("SET work_mem = '64kB'; SELECT pg_advisory_lock(7)")
        return JobResult()

    often, rarely = (
        Job("often", note, "", every=0.01, slice_seconds=10),
        Job("rarely", note, "", every=600, slice_seconds=10),
    )
    context = job_context(database, tmp_path)
    session, of_rare = JobConnection(often, context), JobConnection(rarely, context)
    for _ in range(2):
        assert (await run(often, context, session=session)).outcome == "ok"
    assert pids[0] == pids[1]
    assert (await run(often, context)).outcome == "ok", "another process may run it in between"
    locks = "SELECT count(*) FROM pg_locks AS l WHERE l.pid = $1 AND l.locktype = 'advisory'"
    assert await owner.fetchval(locks, pids[0]) == 0
    await owner.execute("SELECT pg_terminate_backend($1, 10000)", pids[0])
    assert (await run(often, context, session=session)).outcome == "ok", "one that was ended is made again"
    assert pids[-1] != pids[0]
    for _ in range(2):
        assert (await run(rarely, context, session=of_rare)).outcome == "ok"
    session.close()
    there = "SELECT count(*) FROM pg_stat_activity AS a WHERE a.pid = ANY ($1)"

    async def gone() -> bool:
        return bool(await owner.fetchval(there, pids) == 0)

    await until(gone)


async def test_failing_job_stops_no_other_and_is_retried_later(
    owner: Connection, database: Database, tmp_path: Path
) -> None:
    healthy = 0

    async def wrong(context: JobContext, connection: Connection) -> JobResult:
        await connection.execute("SELECT 1 / 0")
        raise AssertionError("unreachable")

    async def refused(context: JobContext, connection: Connection) -> JobResult:
        raise OperationError("the disk is mounted read-only")

    async def mistaken(context: JobContext, connection: Connection) -> JobResult:
        raise KeyError("nobody foresaw this")

    async def good(context: JobContext, connection: Connection) -> JobResult:
        nonlocal healthy
        healthy += 1
        return JobResult()

    todo = [
        Job("wrong", wrong, "", every=0.01, slice_seconds=10, heavy=True),
        Job("refused", refused, "", every=0.01, slice_seconds=10, heavy=True),
    ]
    todo += [Job("mistaken", mistaken, "", every=0.01, slice_seconds=10, heavy=True)]
    maintenance = Maintenance(
        job_context(database, tmp_path), [*todo, Job("good", good, "", every=0.01, slice_seconds=10, heavy=True)]
    )
    working = asyncio.create_task(maintenance.run())
    await until(lambda: healthy >= 3)
    working.cancel()
    await asyncio.wait((working,))
    assert await runs(owner, "wrong") == [("failed", None, "DivisionByZeroError: division by zero")]
    assert await runs(owner, "refused") == [("failed", None, "the disk is mounted read-only")]
    assert await runs(owner, "mistaken") == [("failed", None, "KeyError: 'nobody foresaw this'")]
    wrongs = {report["name"]: report for report in maintenance.reports()}
    for name in ("wrong", "mistaken"):
        assert (wrongs[name]["outcome"], wrongs[name]["failures"]) == ("failed", 1)
        assert wrongs[name]["next_at"] > wrongs[name]["started_at"] + 4
    assert maintenance.database == "connected"


async def test_stopped_job_ends_on_the_server_and_is_recorded(
    owner: Connection, database: Database, tmp_path: Path
) -> None:
    working = asyncio.create_task(run(SLEEPING, job_context(database, tmp_path)))
    await until(lambda: asleep(owner))
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    await until_awake(owner)
    assert await runs(owner, "sleeping") == [("skipped", None, "stopped; continues after the next start")]


async def test_run_that_is_stopped_while_it_begins_has_an_end(
    owner: Connection, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is committed, and the answer never comes: nobody knows its id."""
    execute = asyncpg.Connection.execute

    async def interrupted(self: Connection, query: str, *arguments: Any) -> str:
        command_tag = await execute(self, query, *arguments)
        if query == load("maintenance")["insert_run"]:
            working.cancel()
            await asyncio.Event().wait()
        return command_tag

    monkeypatch.setattr(asyncpg.Connection, "execute", interrupted)
    context = job_context(database, tmp_path)
    working = asyncio.create_task(run(SLEEPING, context))
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await runs(owner, "sleeping") == [("skipped", None, "stopped; continues after the next start")]


async def test_a_job_that_takes_too_long_is_ended(owner: Connection, database: Database, tmp_path: Path) -> None:
    done = await run(dataclasses.replace(SLEEPING, slice_seconds=0.2), job_context(database, tmp_path))
    assert (done.outcome, done.done.detail) == (
        "failed",
        "QueryCanceledError: canceling statement due to statement timeout",
    )


@pytest.mark.slow
async def test_killed_maintenance_continues(owner: Connection, database: Database, tmp_path: Path) -> None:
    """SIGKILL while hours are packed; the next process ends what the first began, and says that it was killed."""
    await pack_days(owner)
    await add_plant(owner, *range(2, 12))
    whole = await sample_counts(owner)
    state = configured_state(tmp_path / "state", database, free_ports(5))

    async def packing() -> bool:
        return bool(await owner.fetchval("SELECT EXISTS (SELECT FROM plant.samples_packed)"))

    async with process(state) as first:
        await until(packing)
        first.send_signal(signal.SIGKILL)
        await first.wait()
    assert await owner.fetchval("SELECT count(*) FROM plant.job_run AS r WHERE r.outcome IS NULL") >= 1
    assert await sample_counts(owner) == whole

    async def packed() -> bool:
        text = "killed or disconnected before it ended"
        whole = await owner.fetchval("SELECT count(*) FROM plant.samples_packed") == 10 * 4 * 24
        return whole and ("failed", None, text) in await runs(owner, "compress")

    async with process(state) as second:
        await until(packed)
        second.send_signal(signal.SIGTERM)
        assert await second.wait() == 0
    assert await sample_counts(owner) == whole
    assert await owner.fetchval("SELECT count(*) FROM plant.job_run AS r WHERE r.outcome IS NULL") == 0


@pytest.mark.slow
async def test_status_shows_a_run_that_was_made_by_hand(owner: Connection, database: Database, tmp_path: Path) -> None:
    port = free_ports(5)
    state = claimed(tmp_path / "state")
    configured_state(state.root, database, port)
    state.dsn_file("reader").write_text(database.reader_dsn)
    Running("demo", HealthOptions(port=port), ("maintenance",)).save(state)
    monitor = StatusMonitor(state)

    async def outcome() -> Any:
        status = await asyncio.to_thread(monitor.snapshot)
        return next((job["outcome"] for job in status["jobs"] if job["name"] == "trim"), None)

    async def failed() -> bool:
        return bool(await outcome() == "failed")

    await owner.execute("ALTER TABLE plant.ingest_batch RENAME TO away")
    async with process(state.root):
        await until(failed)
        await owner.execute("ALTER TABLE plant.away RENAME TO ingest_batch")
        await run_ok(JOBS["trim"], job_context(database, state.root))
        assert await outcome() == "ok"


@pytest.mark.slow
async def test_two_maintenance_processes_do_each_job_once(
    owner: Connection, database: Database, tmp_path: Path
) -> None:
    await add_plant(owner, *range(2, 10))
    await set_retention(owner, "fast", raw=5)
    ports = [free_ports(5), free_ports(5)]
    states = [configured_state(tmp_path / str(port), database, port) for port in ports]

    async def vacuumed_size() -> bool:
        text = [await asyncio.to_thread(_health, port) for port in ports]
        return all(page is not None and all(job["outcome"] for job in page["jobs"]) for page in text)

    async with process(states[0]) as first, process(states[1]) as second:
        await until(vacuumed_size)
        for session in (first, second):
            session.send_signal(signal.SIGTERM)
        assert [await first.wait(), await second.wait()] == [0, 0]
    closed = await owner.fetchval("SELECT plant.closed_until()")
    cutoff = round((day(0) - (closed - 5 * DAY)) / DAY)
    kept = {(ago, channel): SAMPLES for ago in range(2, 10) for channel in (1, 2, 3, 4) if channel % 2 or ago <= cutoff}
    assert await sample_counts(owner) == kept
    text = "SELECT sum((e.detail ->> 'rows')::int) FROM plant.event AS e WHERE e.type = 'retention'"
    gone = sum(2 * SAMPLES for ago in range(2, 10) if ago > cutoff)
    assert await owner.fetchval(text) == gone, "each row is recorded as gone once"
    failed = "SELECT r.job, r.detail FROM plant.job_run AS r WHERE r.outcome = 'failed'"
    assert [tuple(row) for row in await owner.fetch(failed)] == []


def _health(port: int) -> Any:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port + 4}/health", timeout=PATIENCE) as answer:
            return json.load(answer)
    except OSError:
        return None
