"""Registration: sources and channels of the configuration get ids in the database, and the registry file is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from core.config.model import Plant
from core.database import connected
from core.errors import OperationError
from core.formatting import count
from core.paths import State
from core.registry import Registry
from ingest.push.channels import load_created
from ops.registration import pair
from ops.registration.definitions import PRESENTATION, definitions, send_definitions
from ops.registration.difference import MAX_NAMES, Difference, difference
from ops.registration.installation import check_names, claim, leader, unknown_ids
from ops.registration.older_database import RestoredIds, restore_ids
from ops.registration.redefined_tags import TagDecisions, check_decisions, redefinitions
from ops.registration.revisions import Files, record
from schema.queries import load

_NO_DECISIONS = TagDecisions()
_ALL_NAMES = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Registration:
    """Result of a registration."""

    registry: Registry
    difference: Difference
    taken_over: str  # what belonged to another installation, as text; empty: nothing
    restored_ids: RestoredIds  # what an older database got
    versions: Mapping[str, int]  # channel's name → version, where its collector has to say from when on it reads by it
    not_applied: str  # settings that another installation has otherwise, as text; empty: none
    revision: int | None  # under which number the configuration is kept now; None: as before

    def print_changes(self, note: Callable[[str], None]) -> None:
        """Say each change; nothing if nothing changed."""
        if self.taken_over:
            note(f"taken over: {self.taken_over}")
        if older := self.restored_ids.describe():
            note(older)
        for line in self.difference.lines():
            note(line)
        if self.not_applied:
            note(self.not_applied)
        if self.revision is not None:
            note(f"kept as revision {self.revision}")


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A configuration and what the database has."""

    installation: UUID
    taken_over: str
    restored_ids: RestoredIds
    difference: Difference


async def preview(
    connection: asyncpg.Connection[Any],
    plant: Plant,
    state: State,
    decisions: TagDecisions = _NO_DECISIONS,
    take_over: str | None = None,
) -> Difference:
    """Preview :func:`register`, with all names. Changes nothing; raises as it does, but for tags in doubt."""
    if plant.redundancy.member is not None:
        await pair.check(connection, state, plant, lambda line: None)
    transaction = connection.transaction()
    await transaction.start()
    try:
        return (await _compare(connection, plant, state, take_over, decisions, _ALL_NAMES)).difference
    finally:
        await transaction.rollback()


async def register(
    plant: Plant,
    dsn: str,
    state: State,
    take_over: str | None = None,
    decisions: TagDecisions = _NO_DECISIONS,
    expected: Difference | None = None,
    files: Files | None = None,
) -> Registration:
    """Bring the plant's sources and channels into the database at ``dsn`` and their ids into ``registry.json``.

    Names keep their ids for ever. What this installation had registered and the configuration no longer contains is
    marked retired. ``take_over``: an installation that is gone, which this state folder becomes; ``expected``: what
    :func:`preview` found; ``files``: to be kept. Raises OperationError if a name belongs to another installation, if a
    tag was redefined and ``decisions`` does not cover it, if the state folder has ids of another database, or if
    something else than ``expected`` would be changed.
    """
    sources = _source_columns(plant)
    queries = load("register")
    async with connected(dsn, "plantlog up") as connection, connection.transaction():
        compared = await _compare(
            connection, plant, state, take_over, decisions, MAX_NAMES if expected is None else _ALL_NAMES
        )
        installation, changes = compared.installation, compared.difference
        changes.check(expected)
        await connection.execute(queries["update_sources"], *sources)
        await connection.execute(queries["insert_sources"], *sources, installation)
        await connection.execute(queries["update_channels"])
        await connection.execute(queries["insert_channels"])
        await connection.execute(queries["retire_channels"])
        not_applied = await _set_settings(connection, state, plant, installation)
        await connection.execute(
            queries["upsert_retention_classes"], *_columns(_retention_classes(plant), 5), installation
        )
        await connection.execute(queries["retire_sources"], sources[0], installation)
        await _close_removed(connection, state, plant)
        if changes.sources:
            await connection.execute(queries["analyze_channels"])
        revision = None
        if files is not None:
            revision = await record(connection, installation, files, changes, plant.redundancy.member)
        created_rows = await connection.fetch(queries["select_created_channels"], sources[0])
        versions = {row["name"]: row["version"] for row in await connection.fetch(queries["select_versions"])}
        registry = Registry(
            {row["name"]: row["id"] for row in await connection.fetch(queries["select_source_ids"], sources[0])},
            _ids(plant, await connection.fetchval(queries["select_channel_ids"]) or ()),
            _by_source(plant, created_rows),
            tuple(row["id"] for row in created_rows if row["kind"] == "text"),
            tuple(await connection.fetchrow(queries["select_last_ids"]) or ()),
        )
    registry.save(state.registry)
    return Registration(registry, changes, compared.taken_over, compared.restored_ids, versions, not_applied, revision)


async def _compare(
    connection: asyncpg.Connection[Any],
    plant: Plant,
    state: State,
    take_over: str | None,
    decisions: TagDecisions,
    names: int,
) -> _Comparison:
    """Compare, in the caller's transaction, which then has the lock of registrations and the temporary tables.

    Channels that are to be replaced have given their names away then. ``names``: of added channels, by source.
    """
    sources = _source_columns(plant)
    queries = load("register")
    await connection.execute(queries["lock_registration"])
    await connection.execute(queries["set_registration"])
    installation, taken_over = await claim(connection, state, plant, take_over)
    await connection.execute(queries["create_temporary_tables"])
    # Another installation's database has other ids.
    older = RestoredIds() if taken_over else await restore_ids(connection, state, plant, installation)
    await _check_spools(connection, state)
    await send_definitions(connection, definitions(plant))
    await check_names(connection, plant, installation)
    source_changes = await connection.fetch(queries["select_source_differences"], *sources, installation)
    changes = await _channel_differences(connection, installation)
    moved = _renamed_sources(plant, await connection.fetch(queries["select_endpoints"], installation))
    if decisions.same_quantity or decisions.new_channel:
        tags = {tag.name for source in plant.sources for tag in source.tags}
        check_decisions(decisions, tags | {row["name"] for row in changes})
    redefined = redefinitions(
        changes, moved, await connection.fetch(queries["select_renamed"], installation), decisions
    )
    if redefined.aside:
        await connection.execute(queries["supersede_channels"], [*redefined.aside], [*redefined.aside.values()])
        await connection.execute(queries["delete_differences"])
        changes = await _channel_differences(connection, installation)
    added = await connection.fetch(queries["select_added"], names)
    same = await connection.fetch(queries["select_same_address"], PRESENTATION)
    return _Comparison(installation, taken_over, older, difference(source_changes, changes, added, same, redefined))


def _source_columns(plant: Plant) -> list[list[Any]]:
    return _columns([(source.name, source.kind, source.address) for source in plant.sources], 3)


async def _set_settings(connection: asyncpg.Connection[Any], state: State, plant: Plant, installation: UUID) -> str:
    """Apply the settings of the database, which one installation decides; returns settings not applied, as text."""
    queries, columns = load("register"), _columns(_settings(plant), 2)
    leading = await leader(connection, state)
    if leading is None:
        await connection.execute(queries["upsert_settings"], *columns, installation)
        return ""
    differing = [row["key"] for row in await connection.fetch(queries["select_other_settings"], *columns)]
    return (
        f"not applied: {', '.join(differing)}; the database has one value, and it is that of {leading}"
        if differing
        else ""
    )


async def _channel_differences(connection: asyncpg.Connection[Any], installation: UUID) -> list[Any]:
    """Differences of channels that were there before."""
    queries = load("register")
    await connection.execute(queries["insert_differences"], installation)
    return await connection.fetch(queries["select_differences"])


def _ids(plant: Plant, ids: Sequence[int]) -> dict[str, dict[str, int]]:
    """Source → name of a channel → id; ``ids`` are in the order of the configuration."""
    names = ((source.name, tag.name) for source in plant.sources for tag in source.tags)
    by_source: dict[str, dict[str, int]] = {source.name: {} for source in plant.sources}
    for (source, name), number in zip(names, ids, strict=True):
        by_source[source][name] = number
    return by_source


def _renamed_sources(plant: Plant, end_points: list[Any]) -> dict[str, str]:
    """Former source → the source that has its end point now: the same device by another name."""
    now = {(source.kind, source.address): source.name for source in plant.sources if source.kind != "push"}
    configured = {source.name for source in plant.sources}
    places = {row["name"]: (row["kind"], row["address"]) for row in end_points if row["name"] not in configured}
    return {name: now[place] for name, place in places.items() if place in now}


def _by_source(plant: Plant, rows: list[Any]) -> dict[str, dict[str, int]]:
    """Push source → name of a channel that it created → id."""
    created: dict[str, dict[str, int]] = {source.name: {} for source in plant.push_sources()}
    for row in rows:
        created[row["source"]][row["name"]] = row["id"]
    return created


def _settings(plant: Plant) -> list[tuple[str, str | None]]:
    """Settings of the configuration that functions in the database need; None: not set."""
    storage = plant.storage
    return [
        ("compression", storage.compression),
        ("lateness", f"{storage.lateness:g}"),  # s
        ("disk_budget", None if storage.disk_budget is None else str(storage.disk_budget)),  # bytes
    ]


def _retention_classes(plant: Plant) -> list[tuple[Any, ...]]:
    """Name and ages (s, None: forever) of the classes of retention."""
    return [(name, ages.raw, ages.minute, ages.hour, ages.event) for name, ages in plant.retention.items()]


def _columns(rows: list[tuple[Any, ...]], width: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


def spooled_rows(folder: Path) -> tuple[int, tuple[str, ...]]:
    """Rows in the spool files that are not yet in the database, and the files that can't be read.

    A damaged file is for its collector to repair; what is in it is not known until then.
    """
    rows, unreadable = 0, []
    for path in sorted(folder.glob("*.sqlite")):
        try:
            with closing(sqlite3.connect(path, timeout=10)) as connection:
                connection.execute("PRAGMA query_only = ON")
                rows += connection.execute(load("spool")["count_batches"]).fetchone()[1]
        except sqlite3.Error:
            unreadable.append(path.name)
    return rows, tuple(unreadable)


async def _check_spools(connection: asyncpg.Connection[Any], state: State) -> None:
    """Spooled rows contain ids; with ids of another database they would become samples of other channels."""
    if not state.registry.exists():
        return
    rows, unreadable = spooled_rows(state.spool)
    if not rows and not unreadable:
        return
    before = Registry.load(state.registry)
    foreign = await unknown_ids(connection, replace(before, created=load_created(state.root).ids))
    if foreign:
        name, old, id_here = foreign[0]
        content = " and ".join((*([count(rows, "row")] if rows else []), *unreadable))
        raise OperationError(
            f"{state.spool} contains {content} of another database (there {name} has id {old}, here "
            f"{id_here or 'none'}): run `plantlog up` with that database once to write them, or "
            "delete the files to discard them"
        )


async def _close_removed(connection: asyncpg.Connection[Any], state: State, plant: Plant) -> None:
    """Close the gaps of the sources that the state folder had, and that are retired now. Raises SpoolError.

    Part of the transaction that retires them, because the next registration does not know them.
    """
    if not state.registry.exists():
        return
    before = Registry.load(state.registry, ()).sources
    retired = await connection.fetch(load("register")["select_retired"], list(before), list(before.values()))
    if retired:
        from ops.registration import closed_sources  # noqa: PLC0415  (numpy: most commands need none)

        await closed_sources.close_removed(state.spool, plant, {row["id"]: row["name"] for row in retired})
