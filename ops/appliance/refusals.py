"""Reasons to refuse a configuration, looked for before a command starts, stops, restarts or writes anything."""

from __future__ import annotations

import asyncio
from pathlib import Path

from core.config.model import Plant
from core.database import FAILURES, connect, database_errors
from core.errors import DatabaseError
from core.installation import installation_of
from core.paths import State
from ops.appliance import database
from ops.appliance.other_plant import check_same_plant
from ops.backup import repository
from ops.migration.migrate import has_schema, is_current
from ops.registration import pair
from ops.registration.difference import Difference
from ops.registration.redefined_tags import TagDecisions
from ops.registration.register import preview
from schema.queries import load


def check_plant(state: State, config: Path, plant: Plant, *, replace: bool) -> None:
    """Raise OperationError if this state folder must not run ``plant``, whatever the database has."""
    check_same_plant(state, config, plant, replace)
    pair.check_database(state, plant, state.has_external_database)
    repository.check_database(state, config, plant.backup)


def check_registration(
    state: State,
    plant: Plant,
    decisions: TagDecisions,
    take_over: str | None = None,
    expected: Difference | None = None,
) -> None:
    """Raise OperationError if the database would refuse ``plant``, or a change to it other than ``expected``.

    One that does not respond, or whose schema is of another version, is left to ``up``, which starts or upgrades it;
    but a new PLANTLOG_DSN must lead to a server, as it takes the place of the one in use.
    """
    dsn = database.next_dsn(state)
    if dsn is not None and asyncio.run(_can_register(dsn, state, plant)):
        with database_errors():
            asyncio.run(preview(plant, dsn, state, decisions, take_over)).check(expected)


async def _can_register(dsn: str, state: State, plant: Plant) -> bool:
    try:
        connection = await connect(dsn, "plantlog up")
    except FAILURES as error:
        if not state.dsn_file("owner").exists() or dsn == state.dsn("owner"):
            return False
        raise DatabaseError(
            f"the database of PLANTLOG_DSN does not respond: {str(error) or type(error).__name__}. "
            "That of the last `up` stays in use"
        ) from error
    try:
        if not await has_schema(connection) or not await is_current(connection):
            return False
        own = installation_of(state.root)
        is_registered = own is not None and await connection.fetchval(load("pair")["is_registered"], own)
        if is_registered and plant.redundancy.member is not None and plant.sealing.enabled:
            from history.seals.keys import check_member  # noqa: PLC0415  (its libraries take a tenth of the start)

            await check_member(connection, state)
        return True
    finally:
        await connection.close()
