"""The maintenance jobs: what each does, its interval, and the time limit of its statements."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

import asyncpg

from core.errors import DatabaseError
from core.process import starts
from core.process.scheduling import lower_priority
from core.timestamps import timestamp
from history.seals.seal import seal_closed
from ops.maintenance.archive import Archiving
from ops.maintenance.backup import back_up_when_due, rehearse_when_due
from ops.maintenance.certificate import Certificate
from ops.maintenance.job import Connection, Job, JobContext, JobResult, JobSkipped
from ops.maintenance.packing import compress_before, pack_minutes
from ops.maintenance.reader_sessions import end_sessions
from ops.maintenance.retention import Retention, settings
from ops.maintenance.storage import Storage
from ops.migration.migrate import DatabaseLogin, create_logins
from ops.registration import heartbeat
from ops.registration.installation import installation_id, login_mark
from schema.queries import load

log = logging.getLogger(__name__)

_ROWS_PER_DELETE = 20_000  # rows that one DELETE takes
_CHUNKS_PER_RUN = 20  # chunks a run
_SLICE_USED = JobResult(detail="time slice used up; continues", more=True)


def jobs() -> tuple[Job, ...]:
    """Maintenance jobs, in the order in which they are shown."""
    of_installation = partial(Job, per_installation=True)
    return (
        Job(
            "rollups",
            refresh_rollups,
            "refresh minute and hour rollups of changed data",
            every=10,
            slice_seconds=60,
            owner=True,
        ),
        Job("compress", compress, "compress closed hours", every=600, slice_seconds=600, heavy=True, owner=True),
        of_installation("seal", seal, "seal closed days", every=600, slice_seconds=1800, heavy=True, owner=True),
        of_installation(
            "archive", Archiving().work, "archive sealed days", every=600, slice_seconds=6 * 3600, owner=True
        ),
        Job("retain", Retention().work, "drop data by retention rules and disk budget", every=3600, slice_seconds=600),
        Job("analyze", analyze, "update planner statistics of closed chunks", every=900, slice_seconds=300, heavy=True),
        Job("ahead", chunks_ahead, "create tomorrow's chunks", every=3600, slice_seconds=30),
        Job("trim", trim, "delete old batch records, quarantined rows and job runs", every=3600, slice_seconds=60),
        of_installation(
            "readers",
            end_sessions,
            "terminate reader sessions that exceed time or memory limits",
            every=10,
            slice_seconds=30,
        ),
        of_installation(
            "logins", restore_login, "restore password and limits of the reader login", every=60, slice_seconds=30
        ),
        of_installation(
            "presence",
            record_presence,
            "write the heartbeat that keeps a copy from running; record starts of processes",
            every=10,
            slice_seconds=30,
        ),
        of_installation(
            "storage",
            Storage().work,
            "measure database size and days until the disk is full",
            every=60,
            slice_seconds=60,
        ),
        of_installation(
            "certificate",
            Certificate().renew,
            "let the database use a new certificate",
            every=60,
            slice_seconds=30,
            owner=True,
        ),
        of_installation(
            "backup", back_up_when_due, "back up by [backup]", every=60, slice_seconds=6 * 3600, owner=True
        ),
        of_installation(
            "rehearse", rehearse_when_due, "restore the newest backup and verify it", every=600, slice_seconds=6 * 3600
        ),
    )


async def refresh_rollups(context: JobContext, connection: Connection) -> JobResult:
    """``plant.refresh_rollups()``, and then some packing: commits as it goes, as :func:`compress` does."""
    try:
        await connection.execute(load("maintenance")["refresh_rollups"])
        await pack_minutes(connection, portions=1)
    except asyncpg.QueryCanceledError:
        return _SLICE_USED
    return JobResult()


async def compress(context: JobContext, connection: Connection) -> JobResult:
    """:func:`compress_before`: commits in small steps, so that nothing is lost at the end of the time slice."""
    current = await settings(connection)
    try:
        await compress_before(connection, current.late_until)
    except (TimeoutError, asyncpg.QueryCanceledError):
        return _SLICE_USED
    return JobResult(detail=f"hours before {current.late_until:%Y-%m-%d %H:%M} UTC")


async def seal(context: JobContext, connection: Connection) -> JobResult | JobSkipped:
    """``history.seals.seal.seal_closed``, where days are sealed."""
    if not await connection.fetchval(load("installation")["select_sealing"], context.installation):
        return JobSkipped("[sealing] enabled = false")
    current = await settings(connection)
    # It has a session of its own, which steps back as the job's does.
    on_backend = lower_priority if context.server_is_local else lambda pid: None
    days = await seal_closed(context.owner_dsn, context.state, current.late_until, on_backend)
    return JobResult(len(days), detail=", ".join(f"{day:%Y-%m-%d}" for day in days))


async def analyze(context: JobContext, connection: Connection) -> JobResult:
    """ANALYZE, a chunk a statement: new chunks, and those that packing or late data changed."""
    chunks = [
        row["chunk"] for row in await connection.fetch(load("maintenance")["select_chunks_to_analyze"], _CHUNKS_PER_RUN)
    ]
    for chunk in chunks:
        with suppress(asyncpg.UndefinedTableError):  # dropped meanwhile
            await connection.execute(f"ANALYZE {chunk}")
    return JobResult(len(chunks), more=len(chunks) == _CHUNKS_PER_RUN)


async def chunks_ahead(context: JobContext, connection: Connection) -> JobResult:
    """Chunks of today and two days of every hypertable, so that at midnight no writer waits for one to be made."""
    queries = load("maintenance")
    tables = [row["relation"] for row in await connection.fetch(queries["select_hypertables"])]
    created: dict[str, int] = {}
    failed: list[str] = []
    for table in tables:
        try:
            created[table] = await connection.fetchval(queries["make_chunk"], table)
        except asyncpg.PostgresError as error:  # one table's trouble is not the others'
            failed.append(f"{table}: {error}")
    if failed:
        raise DatabaseError("; ".join(failed))
    return JobResult(sum(created.values()), detail=", ".join(sorted(table for table, n in created.items() if n)))


async def trim(context: JobContext, connection: Connection) -> JobResult:
    """Delete what is old from the tables that are no hypertables, some thousands of rows a statement."""
    deleted: dict[str, int] = {}
    more = False
    for table in ("ingest_batch", "quarantine", "job_run"):
        command_tag = await connection.execute(load("maintenance")[f"delete_old_{table}"], _ROWS_PER_DELETE)
        n = int(command_tag.rpartition(" ")[2])
        more |= n == _ROWS_PER_DELETE
        deleted |= {table: n} if n else {}
    return JobResult(
        sum(deleted.values()), detail=", ".join(f"{n} of {table}" for table, n in deleted.items()), more=more
    )


async def record_presence(context: JobContext, connection: Connection) -> JobResult:
    """``ops.registration.heartbeat.record``, and events of the processes that started since."""
    await heartbeat.record(connection, context.state)
    for path, process, time_us in starts.notes(context.state.root):
        arguments = timestamp(time_us), process, context.installation
        await connection.execute(load("maintenance")["record_restart"], *arguments)
        path.unlink()
    return JobResult()


async def restore_login(context: JobContext, connection: Connection) -> JobResult | JobSkipped:
    """Give the reader's login its password and limits back: it may change its own."""
    if not context.state.dsn_file("reader").exists():
        return JobSkipped("no reader login in the state folder")
    reader = DatabaseLogin.of_dsn(context.state.dsn("reader"))
    renewed = await create_logins(context.owner_dsn, {"reader": reader}, login_mark(installation_id(context.state)))
    if renewed:
        log.warning("password of %s was changed; restored to that of this state folder", ", ".join(renewed))
    return JobResult(len(renewed))
