"""The installations that share a database. An installation is a state folder with its plant.

Each registers, retires and renames only what is its own. Names of sources and channels are unique in the database. One
that is gone can be taken over by a new state folder, which then is that installation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg

from core.config.https import viewer_url
from core.errors import OperationError
from core.files import write_atomically
from core.installation import Installation, find, installation_of, installations
from core.paths import State
from core.registry import Registry
from schema.queries import load

if TYPE_CHECKING:
    from core.config.model import Plant

_MAX_NAMES = 5  # sources that a message names


def installation_id(state: State) -> UUID:
    """The installation id of a state folder, created once. Raises OperationError if its file is damaged."""
    if not state.installation.exists():
        write_atomically(state.installation, f"{uuid4()}\n")
    installation = installation_of(state.root)
    assert installation is not None
    return installation


def login_mark(installation: UUID) -> str:
    """The comment that marks the server's logins of an installation."""
    return f"plantlog installation {installation}"


async def find_other(connection: asyncpg.Connection[Any], state: State, name: str) -> Installation:
    """The installation to take over: its id or the beginning of it, or its plant. Raises OperationError."""
    registrations = await installations(connection)
    installation = installation_of(state.root)
    if registered := [registration for registration in registrations if registration.id == installation]:
        raise OperationError(
            f"{state.root} is {registered[0]} already: only a state folder that is not registered in the database yet "
            "can take over an installation. Use a new one (PLANTLOG_STATE)"
        )
    return find("--take-over", name, registrations)


async def leader(connection: asyncpg.Connection[Any], state: State) -> Installation | None:
    """The installation whose settings apply to the database; None: this one."""
    id_ = await connection.fetchval(load("installation")["select_leader"], installation_id(state))
    return next((installation for installation in await installations(connection) if installation.id == id_), None)


async def unknown_ids(connection: asyncpg.Connection[Any], registry: Registry) -> list[asyncpg.Record]:
    """Names and ids of a registry that never were this database's: a renamed channel had its former name."""
    pairs = (list(registry.sources.items()), list(registry.pairs()))
    columns = [[pair[column] for pair in table_pairs] for table_pairs in pairs for column in (0, 1)]
    return await connection.fetch(load("installation")["select_unknown_ids"], *columns)


async def claim(
    connection: asyncpg.Connection[Any], state: State, plant: Plant, take_over: str | None
) -> tuple[UUID, str]:
    """Register the installation in the caller's transaction. Returns its id, and what was taken over.

    What has no installation yet, of an earlier version, becomes its own.
    """
    queries = load("installation")
    own_id = installation_id(state)
    taken_over = ""
    if take_over is not None:
        other = await find_other(connection, state, take_over)
        sources = await connection.fetch(queries["select_sources"], other.id)
        taken_over = f"plant {other.plant} (installation {other.id}): {_describe_sources(sources)}"
        await connection.execute(queries["take_over"], other.id, own_id, plant.name)
        await connection.execute(queries["insert_takeover_event"], taken_over)
    await connection.execute(
        queries["upsert_installation"], own_id, plant.name, plant.sealing.enabled, plant.archive.location
    )
    await connection.execute(queries["update_notifies_from"], own_id, plant.notify is not None)
    await connection.execute(queries["update_viewer_url"], own_id, viewer_url(plant))
    await connection.execute(queries["adopt"], own_id)
    return own_id, taken_over


async def check_names(connection: asyncpg.Connection[Any], plant: Plant, installation: UUID) -> None:
    """Raise OperationError if a source or a channel of ``plant`` has the name of another installation's.

    The temporary table ``configured`` has the channels.
    """
    queries = load("installation")
    taken = await connection.fetch(
        queries["select_taken_names"], [source.name for source in plant.sources], installation
    )
    if not taken:
        return
    row, others = taken[0], {other.id: other for other in await installations(connection)}
    more = (
        "" if len(taken) == 1 else " (and 1 more name)" if len(taken) == 2 else f" (and {len(taken) - 1:,} more names)"
    )
    raise OperationError(
        f"{row['kind']} {row['name']} belongs to another installation of this database{more}: "
        f"{others[row['installation_id']]}. Names are unique in a database: choose another one; or use a separate "
        f"database; or, if that installation is gone, take it over with `plantlog up --take-over "
        f"{str(row['installation_id'])[:8]}`. Nothing was registered"
    )


def _describe_sources(sources: Sequence[asyncpg.Record]) -> str:
    """Describe which sources are registered."""
    living = [row for row in sources if not row["retired"]]
    names = [row["name"] for row in (living or sources)]
    listed = ", ".join(names[:_MAX_NAMES]) + (" …" if len(names) > _MAX_NAMES else "")
    retired = "" if living or not sources else ", all retired"
    many = "source" if len(names) == 1 else "sources"
    return f"{len(names):,} {many} ({listed}){retired} with {sum(row['channels'] for row in sources):,} channels"
