"""The appliance's maintenance, by generated time: ``python -m ops.bench.day.keeping STATE CLOCK``, until SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from ingest import log
from ingest.config.snapshot import plant_in_force
from ingest.processes import collectors
from ingest.scheduling import step_back
from ops.bench.day.clock import Clock
from ops.maintenance.jobs import jobs
from ops.maintenance.process import Maintenance, site_in
from ops.maintenance.run import connect
from ops.overload.watch import Watch
from ops.paths import State

_OF_SAMPLES = ("rollups", "compress", "seal", "retain", "analyze")
_LOOK_SECONDS = 0.1
_RECORD_SECONDS = 30.0


async def keep(state: State, clock: Clock) -> None:
    """All jobs; those that have to do with samples as often as in a day, of generated time."""
    task, parent = asyncio.current_task(), os.getppid()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    site = site_in(state)
    maintenance = Maintenance(site)
    plant = plant_in_force(state.root, tags_of=())
    polling = collectors(plant, "modbus")
    told = "plantlog maintenance: overload"
    watch = Watch(state, polling, plant.health, lambda: connect(site.dsn, told, _RECORD_SECONDS))
    every = {job.name: round(job.every * 1e6) for job in jobs() if job.name in _OF_SAMPLES}
    ran = dict.fromkeys(every, clock.generated)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(maintenance.run(watch))
        while os.getppid() == parent:
            await asyncio.sleep(_LOOK_SECONDS)
            now = clock.generated
            for name in [name for name, last in ran.items() if now - last >= every[name]]:
                ran[name] = now
                maintenance.due(name)
        running.cancel()


if __name__ == "__main__":
    step_back()
    log.begin()
    try:
        asyncio.run(keep(State(Path(sys.argv[1])), Clock(Path(sys.argv[2]))))
    except asyncio.CancelledError:
        sys.exit(0)
