"""One run of a job: time-limited, recorded, and never two of the same job at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID

import asyncpg

from core import database, metrics
from core.errors import PlantlogError, first_cause
from core.paths import State
from core.process.scheduling import lower_priority
from ops.maintenance.throttle import MAX_LAG
from ops.registration.installation import installation_id
from schema.queries import load

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0
_KEEP_CONNECTION_SECONDS = 60.0  # between runs of a job that keeps its connection
_LOCK_SECONDS = 2.0  # nobody else waits long behind a lock that we wait for
_GRACE_SECONDS = 10.0  # the server's own time-out comes first: it tells what it was
_RECORD_TIMEOUT = 5.0  # on a busy machine a commit takes seconds; shorter than the drain of a process that stops
_TAKEOVER_INTERVALS = 1.5  # times the interval of a job, after which another installation does it
RUNS_ELSEWHERE = "running in another process"
_DONE_ELSEWHERE = "done by another installation"

Connection: TypeAlias = "asyncpg.Connection[Any]"
Outcome: TypeAlias = Literal["ok", "failed", "skipped"]
_FAILURES = (*database.FAILURES, PlantlogError)


@dataclass(frozen=True, slots=True)
class JobContext:
    """Context in which jobs work."""

    dsn: str  # of the login for maintenance
    owner_dsn: str
    state: State

    @property
    def installation(self) -> UUID:
        """The id of this installation."""
        return installation_id(self.state)

    @property
    def server_is_local(self) -> bool:
        """Return whether the server is the state folder's own, so that its processes are this machine's."""
        return (self.state.root / "postgres" / "cluster").exists()


@dataclass(frozen=True, slots=True)
class JobResult:
    """Result of a run."""

    rows: int | None = None
    bytes: int | None = None
    detail: str = ""
    more: bool = False  # work is left: go on at once
    wake: str = ""  # the job that has to run at once


@dataclass(frozen=True, slots=True)
class JobSkipped:
    """Reason why there is nothing to run."""

    why: str


@dataclass(frozen=True, slots=True)
class Job:
    """Work on the database that is due at an interval."""

    name: str
    work: Callable[[JobContext, Connection], Coroutine[Any, Any, JobResult | JobSkipped]]
    about: str
    _: KW_ONLY
    every: float  # s between starts
    slice_seconds: float  # that one statement may take; what is not done then is for the next run
    heavy: bool = False  # reads or writes much: one of these at a time
    owner: bool = False  # compressing and dropping what was packed takes the tables' owner, and so do seals
    # Each installation has it; else the database has, and one of its installations runs it.
    per_installation: bool = False


@dataclass(frozen=True, slots=True)
class JobRun:
    """End of a run."""

    outcome: Outcome
    done: JobResult
    started: float  # s since 1970
    ended: float
    away: bool = False  # the database could not be reached


class JobConnection:
    """The connection of a job, which is kept between runs that are often: making one costs more than most of them."""

    def __init__(self, job: Job, context: JobContext) -> None:
        self._job, self._context = job, context
        self._connection: Connection | None = None

    async def open(self) -> Connection:
        """Return a connection that answers. Raises what :func:`connect` does."""
        connection, self._connection = self._connection, None
        if connection is not None and await _reset(connection):
            return connection
        dsn = self._context.owner_dsn if self._job.owner else self._context.dsn
        connection = await connect(dsn, f"plantlog maintenance: {self._job.name}", self._job.slice_seconds)
        if self._context.server_is_local and self._job.name in MAX_LAG:
            lower_priority(connection.get_server_pid())
        return connection

    async def release(self, connection: Connection) -> None:
        """Take back the connection of a run that did not fail."""
        if self._job.every > _KEEP_CONNECTION_SECONDS:
            connection.terminate()
        elif await _reset(connection):
            self._connection = connection

    def close(self) -> None:
        """Close the connection: no run follows."""
        if self._connection is not None:
            self._connection.terminate()


async def _reset(connection: Connection) -> bool:
    """Return whether the session answers, and has no lock any more; else it is ended."""
    try:
        await connection.reset(timeout=_CONNECT_SECONDS)
    except BaseException as error:
        connection.terminate()
        if isinstance(error, _FAILURES):
            return False
        raise
    return True


async def run(
    job: Job, context: JobContext, stop_requested: asyncio.Event | None = None, session: JobConnection | None = None
) -> JobRun:
    """Run a job once. Never raises for what goes wrong in it; cancelled, it ends what it does on the server too.

    ``stop_requested``: when set, the run stops and continues later. ``session``: the job's own, if it has runs
    to come.
    """
    started = time.time()
    own_session = session or JobConnection(job, context)
    try:
        connection = await own_session.open()
    except _FAILURES as error:
        ran = JobRun("failed", JobResult(detail=f"database: {_error_text(error)}"), started, time.time(), away=True)
    else:
        try:
            if session is not None and await _runs_elsewhere(connection, job, context):
                ran = JobRun("skipped", JobResult(detail=_DONE_ELSEWHERE), started, time.time())
            else:
                outcome, done = await _run_on(connection, job, context, stop_requested or asyncio.Event())
                ran = JobRun(outcome, done, started, time.time())
        except BaseException:
            connection.terminate()
            raise
        if session is None or ran.outcome == "failed":
            connection.terminate()
        else:
            await session.release(connection)
    _update_metrics(job, ran)
    return ran


async def connect(dsn: str, name: str, seconds: float) -> Connection:
    """A connection whose statements end within ``seconds``. Raises what the last address failed with."""
    return await database.connect(dsn, name, _settings(seconds))


def connected(dsn: str, name: str, seconds: float) -> AbstractAsyncContextManager[Connection]:
    """A session as of :func:`connect`, inside the block."""
    return database.connected(dsn, name, _settings(seconds))


def _settings(seconds: float) -> dict[str, str]:
    return {
        "statement_timeout": f"{seconds * 1000:.0f}",
        "lock_timeout": f"{_LOCK_SECONDS * 1000:.0f}",
        "idle_in_transaction_session_timeout": "60000",
        "max_parallel_workers_per_gather": "0",  # one core at most
        "client_connection_check_interval": "2000",  # the statement of a client that was killed ends with it
        "tcp_keepalives_idle": "30",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
    }


async def _runs_elsewhere(connection: Connection, job: Job, context: JobContext) -> bool:
    """Return whether another installation does this job of the database; if it stops, this one does it."""
    if job.per_installation:
        return False
    with suppress(*_FAILURES):  # the run itself says what is wrong
        arguments = (job.name, context.installation, _TAKEOVER_INTERVALS * job.every)
        return bool(await connection.fetchval(load("maintenance")["runs_elsewhere"], *arguments))
    return False


async def _run_on(
    connection: Connection, job: Job, context: JobContext, stop_requested: asyncio.Event
) -> tuple[Outcome, JobResult]:
    queries = load("maintenance")
    locked = False  # then an open run is ours, also one whose insertion was interrupted
    try:
        installation = context.installation
        lock = f"{job.name} {installation}" if job.per_installation else job.name
        locked = await connection.fetchval(queries["try_lock_job"], lock)
        if not locked:
            return "skipped", JobResult(detail=RUNS_ELSEWHERE)
        await connection.execute(queries["insert_run"], job.name, installation, job.per_installation)
        async with asyncio.timeout(job.slice_seconds + _GRACE_SECONDS):
            done = await _run_unless_stopped(stop_requested, job.work(context, connection))
        if isinstance(done, JobSkipped):
            await connection.execute(queries["delete_open_run"], job.name, installation)
            await connection.execute(queries["insert_skipped_run"], job.name, done.why, installation)
            return "skipped", JobResult(detail=done.why)
        await connection.execute(queries["end_run"], job.name, installation, "ok", done.rows, done.bytes, done.detail)
        return "ok", done
    except BaseException as error:
        stopped = isinstance(error, asyncio.CancelledError)
        detail = "stopped; continues after the next start" if stopped else _error_text(first_cause(error))
        if locked:
            await _record_end(connection, job, installation, "skipped" if stopped else "failed", detail)
        if not isinstance(error, _FAILURES):
            raise
        log.warning("%s: %s", job.name, detail)
        return "failed", JobResult(detail=detail)


async def _run_unless_stopped(
    stop_requested: asyncio.Event, work: Coroutine[Any, Any, JobResult | JobSkipped]
) -> JobResult | JobSkipped:
    """Run ``work``, unless it is stopped: then it is cancelled, its statement on the server as well."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop_requested.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        return JobResult(detail="gave way to ingest; continues", more=True)
    finally:
        stopping.cancel()
        working.cancel()
        await asyncio.wait((working,))


async def record_wait(job: Job, context: JobContext, why: str) -> None:
    """Put on record that a job waits. Where that can't be done nothing is on record: the next run will be."""
    with suppress(*_FAILURES):
        async with connected(context.dsn, f"plantlog maintenance: {job.name}", _CONNECT_SECONDS) as connection:
            await connection.execute(load("maintenance")["insert_skipped_run"], job.name, why, context.installation)


async def _record_end(connection: Connection, job: Job, installation: UUID, outcome: Outcome, detail: str) -> None:
    """Put an end on record where the connection still can; else the next run does."""
    with suppress(*_FAILURES):
        async with asyncio.timeout(_RECORD_TIMEOUT):
            await connection.execute(
                load("maintenance")["end_run"], job.name, installation, outcome, None, None, detail
            )


def _error_text(error: BaseException) -> str:
    if isinstance(error, PlantlogError):  # written for people
        return str(error).splitlines()[0]
    return f"{type(error).__name__}: {error}".rstrip(": ").splitlines()[0]


def _update_metrics(job: Job, ran: JobRun) -> None:
    metrics.job_runs.labels(job=job.name, outcome=ran.outcome).inc()
    if ran.done.detail == _DONE_ELSEWHERE:
        metrics.job_last_success.labels(job=job.name).set(ran.ended)
    if ran.outcome == "skipped":
        return
    metrics.job_seconds.labels(job=job.name).observe(ran.ended - ran.started)
    metrics.job_rows.labels(job=job.name).inc(ran.done.rows or 0)
    if ran.outcome == "ok":
        metrics.job_last_success.labels(job=job.name).set(ran.ended)
