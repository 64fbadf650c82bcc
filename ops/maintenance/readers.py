"""Readers' sessions and logins: what a session can lift, somebody else has to hold.

A session of PostgreSQL may set its statement_timeout and work_mem, and a login its own password and defaults. So those
that go on without an end or hold too much memory are ended, and the login is given back what ``plantlog up`` gave it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from urllib.parse import unquote, urlsplit

import psutil

from ingest.scheduling import step_back
from ops.installation import mark
from ops.maintenance.run import Connection, Done, Site, Skip
from schema.migrate import create_logins
from schema.queries import load

log = logging.getLogger(__name__)

_SHARE = 4  # of this machine's memory all readers' sessions together may hold a fourth


async def end_sessions(site: Site, connection: Connection) -> Done:
    """End the sessions of readers that last too long or, where the server is on this machine, hold too much.

    There they step back, so that what they ask takes no processor time that ingest wants.
    """
    queries = load("maintenance")
    heavy: list[int] = []
    if site.server_is_here:
        pids = [row["pid"] for row in await connection.fetch(queries["readers"])]
        for pid in pids:
            step_back(pid)
        heavy = large(pids, psutil.virtual_memory().total // _SHARE)
    return Done(await connection.fetchval(queries["end_long_readers"], heavy))


def large(pids: Iterable[int], most: int) -> list[int]:
    """The largest of the server's processes ``pids``, without which the others hold ``most`` bytes or less."""
    held: dict[int, int] = {}
    for pid in pids:
        with suppress(psutil.Error):  # gone meanwhile
            memory = psutil.Process(pid).memory_info()
            held[pid] = memory.rss - memory.shared  # shared: the server's buffers
    chosen: list[int] = []
    for pid in sorted(held, key=held.__getitem__, reverse=True):
        if sum(held.values()) <= most:
            break
        log.warning("process %d of a reader holds %s MB: its session is ended", pid, f"{held.pop(pid) / 1e6:,.0f}")
        chosen.append(pid)
    return chosen


async def restore_login(site: Site, connection: Connection) -> Done | Skip:
    """Give the reader's login its password and limits back, where somebody who has it changed them."""
    path = site.state.dsn_file("reader")
    if not path.exists():
        return Skip("no login of a reader in the state folder")
    password = unquote(urlsplit(path.read_text().strip()).password or "")
    ours = mark(site.state)
    renewed = await create_logins(site.owner_dsn, {"reader": password}, ours, {ours})
    if renewed:
        log.warning("%s had another password than this state folder's: it has that again", ", ".join(renewed))
    return Done(len(renewed))
