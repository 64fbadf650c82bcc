"""Reasons to refuse a configuration, looked for before a command starts, stops, restarts or writes anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from core.config.model import Plant
from core.config.snapshot import in_force, plant_in_force
from core.database import FAILURES, connect, database_errors
from core.errors import DatabaseError, OperationError
from core.installation import find, installation_of
from core.paths import EXAMPLE, State
from ops.appliance import database, orphans, programs
from ops.appliance.supervisor import Supervisor
from ops.backup import repository
from ops.deployment import Deployment
from ops.migration.migrate import has_schema, is_current
from ops.registration import heartbeat, pair
from ops.registration.difference import Difference
from ops.registration.installation import find_other
from ops.registration.redefined_tags import TagDecisions
from ops.registration.register import preview
from schema.queries import load


def check_plant(state: State, deployment: Deployment, plant: Plant, *, replace: bool) -> None:
    """Raise OperationError if this state folder must not run ``plant``, whatever the database has."""
    check_same_plant(state, deployment.config, plant, replace)
    pair.check_database(state, plant, state.has_external_database)
    repository.check_database(state, deployment.config, plant.backup)
    running = Supervisor(state).active()
    ended = () if running else [process.pid for processes in orphans.find(state).values() for process in processes]
    programs.check_ports(programs.ports(deployment, plant), running, state, ended)


def check_registration(
    state: State,
    plant: Plant,
    decisions: TagDecisions,
    take_over: str | None = None,
    expected: Difference | None = None,
    progress: Callable[[str], None] = lambda line: None,
) -> None:
    """Raise OperationError if the database would refuse ``plant``, or a change to it other than ``expected``.

    An installation to take over must not run. A database that does not respond, or whose schema is of another version,
    is left to ``up``, which starts or upgrades it; but a new PLANTLOG_DSN must lead to a server, as it takes the place
    of the one in use.
    """
    if (dsn := database.next_dsn(state)) is not None:
        with database_errors():
            asyncio.run(_check_registration(dsn, state, plant, decisions, take_over, expected, progress))
    elif take_over is not None:
        find("--take-over", take_over, ())  # the server that `up` makes has none


async def _check_registration(
    dsn: str,
    state: State,
    plant: Plant,
    decisions: TagDecisions,
    take_over: str | None,
    expected: Difference | None,
    progress: Callable[[str], None],
) -> None:
    try:
        connection = await connect(dsn, "plantlog up")
    except FAILURES as error:
        if not state.dsn_file("owner").exists() or dsn == state.dsn("owner"):
            return
        raise DatabaseError(
            f"the database of PLANTLOG_DSN does not respond: {str(error) or type(error).__name__}. "
            "That of the last `up` stays in use"
        ) from error
    try:
        if take_over is not None:
            await heartbeat.check_gone(connection, await find_other(connection, state, take_over), progress)
        if not await has_schema(connection) or not await is_current(connection):
            return
        installation = installation_of(state.root)
        is_registered = installation is not None and await connection.fetchval(
            load("pair")["is_registered"], installation
        )
        if is_registered and plant.redundancy.member is not None and plant.sealing.enabled:
            from history.seals.keys import check_member  # noqa: PLC0415  (its libraries take a tenth of the start)

            await check_member(connection, state)
        (await preview(connection, plant, state, decisions, take_over)).check(expected)
    finally:
        await connection.close()


def check_same_plant(state: State, config: Path, plant: Plant, replace: bool) -> None:
    """Raise OperationError for another plant, unless it is to ``replace`` the one in force, or that is simulated."""
    try:
        current = in_force(state.root, tags_of=())
    except OperationError:  # of another version
        return
    if replace or current is None or current.file == EXAMPLE or current.file.parent == state.plant:
        return
    before = current.plant
    remains = _source_names(before) & _source_names(plant)
    if not remains:  # sources that have other names now have the same tags
        remains = _tag_names(plant_in_force(state.root)) & _tag_names(plant)
    if before.name == plant.name and (remains or not before.sources):
        return
    nothing = "" if remains or not before.sources else " None of its channels would remain."
    raise OperationError(
        f"{config} describes plant {plant.name}, and in force is plant {before.name} of {current.file}.{nothing} "
        "Nothing was applied. With --replace-plant, the new configuration takes its place. To run both plants, set "
        "PLANTLOG_STATE to another folder"
    )


def _source_names(plant: Plant) -> set[str]:
    return {source.name for source in plant.sources}


def _tag_names(plant: Plant) -> set[str]:
    return {tag.name for source in plant.sources for tag in source.tags}
