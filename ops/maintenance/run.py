"""One run of a job: bounded, on record, and never two of the same job at once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import asyncpg

from ingest import metrics
from ingest.errors import PlantlogError
from ingest.scheduling import step_back
from ingest.writer.connection import addresses
from ops.maintenance.yielding import ORDER
from ops.paths import State
from schema.queries import load

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0
_OFTEN_SECONDS = 60.0  # between runs of a job that keeps its connection
_LOCK_SECONDS = 2.0  # nobody else waits long behind a lock that we wait for
_GRACE_SECONDS = 10.0  # the server's own time-out comes first: it tells what it was
_END_SECONDS = 2.0
ELSEWHERE = "another process runs it"

Connection: TypeAlias = "asyncpg.Connection[Any]"
Outcome: TypeAlias = Literal["ok", "failed", "skipped"]
_FAILURES = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    PlantlogError,
)


@dataclass(frozen=True, slots=True)
class Site:
    """Where jobs work."""

    dsn: str  # of the login for maintenance
    owner_dsn: str
    state: State

    @property
    def server_is_here(self) -> bool:
        """Whether the server is the state folder's own, so that its processes are this machine's."""
        return (self.state.root / "postgres" / "cluster").exists()


@dataclass(frozen=True, slots=True)
class Done:
    """What a run did."""

    rows: int | None = None
    bytes: int | None = None
    detail: str = ""
    more: bool = False  # work is left: go on at once
    wake: str = ""  # the job that has to run at once


@dataclass(frozen=True, slots=True)
class Skip:
    """Why there is nothing to run."""

    why: str


@dataclass(frozen=True, slots=True)
class Job:
    """Something to be done again and again."""

    name: str
    every: float  # s between starts
    slice: float  # s that one statement may take; what is not done then is for the next run
    heavy: bool  # reads or writes much: one of these at a time
    work: Callable[[Site, Connection], Coroutine[Any, Any, Done | Skip]]
    about: str
    owner: bool = False  # compressing and dropping what was packed takes the tables' owner, and so do seals


@dataclass(frozen=True, slots=True)
class Ran:
    """How a run ended."""

    outcome: Outcome
    done: Done
    started: float  # s since 1970
    ended: float
    away: bool = False  # the database could not be reached


class Session:
    """The connection of a job, which is kept between runs that are often: making one costs more than most of them."""

    def __init__(self, job: Job, site: Site) -> None:
        self._job, self._site = job, site
        self._kept: Connection | None = None

    async def open(self) -> Connection:
        """One that answers. Raises what :func:`connect` does."""
        connection, self._kept = self._kept, None
        if connection is not None and await _is_reset(connection):
            return connection
        dsn = self._site.owner_dsn if self._job.owner else self._site.dsn
        connection = await connect(dsn, f"plantlog maintenance: {self._job.name}", self._job.slice)
        if self._site.server_is_here and self._job.name in ORDER:
            step_back(connection.get_server_pid())
        return connection

    async def give_back(self, connection: Connection) -> None:
        """A run that did not fail is over."""
        if self._job.every > _OFTEN_SECONDS:
            connection.terminate()
        elif await _is_reset(connection):
            self._kept = connection

    def close(self) -> None:
        """No run follows."""
        if self._kept is not None:
            self._kept.terminate()


async def _is_reset(connection: Connection) -> bool:
    """Whether the session answers, and has no lock any more; else it is ended."""
    try:
        await connection.reset(timeout=_CONNECT_SECONDS)
    except BaseException as error:
        connection.terminate()
        if isinstance(error, _FAILURES):
            return False
        raise
    return True


async def run(job: Job, site: Site, give_way: asyncio.Event | None = None, session: Session | None = None) -> Ran:
    """Run a job once. Never raises for what goes wrong in it; cancelled, it ends what it does on the server too.

    ``give_way``: set, the run ends, and goes on when there is room for it. ``session``: the job's own, if it has runs
    to come.
    """
    started = time.time()
    own = session or Session(job, site)
    try:
        connection = await own.open()
    except _FAILURES as error:
        ran = Ran("failed", Done(detail=f"database: {_said(error)}"), started, time.time(), away=True)
    else:
        try:
            outcome, done = await _on(connection, job, site, give_way or asyncio.Event())
            ran = Ran(outcome, done, started, time.time())
        except BaseException:
            connection.terminate()
            raise
        if session is None or outcome == "failed":
            connection.terminate()
        else:
            await session.give_back(connection)
    _count(job, ran)
    return ran


async def connect(dsn: str, name: str, seconds: float) -> Connection:
    """A connection whose statements end within ``seconds``. Raises what the last address failed with."""
    settings = {
        "application_name": name[:63],
        "statement_timeout": f"{seconds * 1000:.0f}",
        "lock_timeout": f"{_LOCK_SECONDS * 1000:.0f}",
        "idle_in_transaction_session_timeout": "60000",
        "max_parallel_workers_per_gather": "0",  # one core at most
        "client_connection_check_interval": "2000",  # the statement of a client that was killed ends with it
        "tcp_keepalives_idle": "30",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
    }
    failed: Exception = OSError("no address")
    for address in addresses(dsn):
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await asyncpg.connect(address, server_settings=settings)
        except _FAILURES as error:
            failed = error
    raise failed


async def _on(connection: Connection, job: Job, site: Site, give_way: asyncio.Event) -> tuple[Outcome, Done]:
    queries = load("maintenance")
    run_id: int | None = None
    try:
        if not await connection.fetchval(queries["lock"], job.name):
            return "skipped", Done(detail=ELSEWHERE)
        run_id = await connection.fetchval(queries["begin"], job.name)
        async with asyncio.timeout(job.slice + _GRACE_SECONDS):
            done = await _unless(give_way, job.work(site, connection))
        if isinstance(done, Skip):
            await connection.execute(queries["unbegin"], run_id)
            await connection.execute(queries["skip"], job.name, done.why)
            return "skipped", Done(detail=done.why)
        await connection.execute(queries["end"], run_id, "ok", done.rows, done.bytes, done.detail)
    except asyncio.CancelledError:
        await _last_word(connection, run_id, "skipped", "stopped; it goes on with the next start")
        raise
    except _FAILURES as error:
        said = _said(error)
        log.warning("%s: %s", job.name, said)
        await _last_word(connection, run_id, "failed", said)
        return "failed", Done(detail=said)
    return "ok", done


async def _unless(give_way: asyncio.Event, work: Coroutine[Any, Any, Done | Skip]) -> Done | Skip:
    """What ``work`` did; told to give way it is cancelled, its statement on the server as well."""
    working, told = asyncio.ensure_future(work), asyncio.ensure_future(give_way.wait())
    try:
        await asyncio.wait((working, told), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        return Done(detail="gave way to ingest; it goes on", more=True)
    finally:
        told.cancel()
        working.cancel()
        await asyncio.wait((working,))


async def note_wait(job: Job, site: Site, why: str) -> None:
    """Put on record that a job waits. Where that can't be done nothing is on record: the next run will be."""
    with suppress(*_FAILURES):
        connection = await connect(site.dsn, f"plantlog maintenance: {job.name}", _CONNECT_SECONDS)
        try:
            await connection.execute(load("maintenance")["skip"], job.name, why)
        finally:
            connection.terminate()


async def _last_word(connection: Connection, run_id: int | None, outcome: Outcome, detail: str) -> None:
    """Put an end on record where the connection still can; else the next run does."""
    with suppress(*_FAILURES):
        async with asyncio.timeout(_END_SECONDS):
            await connection.execute(load("maintenance")["end"], run_id, outcome, None, None, detail)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ").splitlines()[0]


def _count(job: Job, ran: Ran) -> None:
    metrics.job_runs.labels(job=job.name, outcome=ran.outcome).inc()
    if ran.outcome == "skipped":
        return
    metrics.job_seconds.labels(job=job.name).observe(ran.ended - ran.started)
    metrics.job_rows.labels(job=job.name).inc(ran.done.rows or 0)
    if ran.outcome == "ok":
        metrics.job_last_success.labels(job=job.name).set(ran.ended)
