"""Create the database on a running server: database, extension, schema, logins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from core.errors import DatabaseError
from ops.migration.migrate import create_logins, migrate, standard_logins
from schema.queries import load

_STARTING = (OSError, TimeoutError, asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError)


def maintenance_dsn(dsn: str) -> str:
    """DSN of the database ``postgres``, which always exists, at this server with this user."""
    return urlunsplit(urlsplit(dsn)._replace(path="/postgres"))


async def wait_until_ready(dsn: str, seconds: float, is_running: Callable[[], bool] = lambda: True) -> None:
    """Wait for the server at ``dsn``, as long as it reports that it is starting (a recovery may take long).

    Raises DatabaseError if it does not respond for ``seconds``, or exits.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection = await asyncpg.connect(dsn, timeout=5)
        except _STARTING as error:
            if isinstance(error, asyncpg.CannotConnectNowError):
                deadline = time.monotonic() + seconds
            if time.monotonic() > deadline or not is_running():
                raise DatabaseError(f"the database does not respond ({type(error).__name__}: {error})") from error
            await asyncio.sleep(0.05)
        else:
            await connection.close()
            return


async def bootstrap(owner_dsn: str, passwords: dict[str, str]) -> list[int]:
    """Database, extension, schema and logins, where missing; returns the schema versions that were applied."""
    await create_database(owner_dsn)
    applied = await migrate(owner_dsn)
    await create_logins(owner_dsn, standard_logins(passwords))
    return applied


async def create_database(owner_dsn: str) -> None:
    """The database, where the server does not have it."""
    connection = await asyncpg.connect(maintenance_dsn(owner_dsn))
    try:
        name = urlsplit(owner_dsn).path[1:]
        if not await connection.fetchval(load("migrate")["database_exists"], name):
            await connection.execute(await connection.fetchval(load("migrate")["format_create_database"], name))
    finally:
        await connection.close()
