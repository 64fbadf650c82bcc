"""The whole appliance as a user runs it: ``./plantlog up`` in a state folder of its own."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg

from core.paths import CHECKOUT, State
from ops.appliance.status import StatusMonitor
from ops.appliance.supervisor import Supervisor
from simulator.compare import compare
from simulator.compare_samples import Comparison
from tests.waiting import until

NEWEST = """
SELECT (extract(epoch FROM min(newest)) * 1000000)::int8
FROM (SELECT max(b.last_time) AS newest FROM plant.ingest_batch AS b WHERE b.kind = 'samples' GROUP BY b.source_id)
"""


class Appliance:
    """One that runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.supervisor = Supervisor(State(root))

    def plantlog(self, *arguments: str) -> str:
        """``./plantlog`` with arguments; its output. Fails the test with what it said."""
        environment = {**os.environ, "PLANTLOG_STATE": str(self.root)}
        command = [str(CHECKOUT / "plantlog"), *arguments]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    def status(self) -> dict[str, Any]:
        """Status as ``status --json`` prints it, without a process for it."""
        with ThreadPoolExecutor(1) as thread:  # a loop may run in this one
            return thread.submit(StatusMonitor(State(self.root)).snapshot).result()

    def writer_ready(self) -> bool:
        """Return whether the writer can write."""
        return any(p["name"] == "writer" and p["ready"] for p in self.status()["processes"])

    def kill(self, process: str) -> int:
        """SIGKILL one process; its pid."""
        (pid,) = [p["pid"] for p in self.status()["processes"] if p["name"] == process]
        os.kill(pid, signal.SIGKILL)
        return int(pid)

    async def fetchval(self, query: str) -> Any:
        """One value, as the reader."""
        connection = await asyncpg.connect((self.root / "secrets" / "reader.dsn").read_text().strip())
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    async def until_stored(self, us: int) -> None:
        """Wait until every source has samples later than ``us`` in the table, and none earlier waits in a spool.

        Both: after a failure one connection may still hold an older group while the other writes newer ones.
        """

        async def stored() -> bool:
            return await self._newest() > us and self.oldest_waiting() > us

        await until(stored, 180, 0.2, lambda: self.plantlog("status", "--once"))

    def oldest_waiting(self) -> float:
        """The oldest source time (µs) in the spools; infinite where they are empty."""
        oldest = math.inf
        for path in (self.root / "spool").glob("*.sqlite"):
            connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            (first,) = connection.execute("SELECT min(first_time) FROM batch").fetchone()
            connection.close()
            oldest = min(oldest, math.inf if first is None else first)
        return oldest

    async def _newest(self) -> int:
        try:
            return int(await self.fetchval(NEWEST) or 0)
        except (OSError, asyncpg.PostgresError):  # the database is away, as some tests want it
            return 0

    async def compared(self, from_us: int, to_us: int) -> dict[str, Comparison]:
        """Ground truth and table, once both reach ``to_us``."""
        await self.until_stored(to_us + 1_000_000)
        dsn = (self.root / "secrets" / "reader.dsn").read_text().strip()
        return await compare(self.root / "simulator" / "truth", dsn, from_us, to_us)


@contextmanager
def running(root: Path, *arguments: str) -> Iterator[Appliance]:
    """Up inside the block; everything ended behind it."""
    appliance = Appliance(root)
    try:
        appliance.plantlog("up", *arguments)
        yield appliance
    finally:
        appliance.plantlog("down", "--wipe", "--yes")
