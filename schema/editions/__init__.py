"""What TimescaleDB's two editions do differently, behind the same names: ``apache/*.sql`` and ``community/*.sql``.

``common/*.sql`` is made on both, first. A file makes the routines or the view of its own name with CREATE OR REPLACE,
so that what depends on them stays, and is run again when its text changes or the database moves to the other edition.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import asyncpg

from ingest.errors import DatabaseError
from schema.queries import load
from schema.renewal import renew

Edition = Literal["apache", "community"]
FOLDER = Path(__file__).parent


def files(edition: Edition, folder: Path = FOLDER) -> dict[str, str]:
    """Name → SQL of an edition, in the order in which they are run. Raises ValueError where a name stands twice."""
    found: dict[str, str] = {}
    for path in (*sorted((folder / "common").glob("*.sql")), *sorted((folder / edition).glob("*.sql"))):
        if path.stem in found:
            raise ValueError(f"{path.parent.name}/{path.name} is in common too")
        found[path.stem] = path.read_text(encoding="utf-8")
    return found


async def bring(connection: asyncpg.Connection[Any], folder: Path = FOLDER) -> list[str]:
    """Find out the server's edition, and make its objects where they are not as the files say; returns whose.

    Raises DatabaseError where the server's edition can't read what the database holds.
    """
    queries = load("editions")
    edition: Edition = await connection.fetchval(queries["edition"])
    if edition == "apache" and (chunks := await connection.fetchval(queries["columnstored"])):
        raise DatabaseError(
            f"{chunks} chunks of this database are columnstored, which TimescaleDB's Apache-2 edition can't read: "
            "start the Community server again (timescaledb.license = 'timescale'), or there turn them into rows first: "
            "SELECT decompress_chunk(c) FROM show_chunks('plant.samples_raw') AS c"
        )
    await connection.execute(queries["record"], edition)
    renewed = await renew(connection, "edition", files(edition, folder), drop_first=False)
    if statement := await connection.fetchval(queries["decompression"], edition):
        await connection.execute(statement)
    return renewed
