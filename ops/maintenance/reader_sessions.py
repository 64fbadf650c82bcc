"""The job ``readers``: sessions of readers that last too long or hold too much memory."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress

import psutil

from core.process.scheduling import lower_priority
from ops.maintenance.job import Connection, JobContext, JobResult
from schema.queries import load

log = logging.getLogger(__name__)

_MEMORY_SHARE = 4  # of this machine's memory all readers' sessions together may hold a fourth


async def end_sessions(context: JobContext, connection: Connection) -> JobResult:
    """End the sessions of readers that last too long or, where the server is on this machine, hold too much.

    A session may change its own statement_timeout and work_mem. On this machine they step back, so that what they ask
    takes no processor time that ingest wants.
    """
    queries = load("maintenance")
    heavy: list[int] = []
    if context.server_is_local:
        pids = [row["pid"] for row in await connection.fetch(queries["select_reader_sessions"])]
        for pid in pids:
            lower_priority(pid)
        heavy = largest_backends(pids, psutil.virtual_memory().total // _MEMORY_SHARE)
    return JobResult(await connection.fetchval(queries["end_long_readers"], heavy))


def largest_backends(pids: Iterable[int], limit: int) -> list[int]:
    """The largest of the server's processes ``pids``, without which the others hold ``limit`` bytes or less."""
    private_bytes: dict[int, int] = {}
    for pid in pids:
        with suppress(psutil.Error):  # gone meanwhile
            memory = psutil.Process(pid).memory_info()
            private_bytes[pid] = memory.rss - memory.shared  # shared: the server's buffers
    largest: list[int] = []
    for pid in sorted(private_bytes, key=private_bytes.__getitem__, reverse=True):
        if sum(private_bytes.values()) <= limit:
            break
        log.warning(
            "reader backend %d uses %s MB; terminating its session", pid, f"{private_bytes.pop(pid) / 1e6:,.0f}"
        )
        largest.append(pid)
    return largest
