"""Which installation owns a database. An installation is a state folder with its plant.

A database of another installation is refused, and nothing in it is changed, unless it is to be taken
over. A database without an owner (an earlier version) is adopted by the state folder whose registry has its ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from ingest.errors import OperationError
from ingest.files import write_atomically
from ingest.registry import Registry
from ops.paths import State
from schema.queries import load

_MAX_NAMES = 5  # sources that a message names


def installation_id(state: State) -> UUID:
    """The installation id of a state folder, created once. Raises OperationError if its file is damaged."""
    path = state.installation
    if not path.exists():
        write_atomically(path, f"{uuid4()}\n")
    text = path.read_text().strip()
    try:
        return UUID(text)
    except ValueError:
        raise OperationError(
            f"{path} contains {text[:40]!r}, which is not an installation id: restore the file, or delete it and run "
            "`plantlog up --take-over`"
        ) from None


def login_mark(state: State) -> str:
    """The comment that marks the server's logins of this installation."""
    return f"plantlog installation {installation_id(state)}"


@dataclass(frozen=True, slots=True)
class Ownership:
    """Whose a database is."""

    ours: bool  # false: another's, or nobody's
    others: str  # what taking it over takes, in words; empty: nothing


async def check_ownership(connection: asyncpg.Connection[Any], state: State, take_over: bool) -> Ownership:
    """Check who owns the database. Works with every version of the schema, and with none.

    Raises OperationError if it belongs to another installation and is not to be taken over.
    """
    queries = load("installation")
    tables = await connection.fetchrow(queries["select_tables"])
    if tables is None or not tables["sources"]:
        return Ownership(False, "")
    known = await connection.fetch(queries["select_installations"]) if tables["installations"] else []
    others = [row for row in known if row["id"] != installation_id(state)]
    sources = await connection.fetch(queries["select_sources"])
    if not others and (known or not sources or await _is_ours(connection, state)):
        return Ownership(bool(known or sources), "")
    descriptions = (
        f"plant {row['plant']} (installation {row['id']}, since {row['registered_at']:%Y-%m-%d})" for row in others
    )
    owners = " and ".join(descriptions) or "of an earlier version, whose ids are not in this state folder's registry"
    description = f"{owners}: {_describe_sources(sources)}"
    if not take_over:
        raise OperationError(
            f"the database belongs to another installation, {description}. Use a separate database, or take "
            "it over with --take-over: channels that are not in this configuration are then retired, settings and "
            "retention classes are replaced, and `plantlog up` of the other installation is refused"
        )
    return Ownership(False, description)


async def _is_ours(connection: asyncpg.Connection[Any], state: State) -> bool:
    """Whether the registry of the state folder is of this database."""
    if not state.registry.exists():
        return False
    registry = Registry.load(state.registry)
    return bool(registry.sources) and not await _fetch_pairs(connection, "select_mismatched_ids", registry)


async def unknown_ids(connection: asyncpg.Connection[Any], registry: Registry) -> list[asyncpg.Record]:
    """Names and ids of a registry that never were this database's: a renamed channel had its former name."""
    return await _fetch_pairs(connection, "select_unknown_ids", registry)


async def _fetch_pairs(connection: asyncpg.Connection[Any], query: str, registry: Registry) -> list[asyncpg.Record]:
    pairs = (list(registry.sources.items()), list(registry.pairs()))
    columns = [[pair[place] for pair in some] for some in pairs for place in (0, 1)]
    return await connection.fetch(load("installation")[query], *columns)


async def claim(connection: asyncpg.Connection[Any], state: State, plant: str, take_over: bool) -> tuple[UUID, str]:
    """Claim the database in the caller's transaction. Returns the installation id, and what was taken over."""
    queries = load("installation")
    taken_over = (await check_ownership(connection, state, take_over)).others
    installation = installation_id(state)
    await connection.execute(queries["upsert_installation"], installation, plant)
    await connection.execute(queries["assign_installation"], installation)
    await connection.execute(queries["delete_other_installations"], installation)
    if taken_over:
        await connection.execute(queries["insert_takeover_event"], taken_over)
    return installation, taken_over


def _describe_sources(sources: list[asyncpg.Record]) -> str:
    """What is registered."""
    living = [row for row in sources if not row["retired"]]
    names = [row["name"] for row in (living or sources)]
    listed = ", ".join(names[:_MAX_NAMES]) + (" …" if len(names) > _MAX_NAMES else "")
    retired = "" if living or not sources else ", all retired"
    many = "source" if len(names) == 1 else "sources"
    return f"{len(names):,} {many} ({listed}){retired} with {sum(row['channels'] for row in sources):,} channels"
