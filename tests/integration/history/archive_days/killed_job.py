"""Runs the job that archives, and kills it: a process of its own, which forks for each number that it is told.

Arguments: the DSNs of maintenance and of the owner, and the state folder. A line with N: the run is killed before its
step N, which is an access to the storage or a statement. It answers with the run's outcome, or ``killed``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import asyncpg

from core.paths import State
from history.archive.location import Location
from ops.maintenance.job import JobContext, run
from ops.maintenance.jobs import jobs

_STEPS = {
    Location: ("created", "write", "move", "opened", "read", "digest", "size", "listing", "remove", "clear"),
    asyncpg.Connection: ("execute", "fetch", "fetchrow", "fetchval"),
}


def _count(left: int) -> None:
    """Be killed before so many steps more."""

    def counted(original: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        return step

    for kind, names in _STEPS.items():
        for name in names:
            setattr(kind, name, counted(getattr(kind, name)))


def _main() -> None:
    context = JobContext(sys.argv[1], sys.argv[2], State(Path(sys.argv[3])))
    job = next(job for job in jobs() if job.name == "archive")
    for line in sys.stdin:
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            _count(int(line))
            ran = asyncio.run(run(job, context))
            os.write(writing, f"{ran.outcome}: {ran.done.detail}".encode())
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        print(os.read(reading, 1000).decode() or "killed", flush=True)
        os.close(reading)


if __name__ == "__main__":
    _main()
