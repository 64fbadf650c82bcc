"""A database that is older than the state folder: restored from a backup, a standby that lagged, or a new one.

``registry.json`` has ids that such a database has not given yet. Spools and journal contain samples by these ids: the
sources and channels are put back under them, and no such id is given to another one. Channels that the configuration
in force no longer has are not in ``registry.json``; their ids stay unused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any
from uuid import UUID

import asyncpg

from core.config import snapshot
from core.config.model import Plant
from core.errors import OperationError
from core.formatting import count
from core.paths import State
from core.registry import Registry
from ingest.push.channels import CreatedChannels, load_created
from ops.registration.definitions import PRESENTATION, Definition, definitions, send_definitions
from ops.registration.difference import MAX_NAMES
from ops.registration.rename import superseded_name
from schema.queries import load


@dataclass(frozen=True, slots=True)
class RestoredIds:
    """Rows that an older database got back."""

    sources: Sequence[str] = ()
    channels: Sequence[str] = ()
    renamed: Sequence[str] = ()  # channels that were renamed since
    advanced: bool = False  # the next ids are later ones

    def describe(self) -> str:
        """Text of all that was put back; empty: the database is not older."""
        parts = [
            f"{count(len(names), noun)} ({', '.join(names[:MAX_NAMES])}{' …' if names[MAX_NAMES:] else ''}) {done}"
            for names, noun, done in (
                (self.sources, "source", "put back"),
                (self.channels, "channel", "put back"),
                (self.renamed, "channel", "renamed again"),
            )
            if names
        ]
        if self.advanced:
            parts.append("ids given since the backup are not given again")
        return f"the database is older than this state folder: {'; '.join(parts)}" if parts else ""


async def restore_ids(
    connection: asyncpg.Connection[Any], state: State, plant: Plant, installation: UUID
) -> RestoredIds:
    """Give the database the ids of ``registry.json``, in the caller's transaction, in which ``configured`` is empty.

    Definitions are those of the configuration in force, or of ``plant``, the next one. Raises OperationError if the
    database has an id of ``registry.json`` for something else.
    """
    if not state.registry.exists():
        return RestoredIds()
    queries, created = load("register"), load_created(state.root)
    registered = replace(Registry.load(state.registry), created=created.ids)
    channels = dict(registered.pairs())
    last_ids = [
        max((*ids.values(), last))
        for ids, last in zip((registered.sources, channels), registered.last_ids, strict=True)
    ]
    no_sources = await connection.fetch(
        queries["select_unknown_sources"], list(registered.sources), list(registered.sources.values())
    )
    no_channels = []
    if await connection.fetchval(queries["digest_names"], list(channels.values())) != _digest(channels):
        no_channels = await connection.fetch(
            queries["select_unknown_channels"], list(channels), list(channels.values())
        )
    sources: list[str] = []
    rows: list[asyncpg.Record] = []
    if no_sources or no_channels:
        _check(state, "source", [row for row in no_sources if row["other"] is not None or row["here"] is not None])
        last = next(snapshot.history(state.root), None)
        plants = [plant] if last is None else [last.plant, plant]
        sources = await _insert_sources(
            connection, {row["name"]: row["id"] for row in no_sources}, plants, installation
        )
        names = [row["name"] for row in no_channels]
        await send_definitions(connection, _definitions(set(names), plants, created))
        rows = await connection.fetch(queries["select_places"], names, [row["id"] for row in no_channels], PRESENTATION)
        _check(
            state,
            "channel",
            [row for row in rows if (not row["same_other"] if row["other"] is not None else row["same_here"])],
        )
        await _write_channels(connection, [row for row in rows if row["defined"]], _configured_since(state, names))
        await connection.execute(queries["delete_configured"])
    advanced = await connection.fetchval(queries["advance_ids"], *last_ids)
    return RestoredIds(
        sources,
        [row["name"] for row in rows if row["defined"] and row["other"] is None],
        [row["name"] for row in rows if row["other"] is not None],
        bool(advanced),
    )


def _digest(channels: Mapping[str, int]) -> str:
    """Digest of names and ids, as section ``digest_names`` computes it: the names need not be sent."""
    lines = (f"{number} {name}" for name, number in sorted(channels.items(), key=itemgetter(1)))
    return hashlib.md5("\n".join(lines).encode(), usedforsecurity=False).hexdigest()


def _check(state: State, noun: str, conflicts: Sequence[asyncpg.Record]) -> None:
    """Raise OperationError if there are conflicts."""
    if not conflicts:
        return
    row = conflicts[0]
    reason = f"{noun} {row['other']} has this id" if row["other"] is not None else f"it has id {row['here']}"
    more = f" ({len(conflicts) - 1:,} more differ)" if conflicts[1:] else ""
    raise OperationError(
        f"the database is neither that of {state.root} nor a backup of it: in {state.registry.name}, {noun} "
        f"{row['name']} has id {row['id']}; in the database, {reason}{more}. Nothing was changed. Use the database of "
        f"this state folder, or a backup of it. To go on with this database, move {state.registry} and {state.spool} "
        "away: what they contain is then not written to it"
    )


async def _insert_sources(
    connection: asyncpg.Connection[Any], ids: Mapping[str, int], plants: Sequence[Plant], installation: UUID
) -> list[str]:
    """Names of those that have a definition."""
    described = {source.name: source for plant in reversed(plants) for source in plant.sources}
    sources = [described[name] for name in ids if name in described]
    columns = [[getattr(source, field) for source in sources] for field in ("name", "kind", "address")]
    await connection.execute(
        load("register")["insert_known_sources"], [ids[source.name] for source in sources], *columns, installation
    )
    return columns[0]


def _definitions(names: set[str], plants: Sequence[Plant], created: CreatedChannels) -> Iterator[Definition]:
    """Rows with distinct names."""
    by_name: dict[str, Definition] = {}
    for plant in plants:
        for row in definitions(plant):
            if row[0] in names:
                by_name.setdefault(row[0], row)
    for source, channels in created.ids.items():
        for name, number in channels.items():
            if name in names:
                kind = "text" if number in created.texts else "analog"
                by_name.setdefault(name, (name, source, name, "{}", kind, "", None, None, 0.0, "", "default"))
    yield from by_name.values()


async def _write_channels(
    connection: asyncpg.Connection[Any], rows: Sequence[asyncpg.Record], since: Mapping[str, float]
) -> None:
    queries = load("register")
    removed = [row["name"] for row in rows if row["here"] is not None]  # since by --new-channel
    await connection.execute(queries["supersede_channels"], removed, [superseded_name(name) for name in removed])
    for row in rows:
        if row["other"] is not None:
            await connection.execute(queries["rename_channel"], row["other"], row["name"])
    absent = [row for row in rows if row["other"] is None]
    names, ids = [row["name"] for row in absent], [row["id"] for row in absent]
    await connection.execute(queries["insert_known_channels"], names, ids, [since.get(name) for name in names])


def _configured_since(state: State, names: Sequence[str]) -> dict[str, float]:
    """Time when the channels came into the configuration in force (s), where it is known."""
    since: dict[str, float] = {}
    remaining = set(names)
    for snapshot_before in snapshot.history(state.root):
        remaining &= {tag.name for source in snapshot_before.plant.sources for tag in source.tags}
        since.update(dict.fromkeys(remaining, snapshot_before.since / 1e6))
        if not remaining:
            break
    return since
