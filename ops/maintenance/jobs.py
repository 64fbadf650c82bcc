"""The maintenance jobs: what each does, its interval, and the time limit of its statements."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import asyncpg
import psutil

from core import metrics
from core.addresses import is_loopback
from core.config.https import TlsSettings
from core.config.snapshot import in_force
from core.database import addresses
from core.errors import DatabaseError
from core.formatting import count
from core.process import starts
from core.process.scheduling import lower_priority
from core.timestamps import timestamp
from history.seals.seal import seal_closed
from ops.maintenance.archive import Archiving
from ops.maintenance.backup import back_up_when_due, rehearse_when_due
from ops.maintenance.disk_budget import StorageUnit, days_left, duration, growth
from ops.maintenance.job import Connection, Job, JobContext, JobResult, JobSkipped
from ops.maintenance.packing import compress_before, pack_minutes
from ops.maintenance.retention import Retention, settings
from ops.migration.migrate import DatabaseLogin, create_logins
from ops.postgres.mounted import existing, is_mounted
from ops.registration import heartbeat
from ops.registration.installation import installation_id, login_mark
from schema.queries import load

log = logging.getLogger(__name__)

_ROWS_PER_DELETE = 20_000  # rows that one DELETE takes
_CHUNKS_PER_RUN = 20  # chunks a run
_GROWTH_SECONDS = 3600.0  # growth is of days: it is looked at this often
_LOW_DAYS = 7.0
_BUDGET_TOLERANCE = 1.1
_SLICE_USED = JobResult(detail="time slice used up; continues", more=True)
_MEMORY_SHARE = 4  # of this machine's memory all readers' sessions together may hold a fourth


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
        count = int(command_tag.rpartition(" ")[2])
        more |= count == _ROWS_PER_DELETE
        deleted |= {table: count} if count else {}
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


class Certificate:
    """Gives the present certificate to the own server, where it listens beyond loopback, for new sessions."""

    def __init__(self) -> None:
        self._used: datetime | None = None  # when the file was changed that the server is known to use

    async def renew(self, context: JobContext, connection: Connection) -> JobResult | JobSkipped:
        """The server reads the file also if another process has renewed it."""
        if not is_mounted():
            current = in_force(context.state.root, ())
            if current is None or is_loopback(current.plant.database.host):
                return JobSkipped("[database] host is loopback")
            TlsSettings.of(current.plant).ensure(context.state.root)
        cluster = existing(context.state.root)
        cluster.renew_certificate()
        if (changed_at := cluster.certificate_changed_at) == self._used:
            return JobResult()
        await connection.fetchval(load("maintenance")["reload_settings"])
        before, self._used = self._used, changed_at
        return JobResult(detail="" if before is None else "new certificate")


class Storage:
    """Measures, and warns in time: what the database has, may have, and for how many days that will do."""

    def __init__(self) -> None:
        self._measured_at = -_GROWTH_SECONDS
        self._growth_and_ageing = 0.0, 0.0  # bytes a day that come, and that ages drop

    async def work(self, context: JobContext, connection: Connection) -> JobResult:
        """Sets the gauges ``plantlog_storage_*``; a warning and an event once a day where the room lasts some days."""
        current = await settings(connection)
        size, budget = current.bytes, current.disk_budget
        if time.monotonic() - self._measured_at >= _GROWTH_SECONDS:
            self._growth_and_ageing = await _growth(connection, current.closed_until)
            self._measured_at = time.monotonic()
        free = _disk_free(context)
        # A budget that is exceeded by so much can't be met: it does not limit the database's growth.
        effective_budget = None if free is not None and size > _BUDGET_TOLERANCE * (budget or 0) else budget
        left = days_left(size, effective_budget, free, *self._growth_and_ageing)
        metrics.storage_bytes.set(size)
        metrics.storage_budget_bytes.set(budget or 0)
        metrics.storage_days_left.set(float("nan") if left is None else left)
        if left is not None and left < _LOW_DAYS:
            warning = f"disk will be full in less than {_LOW_DAYS:.0f} days at the current growth"
            if await connection.fetch(load("maintenance")["record_retention"], warning, "{}"):
                log.warning("disk will be full in %.1f days at the current growth", left)
        over = budget is not None and size > budget
        missing = await _standbys_missing(context, connection)
        metrics.standbys_missing.set(missing)
        problems = "over the disk budget" if over else "", f"{count(missing, 'standby')} missing" if missing else ""
        detail = ", ".join(filter(None, (*problems, duration(left))))
        return JobResult(bytes=size, detail=detail, wake="retain" if over else "")


async def _standbys_missing(context: JobContext, connection: Connection) -> int:
    named = len(addresses(context.dsn)) - 1
    standbys = await connection.fetchval(load("maintenance")["count_standbys"])
    return max(0, named - int(standbys))


async def _growth(connection: Connection, closed_until: datetime) -> tuple[float, float]:
    queries = load("maintenance")
    since = closed_until - timedelta(days=8)
    rows = await connection.fetch(queries["select_units"], since)
    units = [StorageUnit("", row["from_time"], row["to_time"], row["bytes"]) for row in rows]
    now = datetime.now(UTC)
    aged_bytes = await connection.fetchval(queries["select_freed_bytes"], now - timedelta(days=7))
    return growth(units, closed_until, now), aged_bytes / 7


def _disk_free(context: JobContext) -> int | None:
    """Free bytes on the disk of the state folder's own database; None: the database is somebody else's."""
    cluster = context.state.root / "postgres" / "cluster"
    return shutil.disk_usage(cluster).free if cluster.exists() else None


async def end_sessions(context: JobContext, connection: Connection) -> JobResult:
    """End the sessions of readers that last too long or, where the server is on this machine, hold too much.

    A session may change its own statement_timeout and work_mem. On this machine they step back, so that what they ask
    takes no processor time that ingest wants.
    """
    queries = load("maintenance")
    heavy: list[int] = []
    if context.server_is_local:
        pids = [row["pid"] for row in await connection.fetch(queries["select_reader_sessions"])]
        for pid in pids:
            lower_priority(pid)
        heavy = largest_backends(pids, psutil.virtual_memory().total // _MEMORY_SHARE)
    return JobResult(await connection.fetchval(queries["end_long_readers"], heavy))


def largest_backends(pids: Iterable[int], limit: int) -> list[int]:
    """The largest of the server's processes ``pids``, without which the others hold ``limit`` bytes or less."""
    private_bytes: dict[int, int] = {}
    for pid in pids:
        with suppress(psutil.Error):  # gone meanwhile
            memory = psutil.Process(pid).memory_info()
            private_bytes[pid] = memory.rss - memory.shared  # shared: the server's buffers
    largest: list[int] = []
    for pid in sorted(private_bytes, key=private_bytes.__getitem__, reverse=True):
        if sum(private_bytes.values()) <= limit:
            break
        log.warning(
            "reader backend %d uses %s MB; terminating its session", pid, f"{private_bytes.pop(pid) / 1e6:,.0f}"
        )
        largest.append(pid)
    return largest


async def restore_login(context: JobContext, connection: Connection) -> JobResult | JobSkipped:
    """Give the reader's login its password and limits back: it may change its own."""
    if not context.state.dsn_file("reader").exists():
        return JobSkipped("no reader login in the state folder")
    reader = DatabaseLogin.of_dsn(context.state.dsn("reader"))
    renewed = await create_logins(context.owner_dsn, {"reader": reader}, login_mark(installation_id(context.state)))
    if renewed:
        log.warning("password of %s was changed; restored to that of this state folder", ", ".join(renewed))
    return JobResult(len(renewed))
