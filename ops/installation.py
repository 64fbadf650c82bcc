"""Whose a database is: an installation's, which is a state folder with the plant that it logs.

A database that another installation registered in is refused, and nothing in it is changed, unless it is to be taken
over. One from before installations were known is adopted by the state folder whose registry has its ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from ingest.errors import OperationError
from ingest.registry import Registry, write_whole
from ops.paths import State
from schema.queries import load

_NAMED = 5  # sources that a message names


def own(state: State) -> UUID:
    """The installation of a state folder, made once. Raises OperationError where its file is damaged."""
    path = state.installation
    if not path.exists():
        write_whole(path, f"{uuid4()}\n")
    text = path.read_text().strip()
    try:
        return UUID(text)
    except ValueError:
        raise OperationError(
            f"{path} holds {text[:40]!r}, which is no installation's id: restore the file, or remove it and run "
            "`plantlog up --take-over`"
        ) from None


def mark(state: State) -> str:
    """What the server's logins are marked with that are this installation's."""
    return f"plantlog installation {own(state)}"


@dataclass(frozen=True, slots=True)
class Owned:
    """Whose a database is."""

    ours: bool  # false: another's, or nobody's
    others: str  # what taking it over takes, in words; empty: nothing


async def check(connection: asyncpg.Connection[Any], state: State, take_over: bool) -> Owned:
    """Whose the database is. Works with every version of the schema, and with none.

    Raises OperationError where it is another installation's and not to be taken over.
    """
    queries = load("installation")
    tables = await connection.fetchrow(queries["tables"])
    if tables is None or not tables["sources"]:
        return Owned(False, "")
    known = await connection.fetch(queries["installations"]) if tables["installations"] else []
    others = [row for row in known if row["id"] != own(state)]
    sources = await connection.fetch(queries["sources"])
    if not others and (known or not sources or await _ours(connection, state)):
        return Owned(bool(known or sources), "")
    said = (f"plant {row['plant']} (installation {row['id']}, since {row['registered_at']:%Y-%m-%d})" for row in others)
    whose = " and ".join(said) or "of a version before this one, whose ids this state folder's registry does not have"
    what = f"{whose}: {_words(sources)}"
    if not take_over:
        raise OperationError(
            f"the database belongs to another installation, {what}. Give this plant a database of its own, or take "
            "that one over with --take-over: what this configuration does not name is then retired there, its settings "
            "and classes of retention are replaced, and the other installation's `plantlog up` is refused"
        )
    return Owned(False, what)


async def _ours(connection: asyncpg.Connection[Any], state: State) -> bool:
    """Whether the registry of the state folder is of this database."""
    if not state.registry.exists():
        return False
    registry = Registry.load(state.registry)
    return bool(registry.sources) and not await _asked(connection, "strange", registry)


async def never(connection: asyncpg.Connection[Any], registry: Registry) -> list[asyncpg.Record]:
    """Names and ids of a registry that never were this database's: a renamed channel had its former name."""
    return await _asked(connection, "never", registry)


async def _asked(connection: asyncpg.Connection[Any], query: str, registry: Registry) -> list[asyncpg.Record]:
    pairs = (list(registry.sources.items()), list(registry.pairs()))
    columns = [[pair[place] for pair in some] for some in pairs for place in (0, 1)]
    return await connection.fetch(load("installation")[query], *columns)


async def claim(connection: asyncpg.Connection[Any], state: State, plant: str, take_over: bool) -> tuple[UUID, str]:
    """Make the database this installation's, in the caller's transaction. Returns its id, and what was taken over."""
    queries = load("installation")
    taken = (await check(connection, state, take_over)).others
    installation = own(state)
    await connection.execute(queries["claim"], installation, plant)
    await connection.execute(queries["adopt"], installation)
    await connection.execute(queries["release"], installation)
    if taken:
        await connection.execute(queries["taken_over"], taken)
    return installation, taken


def _words(sources: list[asyncpg.Record]) -> str:
    """What is registered."""
    living = [row for row in sources if not row["retired"]]
    names = [row["name"] for row in (living or sources)]
    listed = ", ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
    retired = "" if living or not sources else ", all retired"
    many = "source" if len(names) == 1 else "sources"
    return f"{len(names):,} {many} ({listed}){retired} with {sum(row['channels'] for row in sources):,} channels"
