"""Maintenance process on simulated time: ``python -m lab.bench.day.maintenance_process STATE CLOCK``, until SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from core import log
from core.config.processes import collectors
from core.config.snapshot import plant_in_force
from core.paths import State
from core.process.scheduling import lower_priority
from lab.bench.day.clock import Clock
from ops.maintenance.job import connect
from ops.maintenance.jobs import jobs
from ops.maintenance.overload.monitor import OverloadMonitor
from ops.maintenance.process import Maintenance, job_context

_SAMPLE_JOBS = ("rollups", "compress", "seal", "retain", "analyze")
_POLL_SECONDS = 0.1
_RETRY_SECONDS = 1.0  # between runs of a job while generated time waits for its result
_RECORD_SECONDS = 30.0


async def run_maintenance(state: State, clock: Clock) -> None:
    """Run all jobs; those that have to do with samples as often as in a day, of generated time."""
    task, parent = asyncio.current_task(), os.getppid()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    context = job_context(state)
    maintenance = Maintenance(context)
    plant = plant_in_force(state.root, tags_of=())
    polling = collectors(plant, "modbus")
    application_name = "plantlog maintenance: overload"
    overload_monitor = OverloadMonitor(
        state, polling, plant.health, lambda: connect(context.dsn, application_name, _RECORD_SECONDS)
    )
    intervals = {job.name: round(job.every * 1e6) for job in jobs() if job.name in _SAMPLE_JOBS}
    last_run = dict.fromkeys(intervals, clock.generated)
    retried_at = 0.0
    async with asyncio.TaskGroup() as group:
        running = group.create_task(maintenance.run(overload_monitor))
        while os.getppid() == parent:
            await asyncio.sleep(_POLL_SECONDS)
            now = clock.generated
            for name in [name for name, last in last_run.items() if now - last >= intervals[name]]:
                last_run[name] = now
                maintenance.due(name)
            if now >= clock.allowed and time.monotonic() - retried_at >= _RETRY_SECONDS:
                retried_at = time.monotonic()
                maintenance.due("compress")  # its last run may have had the lateness of an earlier time
        running.cancel()


if __name__ == "__main__":
    lower_priority()
    log.configure()
    try:
        asyncio.run(run_maintenance(State(Path(sys.argv[1])), Clock(Path(sys.argv[2]))))
    except asyncio.CancelledError:
        sys.exit(0)
