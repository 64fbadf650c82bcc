"""The job ``storage``: size of the database, and days until the disk is full."""

from __future__ import annotations

import logging
import shutil
import time
from datetime import UTC, datetime, timedelta

from core import metrics
from core.database import addresses
from core.formatting import count
from ops.maintenance.disk_budget import StorageUnit, days_left, duration, growth
from ops.maintenance.job import Connection, JobContext, JobResult
from ops.maintenance.retention import settings
from schema.queries import load

log = logging.getLogger(__name__)

_GROWTH_SECONDS = 3600.0  # growth is of days: it is looked at this often
_LOW_DAYS = 7.0
_BUDGET_TOLERANCE = 1.1


class Storage:
    """Measures, and warns in time: what the database has, may have, and for how many days that will do."""

    def __init__(self) -> None:
        self._measured_at = -_GROWTH_SECONDS
        self._growth_and_ageing = 0.0, 0.0  # bytes a day that come, and that ages drop

    async def work(self, context: JobContext, connection: Connection) -> JobResult:
        """Sets the gauges ``plantlog_storage_*``; a warning and an event once a day where the room lasts some days."""
        current = await settings(connection)
        size, budget = current.bytes, current.disk_budget
        if time.monotonic() - self._measured_at >= _GROWTH_SECONDS:
            self._growth_and_ageing = await _growth(connection, current.closed_until)
            self._measured_at = time.monotonic()
        free = _disk_free(context)
        # A budget that is exceeded by so much can't be met: it does not limit the database's growth.
        effective_budget = None if free is not None and size > _BUDGET_TOLERANCE * (budget or 0) else budget
        left = days_left(size, effective_budget, free, *self._growth_and_ageing)
        metrics.storage_bytes.set(size)
        metrics.storage_budget_bytes.set(budget or 0)
        metrics.storage_days_left.set(float("nan") if left is None else left)
        if left is not None and left < _LOW_DAYS:
            warning = f"disk will be full in less than {_LOW_DAYS:.0f} days at the current growth"
            if await connection.fetch(load("maintenance")["record_retention"], warning, "{}"):
                log.warning("disk will be full in %.1f days at the current growth", left)
        over = budget is not None and size > budget
        missing = await _standbys_missing(context, connection)
        metrics.standbys_missing.set(missing)
        problems = "over the disk budget" if over else "", f"{count(missing, 'standby')} missing" if missing else ""
        detail = ", ".join(filter(None, (*problems, duration(left))))
        return JobResult(bytes=size, detail=detail, wake="retain" if over else "")


async def _standbys_missing(context: JobContext, connection: Connection) -> int:
    named = len(addresses(context.dsn)) - 1
    standbys = await connection.fetchval(load("maintenance")["count_standbys"])
    return max(0, named - int(standbys))


async def _growth(connection: Connection, closed_until: datetime) -> tuple[float, float]:
    queries = load("maintenance")
    since = closed_until - timedelta(days=8)
    rows = await connection.fetch(queries["select_units"], since)
    units = [StorageUnit("", row["from_time"], row["to_time"], row["bytes"]) for row in rows]
    now = datetime.now(UTC)
    aged_bytes = await connection.fetchval(queries["select_freed_bytes"], now - timedelta(days=7))
    return growth(units, closed_until, now), aged_bytes / 7


def _disk_free(context: JobContext) -> int | None:
    """Free bytes on the disk of the state folder's own database; None: the database is somebody else's."""
    cluster = context.state.root / "postgres" / "cluster"
    return shutil.disk_usage(cluster).free if cluster.exists() else None
