"""TimescaleDB's two editions: which one a server has, and which files of ``routines/`` it gets.

``routines/<topic>/<name>.sql`` is for both, ``<name>.apache.sql`` and ``<name>.community.sql`` for one of them. What
they do differently they do behind the same names, so that a database can move from one to the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Literal, get_args

import asyncpg

import schema
from core.database import connect
from core.errors import DatabaseError
from schema.queries import load

Edition = Literal["apache", "community"]
FOLDER = schema.FOLDER / "routines"
_COMMENT_OR_STRING = re.compile(r"--[^\n]*|'(?:[^']|'')*'")
_CREATED = re.compile(
    r"^CREATE (?:OR REPLACE )?(?:TABLE|TYPE|VIEW|FUNCTION|PROCEDURE) (?:IF NOT EXISTS )?plant\.(\w+)", re.MULTILINE
)
_NAME = re.compile(r"\bplant\.(\w+)")


def routines(edition: Edition, folder: Path = FOLDER) -> dict[str, str]:
    """Name → SQL of an edition's routines and views, in an order in which the files can be run.

    Raises ValueError where a name stands twice, or for no edition.
    """
    files: dict[str, str] = {}
    for path in sorted(folder.glob("*/*.sql")):
        name, _, only = path.stem.partition(".")
        if only not in ("", *get_args(Edition)):
            raise ValueError(f"{path.parent.name}/{path.name}: {only} is no edition")
        if only in ("", edition):
            if name in files:
                raise ValueError(f"{path.parent.name}/{path.name}: another file also makes {name}")
            files[name] = path.read_text(encoding="utf-8")
    return in_order(files)


async def detect(connection: asyncpg.Connection[Any]) -> Edition:
    """Find out the server's edition, and set the database up for it.

    Raises DatabaseError where that edition can't read what the database holds.
    """
    queries = load("editions")
    edition: Edition = await connection.fetchval(queries["select_edition"])
    if edition == "apache" and (chunks := await connection.fetchval(queries["count_columnstore_chunks"])):
        raise DatabaseError(
            f"{chunks} chunks of this database are columnstored, which TimescaleDB's Apache-2 edition can't read: "
            "start the Community server again (timescaledb.license = 'timescale'), or convert them there first: "
            "SELECT decompress_chunk(c) FROM show_chunks('plant.samples_raw') AS c"
        )
    await connection.execute(queries["upsert_edition"], edition)
    if statement := await connection.fetchval(queries["format_decompression_limit"], edition):
        await connection.execute(statement)
    return edition


async def update_extension(dsn: str) -> None:
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


async def create_extension(connection: asyncpg.Connection[Any]) -> None:
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


def created(sql: str) -> set[str]:
    """Names of the tables, types, views and routines that a file creates."""
    return set(_CREATED.findall(sql))


def in_order(files: Mapping[str, str]) -> dict[str, str]:
    """The files (name → SQL), each after those that create what it names.

    Raises graphlib.CycleError, a ValueError, where two files need each other.
    """
    statements = {name: _COMMENT_OR_STRING.sub("", sql) for name, sql in files.items()}
    creator = {item: name for name, sql in statements.items() for item in created(sql)}
    needs = {
        name: sorted({creator[item] for item in _NAME.findall(sql) if item in creator} - {name})
        for name, sql in statements.items()
    }
    return {name: files[name] for name in TopologicalSorter(needs).static_order()}
