"""The jobs of maintenance: what each does, how often, and how long a statement of it may take."""

from __future__ import annotations

import logging
import shutil
import time
from datetime import UTC, datetime, timedelta

import asyncpg

from ingest import metrics
from ingest.errors import DatabaseError
from ingest.scheduling import step_back
from ops import presence
from ops.evidence.seal import seal_closed
from ops.maintenance.budget import Unit, days_left, growth
from ops.maintenance.readers import end_sessions, restore_login
from ops.maintenance.retain import Retention
from ops.maintenance.run import Connection, Done, Job, Site, Skip
from ops.maintenance.settings import settings
from schema.queries import load

log = logging.getLogger(__name__)

_TRIMMED = 20_000  # rows that one DELETE takes
_ANALYSED = 20  # chunks a run
_GROWTH_SECONDS = 3600.0  # growth is of days: it is looked at this often
_LOW_DAYS = 7.0
_HELD = 1.1
_SLICE_USED = Done(detail="the time slice is used up; it goes on", more=True)


def jobs() -> tuple[Job, ...]:
    """All of them, in the order in which they are shown."""
    return (
        Job(
            "rollups",
            10.0,
            60.0,
            False,
            refresh_rollups,
            "make minutes and hours anew where data came or went",
            owner=True,
        ),
        Job("compress", 600.0, 600.0, True, compress, "bring closed hours into their compressed form", owner=True),
        Job("seal", 600.0, 1800.0, True, seal, "seal closed days", owner=True),
        Job("retain", 3600.0, 600.0, False, Retention().work, "drop what the rules say goes"),
        Job("analyze", 900.0, 300.0, True, analyze, "statistics of closed chunks"),
        Job("ahead", 3600.0, 30.0, False, chunks_ahead, "chunks of tomorrow"),
        Job("trim", 3600.0, 60.0, False, trim, "old facts of batches, refused rows and runs"),
        Job("readers", 10.0, 30.0, False, end_sessions, "end sessions of readers that last too long or hold too much"),
        Job("logins", 60.0, 30.0, False, restore_login, "give the reader's login its password and limits back"),
        Job("presence", 10.0, 30.0, False, present, "say where this installation runs, so that no copy does beside it"),
        Job("storage", 60.0, 60.0, False, Storage().work, "measure the database and how long the room lasts"),
    )


async def refresh_rollups(site: Site, connection: Connection) -> Done:
    """``plant.refresh_rollups()``: commits as it goes, as :func:`compress` does."""
    try:
        await connection.execute(load("maintenance")["refresh_rollups"])
    except asyncpg.QueryCanceledError:
        return _SLICE_USED
    return Done()


async def compress(site: Site, connection: Connection) -> Done:
    """``plant.compress_before``: commits as it goes, so that the end of the time slice costs nothing that was done."""
    queries = load("maintenance")
    said = await settings(connection)
    try:
        await connection.execute(queries["compress"], said.late_until)
    except asyncpg.QueryCanceledError:
        return _SLICE_USED
    return Done(detail=f"hours before {said.late_until:%Y-%m-%d %H:%M} UTC")


async def seal(site: Site, connection: Connection) -> Done | Skip:
    """``ops.evidence.seal.seal_closed``, where days are sealed."""
    said = await settings(connection)
    if not said.sealing:
        return Skip("[sealing] enabled = false")
    # It has a session of its own, which steps back as the job's does.
    begun = step_back if site.server_is_here else lambda pid: None
    days = await seal_closed(site.owner_dsn, site.state, said.late_until, begun)
    return Done(len(days), detail=", ".join(f"{day:%Y-%m-%d}" for day in days))


async def analyze(site: Site, connection: Connection) -> Done:
    """ANALYZE, a chunk a statement: new chunks, and those that packing or late data changed."""
    chunks = [row["chunk"] for row in await connection.fetch(load("maintenance")["to_analyse"], _ANALYSED)]
    for chunk in chunks:
        await connection.execute(f"ANALYZE {chunk}")
    return Done(len(chunks), more=len(chunks) == _ANALYSED)


async def chunks_ahead(site: Site, connection: Connection) -> Done:
    """Chunks of today and tomorrow of every hypertable, so that at midnight no writer waits for one to be made."""
    queries = load("maintenance")
    tables = [row["relation"] for row in await connection.fetch(queries["hypertables"])]
    made: dict[str, int] = {}
    failed: list[str] = []
    for table in tables:
        try:
            made[table] = await connection.fetchval(queries["make_chunk"], table)
        except asyncpg.PostgresError as error:  # one table's trouble is not the others'
            failed.append(f"{table}: {error}")
    if failed:
        raise DatabaseError("; ".join(failed))
    return Done(sum(made.values()), detail=", ".join(sorted(table for table, count in made.items() if count)))


async def trim(site: Site, connection: Connection) -> Done:
    """Delete what is old from the tables that are no hypertables, some thousands of rows a statement."""
    deleted: dict[str, int] = {}
    more = False
    for table in ("ingest_batch", "quarantine", "job_run"):
        said = await connection.execute(load("maintenance")[f"trim_{table}"], _TRIMMED)
        count = int(said.rpartition(" ")[2])
        more |= count == _TRIMMED
        deleted |= {table: count} if count else {}
    return Done(sum(deleted.values()), detail=", ".join(f"{n} of {table}" for table, n in deleted.items()), more=more)


async def present(site: Site, connection: Connection) -> Done:
    """``ops.presence.say``."""
    await presence.say(connection, site.state)
    return Done()


class Storage:
    """Measures, and warns in time: what the database has, may have, and for how many days that will do."""

    def __init__(self) -> None:
        self._looked_at = -_GROWTH_SECONDS
        self._net = 0.0, 0.0  # bytes a day that come, and that ages drop

    async def work(self, site: Site, connection: Connection) -> Done:
        """Sets the gauges ``plantlog_storage_*``; an event once a day where the room lasts for a few days only."""
        said = await settings(connection)
        size, budget = said.bytes, said.disk_budget
        if time.monotonic() - self._looked_at >= _GROWTH_SECONDS:
            self._net = await _growth(connection, said.closed_until)
            self._looked_at = time.monotonic()
        free = _disk_free(site)
        # A budget that is exceeded by that much can't be reached: it does not stop the database from growing.
        holds = None if free is not None and size > _HELD * (budget or 0) else budget
        left = days_left(size, holds, free, *self._net)
        metrics.storage_bytes.set(size)
        metrics.storage_budget_bytes.set(budget or 0)
        metrics.storage_days_left.set(float("nan") if left is None else left)
        if left is not None and left < _LOW_DAYS:
            log.warning("the disk is full in %.1f days, at the last days' growth", left)
            warning = f"the disk is full in less than {_LOW_DAYS:.0f} days, at the last days' growth"
            await connection.execute(load("maintenance")["tell"], warning, "{}")
        over = budget is not None and size > budget
        room = "" if left is None else "room for years" if left > 3650 else f"room for {left:,.0f} days"
        said_over = "over the disk budget" if over else ""
        return Done(bytes=size, detail=", ".join(filter(None, (said_over, room))), wake="retain" if over else "")


async def _growth(connection: Connection, closed_until: datetime) -> tuple[float, float]:
    queries = load("maintenance")
    since = closed_until - timedelta(days=8)
    rows = await connection.fetch(queries["units"], since)
    units = [Unit("", row["from_time"], row["to_time"], row["bytes"]) for row in rows]
    now = datetime.now(UTC)
    aged = await connection.fetchval(queries["aged"], now - timedelta(days=7))
    return growth(units, closed_until, now), aged / 7


def _disk_free(site: Site) -> int | None:
    """Free bytes on the disk of the state folder's own database; None: the database is somebody else's."""
    cluster = site.state.root / "postgres" / "cluster"
    return shutil.disk_usage(cluster).free if cluster.exists() else None
