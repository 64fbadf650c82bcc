"""Maintenance beside a writer that is behind: a real backlog, made by a lock on the samples' table."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pytest

from core.batch import SampleBatch
from core.config.model import WriterOptions
from core.process.scheduling import NICE
from core.samples import Samples
from core.timestamps import now_us
from ingest.spool.append import Spool
from ingest.writer.writer import Writer
from ops.maintenance.job import Connection, Job, JobContext, JobResult, run
from ops.maintenance.jobs import jobs
from schema.queries import load
from tests.database import Database
from tests.integration.ops.test_maintenance import configured_state, process
from tests.maintenance import SLEEPING, add_plant, asleep, job_context, until_awake
from tests.ports import free_ports
from tests.waiting import PATIENCE, until

JOBS = {job.name: job for job in jobs()}


def health(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port + 4}/health", timeout=PATIENCE) as answer:
        body: dict[str, Any] = json.loads(answer.read())
        return body


@asynccontextmanager
async def ingest(database: Database, state: Path) -> AsyncIterator[Writer]:
    """A batch each 200 ms through spool and writer."""
    (state / "spool").mkdir(parents=True)
    spool = Spool(state / "spool" / "modbus.sqlite", 1024**3)
    writer = Writer(state / "spool", database.ingest_dsn, WriterOptions())

    async def append() -> None:
        channel, value, status = np.ones(1, np.int32), np.ones(1), np.zeros(1, np.uint32)
        while True:
            await spool.append(SampleBatch(1, now_us(), Samples(channel, np.array([now_us()]), value, status)))
            await asyncio.sleep(0.2)

    appending, writing = asyncio.create_task(append()), asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        appending.cancel()
        await asyncio.wait((appending,))
        await spool.close()
        writer.drain()
        await writing


async def overloads(owner: Connection) -> list[tuple[str, dict[str, Any]]]:
    rows = await owner.fetch("SELECT e.text, e.detail FROM plant.event AS e WHERE e.type = 'overload' ORDER BY e.time")
    return [(row["text"], json.loads(row["detail"])) for row in rows]


@pytest.mark.slow
async def test_maintenance_waits_while_the_writer_is_behind(
    owner: Connection, database: Database, tmp_path: Path
) -> None:
    await add_plant(owner)
    port = free_ports(7)
    state = configured_state(tmp_path, database, port)
    newest = "SELECT r.outcome FROM plant.job_run AS r WHERE r.job = 'rollups' ORDER BY r.id DESC LIMIT 1"
    # On a busy machine it may have begun to wait for that: the record has the reason with which it began.
    waited = "SELECT count(*) FROM plant.job_run AS r WHERE r.detail LIKE 'waits: %' AND r.job = 'rollups'"
    async with ingest(database, state) as writer, process(state):

        async def rolls_up() -> bool:
            return bool(
                await owner.fetchval(
                    "SELECT EXISTS (SELECT FROM plant.job_run WHERE job = 'rollups' AND outcome = 'ok')"
                )
            )

        await until(rolls_up)
        assert await asyncio.to_thread(health, port)
        lock = await asyncpg.connect(database.owner_dsn)
        async with lock.transaction():
            await lock.execute(load("chaos")["lock_samples"])

            async def overloaded() -> bool:
                overload = (await asyncio.to_thread(health, port))["overload"]
                return overload["since"] is not None and overload["lag_seconds"] >= 5

            await until(overloaded)

            health_report: dict[str, Any] = {}

            async def waits() -> bool:
                nonlocal health_report
                health_report = await asyncio.to_thread(health, port)
                (rollups,) = [job for job in health_report["jobs"] if job["name"] == "rollups"]
                on_record = await owner.fetchval(waited)
                return bool(rollups["waits"].startswith("waits: ingest has been behind since ")) and on_record >= 1

            await until(waits)
            others = {
                job["name"]: job["waits"]
                for job in health_report["jobs"]
                if job["name"] in ("presence", "retain", "logins")
            }
            assert set(others.values()) == {""}
        await lock.close()

        async def over() -> bool:
            is_over = (await asyncio.to_thread(health, port))["overload"]["since"] is None
            ran = await owner.fetchval(newest) == "ok"
            return is_over and ran and [text for text, _ in await overloads(owner)][-1:] == ["good"]

        await until(over)
        said_of = await overloads(owner)  # of one, or of several where the machine is busy besides
        assert [text for text, _ in said_of] == ["overloaded", "good"] * (len(said_of) // 2)
        figures = [detail for _, detail in said_of]
        begun, ended = max(zip(figures[::2], figures[1::2], strict=True), key=lambda one: one[1]["lag_seconds"])
        assert ended["lag_seconds"] >= begun["lag_seconds"] >= 5
        assert ended["seconds"] > 0
    assert writer.written > 0


async def test_unfinished_overload_ends_after_a_restart(owner: Connection, database: Database, tmp_path: Path) -> None:
    await owner.execute(
        load("maintenance")["record_overload"]
        .replace("$1", "now() - interval '1 hour'")
        .replace("$2", "'overloaded'")
        .replace("$3", "'{}'")
    )
    state = configured_state(tmp_path, database, free_ports(7))
    async with process(state):

        async def over() -> bool:
            return [text for text, _ in await overloads(owner)] == ["overloaded", "good"]

        await until(over)
    (_, last) = await overloads(owner)
    assert last[1]["seconds"] >= 3600


async def test_yielding_job_ends_its_statement_and_is_recorded(
    owner: Connection, database: Database, tmp_path: Path
) -> None:
    stop_requested = asyncio.Event()
    working = asyncio.create_task(run(SLEEPING, job_context(database, tmp_path), stop_requested))
    await until(lambda: asleep(owner))
    stop_requested.set()
    async with asyncio.timeout(PATIENCE):
        ran = await working
    assert (ran.outcome, ran.done.more, ran.done.detail) == ("ok", True, "gave way to ingest; continues")
    await until_awake(owner)


async def test_backends_of_heavy_jobs_and_readers_are_throttled(
    owner: Connection, database: Database, reader: asyncpg.Connection, tmp_path: Path
) -> None:
    """Each backend leads a session: nice alone counts for nothing where sessions share the processors."""
    if os.environ.get("PLANTLOG_TEST_DSN"):
        pytest.skip("the server is not on this machine")
    (tmp_path / "postgres" / "cluster").mkdir(parents=True)
    held: list[tuple[int, str]] = []

    def of(pid: int) -> tuple[int, str]:
        group = Path(f"/proc/{pid}/autogroup")
        return os.getpriority(os.PRIO_PROCESS, pid), group.read_text().split()[-1] if group.exists() else ""

    async def look(site: JobContext, connection: Connection) -> JobResult:
        held.append(of(connection.get_server_pid()))
        return JobResult()

    ours = of(owner.get_server_pid())
    site = job_context(database, tmp_path)
    assert (
        await run(Job("compress", look, "", every=10, slice_seconds=10, heavy=True, owner=True), site)
    ).outcome == "ok"
    assert (await run(Job("retain", look, "", every=10, slice_seconds=10, heavy=True), site)).outcome == "ok"
    assert (await run(JOBS["readers"], site)).outcome == "ok"
    back = (max(NICE, ours[0]), str(NICE) if ours[1] else "")  # the tests may run with less priority themselves
    assert [*held, of(reader.get_server_pid()), of(owner.get_server_pid())] == [back, ours, back, ours]
