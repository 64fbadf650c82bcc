"""Files of SQL that are run again when their text changes: their SHA-256 is kept in ``plant.setting``.

Migrations only add; what is here is made anew, so that the database and the files say the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from schema.queries import load


async def renew(
    connection: asyncpg.Connection[Any], kind: str, files: Mapping[str, str], *, drop_first: bool
) -> list[str]:
    """Run new and changed files in their order, drop what files that are gone made; returns whose they were.

    ``files``: name → SQL. A file makes the routines of its own name. ``drop_first``: they are dropped before a changed
    file is run, since their parameters or columns may be others; without, other objects may depend on them, and the
    file itself says CREATE OR REPLACE. One transaction; ``kind`` keeps several sets apart.
    """
    queries = load("renewal")
    digests = {name: hashlib.sha256(sql.encode()).hexdigest() for name, sql in files.items()}
    known = {row["name"]: row["sha256"] for row in await connection.fetch(queries["known"], kind)}
    stale = [name for name in known if name not in files]
    changed = [name for name, digest in digests.items() if known.get(name) != digest]
    async with connection.transaction():
        if drop_first:
            await _drop(connection, stale + changed)
        for name in changed:
            await connection.execute(files[name])
            await connection.execute(queries["record"], kind, name, digests[name])
        if not drop_first:  # what was made anew depends on them no more
            await _drop(connection, stale)
        for name in stale:
            await connection.execute(queries["forget"], kind, name)
    return stale + changed


async def _drop(connection: asyncpg.Connection[Any], names: Sequence[str]) -> None:
    queries = load("renewal")
    for name in names:
        await connection.execute(await connection.fetchval(queries["drop"], name))
