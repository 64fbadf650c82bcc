"""Limits of reader sessions and logins that a session itself could change.

A PostgreSQL session may change its statement_timeout and work_mem, and a login its own password and defaults. So
sessions that exceed the limits are terminated, and password and limits of the login are restored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress

import psutil

from core.scheduling import lower_priority
from ops.maintenance.run import Connection, JobContext, JobResult, JobSkipped
from ops.migration.migrate import Login, create_logins
from ops.registration.installation import installation_id, login_mark
from schema.queries import load

log = logging.getLogger(__name__)

_MEMORY_SHARE = 4  # of this machine's memory all readers' sessions together may hold a fourth


async def end_sessions(context: JobContext, connection: Connection) -> JobResult:
    """End the sessions of readers that last too long or, where the server is on this machine, hold too much.

    There they step back, so that what they ask takes no processor time that ingest wants.
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
    bytes_held: dict[int, int] = {}
    for pid in pids:
        with suppress(psutil.Error):  # gone meanwhile
            memory = psutil.Process(pid).memory_info()
            bytes_held[pid] = memory.rss - memory.shared  # shared: the server's buffers
    largest: list[int] = []
    for pid in sorted(bytes_held, key=bytes_held.__getitem__, reverse=True):
        if sum(bytes_held.values()) <= limit:
            break
        log.warning("reader backend %d uses %s MB; terminating its session", pid, f"{bytes_held.pop(pid) / 1e6:,.0f}")
        largest.append(pid)
    return largest


async def restore_login(context: JobContext, connection: Connection) -> JobResult | JobSkipped:
    """Give the reader's login its password and limits back, where somebody who has it changed them."""
    if not context.state.dsn_file("reader").exists():
        return JobSkipped("no reader login in the state folder")
    reader = Login.of_dsn(context.state.dsn("reader"))
    renewed = await create_logins(context.owner_dsn, {"reader": reader}, login_mark(installation_id(context.state)))
    if renewed:
        log.warning("password of %s was changed; restored to that of this state folder", ", ".join(renewed))
    return JobResult(len(renewed))
