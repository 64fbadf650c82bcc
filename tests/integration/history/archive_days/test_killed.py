"""The job is killed at any step: nothing is lost, and the next run goes on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from core.paths import CHECKOUT
from tests.integration.history.archive_maintenance import Maintained
from tests.integration.history.archive_site import problems_of
from tests.waiting import until

_JOB = "tests.integration.history.archive_days.killed_job"
_EVERY = 5  # steps: with 1, the test takes four minutes


class Killed:
    """The process that runs the job."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def run(self, step: int) -> bool:
        """Return whether the job was killed before so many steps, and had not ended."""

        async def outcome() -> str:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(f"{step}\n".encode())
            line = (await self._process.stdout.readline()).decode().strip()
            # The server notices later than we do that a session is gone.
            waits = ("skipped: running in another process", "another session seals")
            return "" if any(text in line for text in waits) else line

        line = await until(outcome)
        assert line == "killed" or line.startswith("ok: "), line
        return bool(line == "killed")


@asynccontextmanager
async def killed(plant: Maintained) -> AsyncIterator[Killed]:
    database, root = plant.site.plant.database, plant.site.plant.state.root
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", _JOB, database.maintenance_dsn, database.owner_dsn, str(root)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=CHECKOUT,
    )
    try:
        yield Killed(process)
    finally:
        process.kill()
        await process.wait()


@pytest.mark.slow
@pytest.mark.timeout(900)  # it begins a process for every kill
async def test_killed_at_any_step_the_job_loses_nothing(plant: Maintained) -> None:
    """Of the first time, and of late samples of a day that was dropped."""
    samples = await plant.stored()
    async with killed(plant) as job:
        first = 1
        while await job.run(first):
            assert {**await plant.stored(), **plant.in_archive()} == samples
            first += _EVERY
        assert plant.in_archive() == samples
        assert await plant.drop() == ["chunk"]
        await plant.late()
        every = {**samples, **await plant.stored()}
        late = 2
        while await job.run(late):
            assert {**await plant.stored(), **plant.in_archive()} == every
            late += _EVERY
    assert plant.in_archive() == every
    assert problems_of(plant.site.opened) == []
    assert await plant.drop() == ["chunk"]
    assert not list(plant.site.folder.glob("incoming/*/*"))
    assert min(first, late) > 50
