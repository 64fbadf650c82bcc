"""Database connections with time limits for everything, even if the network drops all packets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from ingest.errors import DatabaseError
from schema.queries import load

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0  # per address
_LOCK_SECONDS = 10.0
_GRACE_SECONDS = 5.0  # the server's own timeout expires first, with a better error message
_END_SECONDS = 5.0  # for a cancelled task whose connection is already closed

# What connecting and a statement can fail with, whoever is to blame.
FAILURES = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

Result = TypeVar("Result")


@contextmanager
def database_errors() -> Iterator[None]:
    """Within, whatever the database fails with is a DatabaseError."""
    try:
        yield
    except FAILURES as error:
        raise DatabaseError(f"the database does not respond: {str(error) or type(error).__name__}") from error


def addresses(dsn: str) -> list[str]:
    """One DSN per host of ``postgresql://user:password@h1:5432,h2:5432/db?target_session_attrs=read-write``.

    asyncpg accepts such a DSN, but with one time limit for all hosts: an unreachable first one would use it up.
    """
    parts = urlsplit(dsn)
    login, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [dsn]
    return [urlunsplit(parts._replace(netloc=f"{login}{at}{host}")) for host in hosts.split(",")]


async def connect(
    dsn: str,
    application_name: str,
    settings: Mapping[str, str] | None = None,
    seconds: float = _CONNECT_SECONDS,
    prepare: Callable[[asyncpg.Connection[Any]], Awaitable[None]] | None = None,
) -> asyncpg.Connection[Any]:
    """Connect to the first suitable address of the DSN, within ``seconds`` per address. Raises the last one's error.

    ``prepare``: what a suitable server lets be done with the connection.
    """
    server_settings = {"application_name": application_name[:63], **(settings or {})}
    failed: Exception | None = None
    for address in addresses(dsn):
        try:
            async with asyncio.timeout(seconds):
                connection = await asyncpg.connect(address, server_settings=server_settings)
            if prepare is not None:
                await _prepared(connection, prepare)
            return connection
        except FAILURES as error:
            log.info("database at %s: %s: %s", _host(address), type(error).__name__, error)
            failed = error
    if failed is None:
        raise AssertionError("a DSN has at least one address")
    raise failed


async def connect_writer(
    dsn: str, time_out: float, application_name: str = "plantlog writer"
) -> asyncpg.Connection[Any]:
    """A connection that is ready for :func:`ingest.writer.transaction.write`.

    No statement takes longer than ``time_out`` seconds. The server ends the session itself if the client disappears,
    so that locks do not outlive it. Raises the error of the last address.
    """
    settings = {
        "statement_timeout": f"{time_out * 1000:.0f}",
        "lock_timeout": f"{min(_LOCK_SECONDS, time_out) * 1000:.0f}",
        "idle_in_transaction_session_timeout": f"{time_out * 1000:.0f}",
        "tcp_keepalives_idle": f"{max(1, time_out):.0f}",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": f"{time_out * 1000:.0f}",
    }

    async def create_staging(connection: asyncpg.Connection[Any]) -> None:
        await bounded(connection, time_out, connection.execute(load("write")["create_staging"]))

    return await connect(dsn, application_name, settings, min(_CONNECT_SECONDS, time_out), create_staging)


async def _prepared(
    connection: asyncpg.Connection[Any], prepare: Callable[[asyncpg.Connection[Any]], Awaitable[None]]
) -> None:
    try:
        await prepare(connection)
    except BaseException:
        connection.terminate()
        raise


async def bounded(connection: asyncpg.Connection[Any], seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
    """Await ``work``, which uses ``connection``. Raises TimeoutError after about ``seconds``.

    A cancelled asyncpg call rolls back and waits for the answer, forever if packets are dropped. So the connection
    is closed first.
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
                task.exception()  # mark as retrieved: the connection was closed above
    raise TimeoutError(f"no response within {seconds + _GRACE_SECONDS:.0f} s")


def _host(address: str) -> str:
    return urlsplit(address).netloc.rpartition("@")[2]
