"""The process that keeps the database in shape: each job at its time, none of them stopped by another's failure."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest import health, metrics
from ingest.batch import now_us
from ingest.config.model import Plant
from ingest.errors import OperationError
from ingest.processes import collectors, port
from ops.maintenance.jobs import jobs
from ops.maintenance.run import ELSEWHERE, Done, Job, Ran, Session, Site, connect, note_wait, run
from ops.maintenance.schedule import next_start
from ops.maintenance.yielding import Yielding
from ops.overload.watch import Watch
from ops.paths import State

log = logging.getLogger(__name__)

_DRAIN_SECONDS = 8.0
_ELSEWHERE_SECONDS = 10.0  # until a job that another process runs is looked at again: it may be one that was killed
_RECORD_SECONDS = 30.0
_WOKEN_AGAIN = 3600.0  # s until retention is tried again for a budget that could not be reached


@dataclass(slots=True)
class Kept:
    """What is known of a job while the process lives."""

    job: Job
    session: Session
    next: float  # s since 1970
    running: bool = False
    due_since: float | None = None  # s since 1970: it is due, and not running yet
    failures: int = 0  # in a row
    ran: Ran | None = None
    due: asyncio.Event = field(default_factory=asyncio.Event)  # set: at once, whatever the time

    def report(self, waits: str) -> dict[str, Any]:
        """As ``/health`` and ``status`` show it; times in s since 1970. ``waits``: why it does, where it is due."""
        ran = self.ran
        return {
            "name": self.job.name,
            "about": self.job.about,
            "state": "running" if self.running else "waiting",
            "waits": waits if self.due_since is not None else "",
            "outcome": ran and ran.outcome,
            "started_at": ran and ran.started,
            "seconds": ran and ran.ended - ran.started,
            "rows": ran and ran.done.rows,
            "bytes": ran and ran.done.bytes,
            "detail": ran.done.detail if ran else "",
            "failures": self.failures,
            "next_at": self.next,
        }


class Maintenance:
    """All jobs of one process."""

    def __init__(self, site: Site, todo: Sequence[Job] | None = None) -> None:
        self._site = site
        self._kept = {job.name: Kept(job, Session(job, site), time.time()) for job in todo or jobs()}
        self._heavy = asyncio.Semaphore(1)
        self.yielding = Yielding()
        self._woken = 0.0  # when retention was last started for the budget's sake
        self.database = "not asked yet"

    def reports(self) -> list[dict[str, Any]]:
        """What is known of each job."""
        return [kept.report(self.yielding.why(kept.job.name)) for kept in self._kept.values()]

    def due(self, name: str) -> None:
        """Run a job at once, whatever the time."""
        self._kept[name].due.set()

    async def run(self, watch: Watch | None = None) -> None:
        """Run until cancelled. Whatever is under way is ended on the server too, and goes on with the next start."""
        try:
            async with asyncio.TaskGroup() as group:
                if watch is not None:
                    watching = watch.run(self.yielding.look, lambda: self.database == "connected")
                    group.create_task(watching, name="overload")
                for kept in self._kept.values():
                    group.create_task(self._keep(kept), name=kept.job.name)
        finally:
            for kept in self._kept.values():
                kept.session.close()

    async def _keep(self, kept: Kept) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, kept.next - time.time())):
                    await kept.due.wait()
            kept.due.clear()
            kept.due_since = time.time()
            async with self._heavy if kept.job.heavy else nullcontext():
                if self.yielding.waits(kept.job.name):
                    await note_wait(kept.job, self._site, self.yielding.why(kept.job.name))
                async with self.yielding.turn(kept.job.name) as give_way:
                    kept.due_since = None
                    await self._once(kept, give_way)

    async def _once(self, kept: Kept, give_way: asyncio.Event) -> None:
        kept.running = True
        try:
            ran = await run(kept.job, self._site, give_way, kept.session)
        except Exception as error:  # our own mistake in one job: the others go on
            log.exception("%s failed in a way nobody foresaw", kept.job.name)
            now = time.time()
            ran = Ran("failed", Done(detail=f"{type(error).__name__}: {error}"), now, now)
        finally:
            kept.running = False
        self._note(kept, ran)

    def _note(self, kept: Kept, ran: Ran) -> None:
        if ran.away and self.database == "connected":
            log.warning("%s; waiting for it", ran.done.detail)
        self.database = f"unreachable: {ran.done.detail}" if ran.away else "connected"
        kept.ran = ran
        kept.failures = kept.failures + 1 if ran.outcome == "failed" else 0
        metrics.job_failing.labels(job=kept.job.name).set(kept.failures)
        every = min(kept.job.every, _ELSEWHERE_SECONDS) if ran.done.detail == ELSEWHERE else kept.job.every
        kept.next = next_start(every, ran.started, ran.ended, kept.failures, ran.done.more)
        if ran.done.wake:
            self._wake(ran.done.wake)

    def _wake(self, name: str) -> None:
        """The budget is exceeded: retention works at once, unless it was found of late that it can't help."""
        ran = self._kept[name].ran
        if (ran is not None and ran.done.bytes) or time.time() - self._woken > _WOKEN_AGAIN:
            self._woken = time.time()
            self.due(name)


async def run_maintenance(plant: Plant, state: Path, stop: asyncio.Event) -> None:
    """Keep the database in shape until ``stop``. Ready means that the database answers."""
    site = site_in(State(state))
    maintenance = Maintenance(site)
    watch = Watch(
        site.state,
        collectors(plant, "modbus"),
        plant.health,
        lambda: connect(site.dsn, "plantlog maintenance: overload", _RECORD_SECONDS),
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
            "overload": watch.overload.report(),
        }

    async with health.serve(plant.health.host, port("maintenance", plant.health), report):
        working = asyncio.create_task(maintenance.run(watch))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if working.done():
            working.result()  # which raises: it ends only by our own mistake
        working.cancel()
        log.info("stopping: what is under way is ended; it goes on with the next start")
        await asyncio.wait((working,), timeout=_DRAIN_SECONDS)


def site_in(state: State) -> Site:
    """The database of a state folder. Raises OperationError where there is none."""
    return Site(_dsn(state, "maintenance"), _dsn(state, "owner"), state)


def _dsn(state: State, role: str) -> str:
    path = state.dsn_file(role)
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        raise OperationError(f"{path} is missing: `plantlog up` makes it") from None
