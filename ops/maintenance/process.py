"""The maintenance process: runs each job when it is due; a failing job does not stop the others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core import metrics
from core.backoff import exponential
from core.certificates.expiry import measure_certificates
from core.config.https import TlsSettings
from core.config.options import table_in_force
from core.config.settings import MaintenanceSettings
from core.errors import first_cause
from core.paths import State
from core.process import health_page
from core.process.entry import run_until
from core.servers import health
from core.timestamps import now_us
from ops.maintenance.job import (
    RUNS_ELSEWHERE,
    Job,
    JobConnection,
    JobContext,
    JobResult,
    JobRun,
    connect,
    record_wait,
    run,
)
from ops.maintenance.jobs import jobs
from ops.maintenance.overload.monitor import OverloadMonitor
from ops.maintenance.throttle import Throttle

log = logging.getLogger(__name__)

_DRAIN_SECONDS = 8.0
_RETRY_SECONDS = 10.0  # until a job that another process runs is looked at again: it may be one that was killed
_RECORD_SECONDS = 30.0
_BACKOFF_MIN = 5.0  # s, after the first failure
_BACKOFF_MAX = 300.0
_WAKE_SECONDS = 3600.0  # s until retention is tried again for a budget that could not be reached


@dataclass(slots=True)
class JobState:
    """State of a job."""

    job: Job
    session: JobConnection
    next: float  # s since 1970
    running: bool = False
    waiting_since: float | None = None  # s since 1970: it is due, and not running yet
    failures: int = 0  # in a row
    last_run: JobRun | None = None
    due: asyncio.Event = field(default_factory=asyncio.Event)  # set: at once, whatever the time

    def report(self, waits: str) -> dict[str, Any]:
        """Report for ``/health`` and ``status``; times in s since 1970. ``waits``: why it does, where it is due."""
        last_run = self.last_run
        return {
            "name": self.job.name,
            "about": self.job.about,
            "state": "running" if self.running else "waiting",
            "waits": waits if self.waiting_since is not None else "",
            "outcome": last_run and last_run.outcome,
            "started_at": last_run and last_run.started,
            "seconds": last_run and last_run.ended - last_run.started,
            "rows": last_run and last_run.done.rows,
            "bytes": last_run and last_run.done.bytes,
            "detail": last_run.done.detail if last_run else "",
            "failures": self.failures,
            "next_at": self.next,
        }


class Maintenance:
    """All jobs of one process."""

    def __init__(self, context: JobContext, jobs_to_run: Sequence[Job] | None = None) -> None:
        self._context = context
        self._job_states = {
            job.name: JobState(job, JobConnection(job, context), time.time()) for job in jobs_to_run or jobs()
        }
        self._heavy = asyncio.Semaphore(1)
        self.throttle = Throttle()
        self._woken_at = 0.0  # when retention was last started for the budget's sake
        self.database = "not connected yet"

    def reports(self) -> list[dict[str, Any]]:
        """Reports of each job."""
        return [
            job_state.report(self.throttle.wait_reason(job_state.job.name)) for job_state in self._job_states.values()
        ]

    def due(self, name: str) -> None:
        """Run a job at once, whatever the time."""
        self._job_states[name].due.set()

    async def run(self, overload_monitor: OverloadMonitor | None = None) -> None:
        """Run until cancelled. Whatever is under way is ended on the server too, and goes on with the next start."""
        try:
            async with asyncio.TaskGroup() as group:
                if overload_monitor is not None:
                    monitoring = overload_monitor.run(self.throttle.observe, lambda: self.database == "connected")
                    group.create_task(monitoring, name="overload")
                for job_state in self._job_states.values():
                    group.create_task(self._run_when_due(job_state), name=job_state.job.name)
        finally:
            for job_state in self._job_states.values():
                job_state.session.close()

    async def _run_when_due(self, job_state: JobState) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, job_state.next - time.time())):
                    await job_state.due.wait()
            job_state.due.clear()
            job_state.waiting_since = time.time()
            async with self._heavy if job_state.job.heavy else nullcontext():
                if self.throttle.waits(job_state.job.name):
                    await record_wait(job_state.job, self._context, self.throttle.wait_reason(job_state.job.name))
                async with self.throttle.turn(job_state.job.name) as stop_requested:
                    job_state.waiting_since = None
                    await self._run_once(job_state, stop_requested)

    async def _run_once(self, job_state: JobState, stop_requested: asyncio.Event) -> None:
        job_state.running = True
        try:
            last_run = await run(job_state.job, self._context, stop_requested, job_state.session)
        except Exception as error:  # our own mistake in one job: the others go on
            log.exception("job %s failed unexpectedly", job_state.job.name)
            now = time.time()
            cause = first_cause(error)
            last_run = JobRun("failed", JobResult(detail=f"{type(cause).__name__}: {cause}"), now, now)
        finally:
            job_state.running = False
        self._record(job_state, last_run)

    def _record(self, job_state: JobState, last_run: JobRun) -> None:
        if last_run.away and self.database == "connected":
            log.warning("%s; retrying", last_run.done.detail)
        self.database = f"unreachable: {last_run.done.detail}" if last_run.away else "connected"
        job_state.last_run = last_run
        job_state.failures = job_state.failures + 1 if last_run.outcome == "failed" else 0
        metrics.job_failing.labels(job=job_state.job.name).set(job_state.failures)
        interval = (
            min(job_state.job.every, _RETRY_SECONDS) if last_run.done.detail == RUNS_ELSEWHERE else job_state.job.every
        )
        job_state.next = next_start(interval, last_run.started, last_run.ended, job_state.failures, last_run.done.more)
        if last_run.done.wake:
            self._wake(last_run.done.wake)

    def _wake(self, name: str) -> None:
        """The budget is exceeded: retention works at once, unless a recent run found that it can't help."""
        last_run = self._job_states[name].last_run
        if (last_run is not None and last_run.done.bytes) or time.time() - self._woken_at > _WAKE_SECONDS:
            self._woken_at = time.time()
            self.due(name)


async def run_maintenance(settings: MaintenanceSettings, state: Path, stop: asyncio.Event) -> None:
    """Keep the database in shape until ``stop``. Ready means that the database answers."""
    context = job_context(State(state))
    maintenance = Maintenance(context)
    overload_monitor = OverloadMonitor(
        context.state,
        settings.polling,
        settings.health,
        lambda: connect(context.dsn, "plantlog maintenance: overload", _RECORD_SECONDS),
    )
    since = now_us()

    async def report() -> health.HealthReport:
        return {
            "process": "maintenance",
            "ready": maintenance.database == "connected",
            "alive": True,
            "since": since,
            "database": maintenance.database,
            "jobs": maintenance.reports(),
            "overload": overload_monitor.overload.report(),
            "certificates": await asyncio.to_thread(certificate_faults, settings.servers, state),
        }

    async with health_page.serve("maintenance", settings, report, state):
        await run_until(stop, maintenance.run(overload_monitor), _DRAIN_SECONDS)
        log.info("stopped; what was running continues after the next start")


def certificate_faults(servers: TlsSettings, state: Path) -> list[str]:
    """Faults of the certificates of the servers and of the cluster that computes questions, now or soon."""
    file, problem = servers.certificate_file(state), servers.problem()
    of_cluster = table_in_force(state, "questions")
    files = [file, *(Path(of_cluster[name]) for name in ("ca_file", "certificate_file") if name in of_cluster)]
    expiring = measure_certificates([file for file in files if file is not None])
    return [*map(str, expiring), *([] if problem is None else [problem])]


def job_context(state: State) -> JobContext:
    """The database of a state folder. Raises OperationError where there is none."""
    return JobContext(state.dsn("maintenance"), state.dsn("owner"), state)


def next_start(interval: float, started: float, ended: float, failures: int, more: bool = False) -> float:
    """Time (s) of the next start, never before ``ended``.

    ``every``: seconds between starts; ``failures``: failed runs in a row up to this one; ``more``: a time slice was
    used up and work is left. A run that takes longer than ``every`` is followed at once, not by all that were missed.
    """
    if failures:
        return ended + backoff(failures)
    return ended if more else max(ended, started + interval)


def backoff(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    return exponential(failures, _BACKOFF_MIN, _BACKOFF_MAX)
