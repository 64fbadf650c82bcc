"""Database connections with time limits for everything, even if the network drops all packets."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from operator import itemgetter
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from core.errors import DatabaseError, OldTimeline
from schema.queries import load

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0
_OTHERS_SECONDS = 1.0  # for the other addresses once a primary has answered
_LOCK_SECONDS = 10.0
_GRACE_SECONDS = 5.0  # the server's own timeout expires first, with a better error message
_END_SECONDS = 5.0  # for a cancelled task whose connection is already closed

# Errors of connections and statements, whatever their cause
FAILURES = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
_AWAY_ERRORS = (OSError, asyncpg.TargetServerAttributeNotMatched)  # of a server that is down, or a standby
_STARTS_OR_STOPS = (
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.PostgresConnectionError,
)

Result = TypeVar("Result")


@contextmanager
def database_errors() -> Iterator[None]:
    """Raise DatabaseError in place of every error of the database in the block."""
    try:
        yield
    except FAILURES as error:
        raise DatabaseError(f"the database does not respond: {str(error) or type(error).__name__}") from error


def is_away(error: BaseException) -> bool:
    """Return whether connecting failed because no server responds yet, so that trying again may help."""
    return isinstance(error, (*_AWAY_ERRORS, *_STARTS_OR_STOPS)) and not isinstance(error, ssl.SSLError)


def addresses(dsn: str) -> list[str]:
    """DSNs, one per host, of ``postgresql://user:password@h1:5432,h2:5432/db``."""
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
    """Connect to the server of the DSN; of several, which are all asked at once, to the primary.

    If two say that they are primaries, the one on the newer timeline has replaced the other. (asyncpg would take the
    first one, and an unreachable one would use up the time.) ``prepare`` is awaited with the
    connection, and raises if the server is not suitable. Raises the error of a server that refused or was refused; if
    none did, that of the first address.
    """
    server_settings = {"application_name": application_name[:63], "timezone": "UTC", **(settings or {})}
    hosts = dict.fromkeys(addresses(dsn))  # each server once
    attempts = {host: asyncio.create_task(_attempt(host, server_settings, seconds, len(hosts) > 1)) for host in hosts}
    chosen: asyncpg.Connection[Any] | None = None
    try:
        await _first_and_others(attempts.values())
        failed = [(host, task.exception()) for host, task in attempts.items() if task.done() and task.exception()]
        opened = [(host, *task.result()) for host, task in attempts.items() if _succeeded(task)]
        for host, _, connection in sorted(opened, key=itemgetter(1), reverse=True):
            try:
                if prepare is not None:
                    await prepare(connection)
            except OldTimeline as error:
                failed.insert(0, (host, OldTimeline(f"{_host(host)} {error}")))
            except FAILURES as error:
                failed.insert(0, (host, error))
            else:
                chosen = connection
                return connection
        for host, failure in failed:
            log.info("database at %s: %s: %s", _host(host), type(failure).__name__, failure)
        failures = [failure for _, failure in failed if failure is not None]
        raise next((failure for failure in failures if not isinstance(failure, _AWAY_ERRORS)), failures[0])
    finally:
        await _close_others(attempts.values(), chosen)


@asynccontextmanager
async def connected(
    dsn: str, application_name: str, settings: Mapping[str, str] | None = None, seconds: float = _CONNECT_SECONDS
) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection as :func:`connect` makes it, inside the block. Raises what :func:`connect` raises."""
    connection = await connect(dsn, application_name, settings, seconds)
    try:
        yield connection
        with suppress(*FAILURES):  # all is done, and the server ends the session by itself
            await connection.close(timeout=_END_SECONDS)
    finally:
        connection.terminate()  # nothing where it is closed


async def _attempt(
    address: str, settings: dict[str, str], seconds: float, of_several: bool
) -> tuple[str, asyncpg.Connection[Any]]:
    """A connection, and the server's timeline if it is one ``of_several``: then only a primary will do."""
    async with asyncio.timeout(seconds):
        kind: Any = "primary" if of_several else None  # read-write would exclude the reader's sessions everywhere
        connection = await asyncpg.connect(address, server_settings=settings, target_session_attrs=kind)
    if not of_several:
        return "", connection
    try:
        return await bounded(connection, 0, connection.fetchval(load("write")["select_timeline"])), connection
    except BaseException:
        connection.terminate()
        raise


async def _close_others(
    attempts: Collection[asyncio.Task[tuple[str, asyncpg.Connection[Any]]]], chosen: asyncpg.Connection[Any] | None
) -> None:
    """End all attempts, and close all connections but the ``chosen`` one; that one, too, if nobody gets it any more."""
    waiting = [task for task in attempts if not task.done()]
    for task in waiting:
        task.cancel()
    try:
        if waiting:
            await asyncio.wait(waiting)
    except asyncio.CancelledError:
        chosen = None
        raise
    finally:
        for task in filter(_succeeded, attempts):
            if task.result()[1] is not chosen:
                task.result()[1].terminate()


async def _first_and_others(attempts: Iterable[asyncio.Task[Any]]) -> None:
    """Wait for a success, and then shortly for the rest."""
    waiting, seconds = set(attempts), None
    while waiting:
        done, waiting = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return
        if any(map(_succeeded, done)):
            seconds = _OTHERS_SECONDS


def _succeeded(task: asyncio.Task[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def connect_writer(
    dsn: str,
    time_out: float,
    application_name: str = "plantlog writer",
    check: Callable[[asyncpg.Connection[Any]], Awaitable[None]] | None = None,
) -> asyncpg.Connection[Any]:
    """A connection that is ready for :func:`ingest.writer.transaction.write.write`, to a server that passes ``check``.

    No statement takes longer than ``time_out`` seconds. The server ends the session itself if the client disappears,
    so that locks do not outlive it. Raises what :func:`connect` raises.
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

    async def prepare(connection: asyncpg.Connection[Any]) -> None:
        await bounded(connection, time_out, connection.execute(load("write")["create_staging"]))
        if check is not None:
            await check(connection)

    return await connect(dsn, application_name, settings, min(_CONNECT_SECONDS, time_out), prepare)


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
