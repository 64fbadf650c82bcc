"""The TimescaleDB extension: created, preloaded, and updated to the server's version."""

from __future__ import annotations

from typing import Any

import asyncpg

from core.database import connect
from core.errors import DatabaseError
from schema.queries import load


async def update(dsn: str) -> None:
    """Bring the extension to the version of the server's library, where another was installed since.

    That has to be the first statement of a session, before the library of the old version is loaded. Safe to run twice
    at once. Raises DatabaseError where there is no way to that version, or the DSN's user may not go it.
    """
    if not await _outdated(dsn):
        return
    connection = await connect(dsn, "plantlog up")
    try:
        await connection.execute(load("migrate")["update_extension"])
    except asyncpg.InsufficientPrivilegeError:
        raise DatabaseError(
            "server and database have different versions of TimescaleDB, and the DSN's user may not update it: "
            'run psql -X -c "ALTER EXTENSION timescaledb UPDATE" as the extension\'s owner'
        ) from None
    except asyncpg.DependentObjectsStillExistError as error:
        raise DatabaseError(
            f"cannot update TimescaleDB of this database to the server's version: {error}. "
            "If the object is plantlog's, first run this plantlog with the server that the database came from"
        ) from error
    except asyncpg.PostgresError as error:
        if await _outdated(dsn):  # else somebody else did it in this moment
            raise DatabaseError(
                f"cannot update TimescaleDB of this database to the server's version: {error}"
            ) from error
    finally:
        await connection.close()


async def _outdated(dsn: str) -> bool:
    connection = await connect(dsn, "plantlog up")
    try:
        row = await connection.fetchrow(load("migrate")["select_extension"])
    except asyncpg.UndefinedFileError:
        return True  # the library of the database's version is no longer there
    finally:
        await connection.close()
    return row is not None and row["installed"] not in (None, row["available"])


async def create(connection: asyncpg.Connection[Any]) -> None:
    """Make the extension, where it is missing. Raises DatabaseError with what to do where that can't be."""
    row = await connection.fetchrow(load("migrate")["select_extension"])
    if row is None:
        raise DatabaseError(
            "TimescaleDB is not installed on this server: install postgresql-17-timescaledb (Debian), add timescaledb "
            "to shared_preload_libraries in postgresql.conf and restart the server"
        )
    if not row["preloaded"]:
        raise DatabaseError(
            "TimescaleDB is installed but not loaded: add timescaledb to shared_preload_libraries in postgresql.conf "
            "and restart the server"
        )
    if row["installed"] is None:
        try:
            await connection.execute(load("migrate")["create_extension"])
        except asyncpg.InsufficientPrivilegeError:
            raise DatabaseError(
                "the TimescaleDB extension is not in this database, and the DSN's user may not create it: "
                "run CREATE EXTENSION timescaledb in it as a superuser"
            ) from None
