"""Routines and views: a file each in ``routines/``, which is run again when its text changes.

A file makes the routines (every form of one name) or the view of its own name with CREATE OR REPLACE, so that what
depends on them stays, with their comments, grants and triggers. Its SHA-256 is kept in ``plant.setting``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import asyncpg

from core.errors import DatabaseError
from ops.migration.editions import created
from schema.queries import load

_NOT_REPLACEABLE = (
    asyncpg.InvalidFunctionDefinitionError,  # another type of result, or another parameter's name
    asyncpg.InvalidTableDefinitionError,  # a view's columns
    asyncpg.AmbiguousFunctionError,  # other parameters, beside the former ones
    asyncpg.WrongObjectTypeError,  # a procedure that was a function
)


async def renew(connection: asyncpg.Connection[Any], files: Mapping[str, str]) -> list[str]:
    """Run new and changed files (name → SQL) and those whose routine is missing; drop what files that are gone made.

    ``files`` stand in an order in which they can be run. Returns the names of all those. One transaction. Raises
    DatabaseError where somebody else's object is built on what has to be dropped.
    """
    queries = load("renewal")
    digests = {name: hashlib.sha256(sql.encode()).hexdigest() for name, sql in files.items()}
    recorded = {row["name"]: row["sha256"] for row in await connection.fetch(queries["select_digests"])}
    existing = {row["name"] for row in await connection.fetch(queries["select_names"])}
    obsolete = [name for name in recorded if name not in files]
    due = {name for name in files if recorded.get(name) != digests[name] or created(files[name]) - existing}
    if not obsolete and not due:
        return []
    async with connection.transaction():
        for name, sql in files.items():
            if name in due:
                try:
                    due |= await _make(connection, name, sql, recorded.keys() | files.keys())
                except asyncpg.PostgresError as error:
                    error.add_note(f"in the file of {name}")
                    raise
        renewed = [name for name in files if name in due]
        await connection.executemany(queries["upsert_digest"], [(name, digests[name]) for name in renewed])
        if obsolete:  # what was made anew depends on them no more
            await _drop(connection, obsolete, obsolete)
            await connection.execute(queries["delete_digests"], obsolete)
    return obsolete + renewed


async def _make(connection: asyncpg.Connection[Any], name: str, sql: str, ours: Collection[str]) -> set[str]:
    """Run a file. Returns the later files whose routines and views had to be dropped for it."""
    former = await _definitions(connection, name)
    try:
        async with connection.transaction():
            await connection.execute(sql)
    except _NOT_REPLACEABLE:
        pass
    else:
        if not former & await _definitions(connection, name):
            return set()  # else there is one that the file does not make any more
    dropped = await _drop(connection, [name], ours)
    await connection.execute(sql)
    return dropped


async def _drop(connection: asyncpg.Connection[Any], names: list[str], ours: Collection[str]) -> set[str]:
    """Drop the objects of these files, and before that those of ``ours`` that depend on them; returns their files."""
    objects = await connection.fetch(load("renewal")["format_drops"], names, list(ours))
    try:
        for row in objects:
            await connection.execute(row["statement"])
    except asyncpg.DependentObjectsStillExistError as error:
        raise DatabaseError(
            f"plant.{', plant.'.join(names)} can't be dropped or changed: "
            f"{error.detail}. Drop objects that are not plantlog's first, and create them again afterwards"
        ) from error
    return {row["name"] for row in objects}


async def _definitions(connection: asyncpg.Connection[Any], name: str) -> set[tuple[str, str]]:
    """The view and the routines of a name: their definitions, each with the transaction that wrote it last."""
    return {
        (row["definition"], row["xmin"]) for row in await connection.fetch(load("renewal")["select_definitions"], name)
    }
