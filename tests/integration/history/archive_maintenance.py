"""A plant whose maintenance archives: setup for tests of the job, and of retention after it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from core.timestamps import begin
from ops.maintenance.job import RUNS_ELSEWHERE, Job, JobContext, JobRun, run
from ops.maintenance.jobs import jobs
from tests.config_in_force import activate
from tests.database import Database
from tests.integration.history.archive_site import Site, archive_site
from tests.integration.history.sealed_plant import DAY
from tests.sample_tables import HOUR_US, Sample, bits
from tests.waiting import until

_PLANT = """
[plant]
name = "north"
[archive]
location = "{location}"
[[source]]
name = "plc"
kind = "modbus"
address = "tcp://127.0.0.1:502"
tags = "tags.csv"
"""
_STORED = """
SELECT s.channel_id, (extract(epoch FROM s.time) * 1000000)::int8 AS time, s.value, s.status
FROM plant.samples AS s
WHERE s.time >= $1 AND s.time < $2
"""
_ARCHIVING = "UPDATE plant.installation SET archive_from = '-infinity', archive_location = $1"
Key = tuple[int, int]  # channel, time (µs)


class Maintained:
    """A plant whose configuration names an archive."""

    def __init__(self, site: Site, maintenance_dsn: str) -> None:
        self.site = site
        self.owner = site.plant.owner
        state = site.plant.state
        self._context = JobContext(maintenance_dsn, site.plant.database.owner_dsn, state)

    async def job(self, name: str = "archive", of: Sequence[Job] | None = None) -> JobRun:
        """Run the job once, as a new process does: the server may not have noticed yet that the last one is gone.

        ``of``: those of a process that goes on.
        """

        async def ran() -> JobRun | None:
            done = await run(next(job for job in of or jobs() if job.name == name), self._context)
            return None if done.done.detail == RUNS_ELSEWHERE else done

        found: JobRun = await until(ran)
        return found

    async def archived(self) -> list[tuple[Any, ...]]:
        """Day, revision and number of amendments of the days with samples."""
        query = "SELECT day, revision, amendments FROM plant.archived_day WHERE samples > 0 ORDER BY day"
        rows = await self.owner.fetch(query)
        return [tuple(row) for row in rows]

    async def drop(self, day: date = DAY, classes: Sequence[str] | None = None) -> list[str]:
        """Drop the samples of a day like retention. Returns the action for each unit."""
        query = (
            "SELECT s.action FROM plant.retention_units('raw') AS u "
            "CROSS JOIN LATERAL plant.drop_slice('raw', u.relation, u.from_time, u.to_time, $2, 'age', false) AS s "
            "WHERE u.from_time = $1"
        )
        return [row["action"] for row in await self.owner.fetch(query, begin(day), classes)]

    async def late(self, name: str = "unit/pressure", samples: Sequence[Sample] = ()) -> None:
        """Samples arrive; by default one of the first day."""
        await self.site.plant.late(name, samples or [(9 * HOUR_US, bits(1.0), 0)])

    async def stored(self, day: date = DAY) -> dict[Key, tuple[int, int]]:
        """Samples of a day in the database."""
        rows = await self.owner.fetch(_STORED, begin(day), begin(day, 24))
        return {(row["channel_id"], row["time"]): (bits(row["value"]), row["status"] & 0xFFFFFFFF) for row in rows}

    def in_archive(self, day: date = DAY) -> dict[Key, tuple[int, int]]:
        """Samples of a day in the archive, each once."""
        if not self.site.folder.joinpath("manifests").is_dir():
            return {}
        table = self.site.opened.samples(["*"], begin(day), begin(day, 24))
        keys = zip(table["channel_id"].to_pylist(), table["time"].cast(pa.int64()).to_pylist(), strict=True)
        values = zip(table["value"].to_numpy().view(np.uint64).tolist(), table["status"].to_pylist(), strict=True)
        found = dict(zip(keys, values, strict=True))
        assert len(found) == len(table)
        return found


@asynccontextmanager
async def maintained_plant(database: Database, folder: Path) -> AsyncIterator[Maintained]:
    """Plant with two sealed days that are not archived yet."""
    async with archive_site(database, folder) as site:
        yield await maintained(site, folder)


@pytest.fixture
async def plant(database: Database, tmp_path: Path) -> AsyncIterator[Maintained]:
    """Two days."""
    async with maintained_plant(database, tmp_path) as made:
        yield made


async def maintained(site: Site, folder: Path) -> Maintained:
    """A site, with a configuration in ``folder``."""
    (folder / "plant.toml").write_text(_PLANT.format(location=site.folder))
    (folder / "tags.csv").write_text("name,address\na/level,holding:0\n")
    activate(site.plant.state.root, folder / "plant.toml")
    await site.plant.owner.execute(_ARCHIVING, str(site.folder))
    await site.plant.owner.execute("DELETE FROM plant.rollup_dirty")
    return Maintained(site, site.plant.database.maintenance_dsn)
