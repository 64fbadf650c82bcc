"""TimescaleDB's two editions: which one a server has, and which files of ``routines/`` it gets.

``routines/<topic>/<name>.sql`` is for both, ``<name>.apache.sql`` and ``<name>.community.sql`` for one of them. What
they do differently they do behind the same names, so that a database can move from one to the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import asyncpg

import schema
from core.errors import DatabaseError
from ops.migration.dependencies import in_order
from schema.queries import load

Edition = Literal["apache", "community"]
FOLDER = schema.FOLDER / "routines"


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
