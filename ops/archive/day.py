"""Archives one sealed day of this installation."""

from __future__ import annotations

from datetime import date
from typing import Any

import asyncpg

from ingest.errors import OperationError
from ingest.installation import installation_of
from ops.archive.location import Location
from ops.archive.manifest import DayFolder, Manifest
from ops.archive.writer import DayWriter, Origin
from ops.evidence.keys import stored_keys
from ops.evidence.scope import load_scope
from ops.evidence.seal_store import sealed_day, seals_of_day
from ops.paths import State
from schema.queries import load


async def archive_day(connection: asyncpg.Connection[Any], state: State, location: Location, day: date) -> Manifest:
    """Write a day into the archive, or write it again by its newest seal. Raises OperationError."""
    own = installation_of(state.root)
    rows = await connection.fetch(load("evidence")["select_numbers"])
    row = next((row for row in rows if row["id"] == own), None)
    if own is None or row is None:
        raise OperationError(f"{state.root} is not registered in this database: run `plantlog up`")
    seals = await seals_of_day(connection, row["number"], day)
    if not seals:
        raise OperationError(f"{day} is not sealed: run `plantlog seal {day}`")
    sealed = await sealed_day(connection, day, seals)
    if sealed.problems or not sealed.document:
        problems = sealed.problems or ["the document with the names of its channels is missing"]
        raise OperationError(f"{day} is not archived: {'; '.join(problems)}: see `plantlog verify {day}`")
    scope = await load_scope(connection, seals[-1].installation)
    origin = Origin(row["plant"], scope, await stored_keys(connection, seals[-1].chain))
    return await DayWriter(connection, location, DayFolder(own, day), sealed, origin).write()
