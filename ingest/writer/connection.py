"""Connections to the database that are given up in bounded time, whatever the network does with them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from schema.queries import load

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0  # an address
_LOCK_SECONDS = 10.0
_GRACE_SECONDS = 5.0  # the server's own time-out comes first: it tells what it was
_END_SECONDS = 5.0  # for a cancelled task to end; its connection is closed already

Result = TypeVar("Result")


def addresses(dsn: str) -> list[str]:
    """One DSN for each host in ``postgresql://user:password@h1:5432,h2:5432/db?target_session_attrs=read-write``.

    asyncpg takes such a DSN, but has one time limit for all hosts: the first, black-holed, would use it up.
    """
    parts = urlsplit(dsn)
    login, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [dsn]
    return [urlunsplit(parts._replace(netloc=f"{login}{at}{host}")) for host in hosts.split(",")]


async def connect(dsn: str, time_out: float) -> asyncpg.Connection[Any]:
    """A connection to the first of the DSN's addresses that will do, ready for :func:`ingest.writer.transaction.write`.

    No statement lasts longer than ``time_out`` seconds; the server ends the session itself where it no longer hears
    from us, so that its locks don't outlive it. Raises what the last address failed with.
    """
    settings = {
        "application_name": "plantlog writer",
        "statement_timeout": f"{time_out * 1000:.0f}",
        "lock_timeout": f"{min(_LOCK_SECONDS, time_out) * 1000:.0f}",
        "idle_in_transaction_session_timeout": f"{time_out * 1000:.0f}",
        "tcp_keepalives_idle": f"{max(1, time_out):.0f}",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": f"{time_out * 1000:.0f}",
    }
    failed: Exception | None = None
    for address in addresses(dsn):
        try:
            async with asyncio.timeout(min(_CONNECT_SECONDS, time_out)):
                connection = await asyncpg.connect(address, server_settings=settings)
            return await _prepared(connection, time_out)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            log.info("database at %s: %s: %s", _host(address), type(error).__name__, error)
            failed = error
    if failed is None:
        raise AssertionError("a DSN has at least one address")
    raise failed


async def _prepared(connection: asyncpg.Connection[Any], time_out: float) -> asyncpg.Connection[Any]:
    try:
        await bounded(connection, time_out, connection.execute(load("write")["staging"]))
    except BaseException:
        connection.terminate()
        raise
    return connection


async def bounded(connection: asyncpg.Connection[Any], seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of ``work``, which uses ``connection``. Raises TimeoutError where there is none in about ``seconds``.

    A cancelled asyncpg call rolls back and waits for the answer, for ever where packets vanish: so the connection
    ends first.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait((task,), timeout=seconds + _GRACE_SECONDS)
        if done:
            return task.result()
    finally:
        if not task.done():
            connection.terminate()
            task.cancel()
            await asyncio.wait((task,), timeout=_END_SECONDS)
            if task.done() and not task.cancelled():
                task.exception()  # mark as seen: the connection ended, by us
    raise TimeoutError(f"no answer within {seconds + _GRACE_SECONDS:.0f} s")


def _host(address: str) -> str:
    return urlsplit(address).netloc.rpartition("@")[2]
