"""From the configuration to the database's ids, and from there to the registry that collectors start with."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from ingest.config.model import ModbusSource, ModbusTag, Plant, Source, Tag, fields_of
from ingest.errors import OperationError
from ingest.push.channels import created
from ingest.registry import Registry
from ops.difference import NAMED, Difference, difference
from ops.installation import claim, never
from ops.meaning import Choice, chosen
from ops.paths import State
from ops.rename import name_aside
from ops.steps import Step
from ops.words import count
from schema.queries import load

_NO_CHOICE = Choice()
_COLUMNS = {name for name in fields_of(Tag) if not name.startswith("alarm_")} | {"address"}  # of plant.channel


@dataclass(frozen=True, slots=True)
class Registered:
    """What a registration did."""

    registry: Registry
    difference: Difference
    taken_over: str  # what was another installation's, in words; empty: nothing
    versions: Mapping[str, int]  # channel's name → version, where its collector has to say from when on it reads by it

    def tell(self, step: Step) -> None:
        """Say it below the step of a command; nothing where nothing changed."""
        if self.taken_over:
            step.say(f"taken over: {self.taken_over}")
        for line in self.difference.lines():
            step.say(line)


async def register(
    plant: Plant, dsn: str, state: State, take_over: bool = False, choice: Choice = _NO_CHOICE
) -> Registered:
    """Bring the plant's sources and channels into the database at ``dsn`` and their ids into ``registry.json``.

    Names keep their ids for ever; what this installation had registered and its configuration no longer names is
    marked retired. Raises OperationError when the database is another installation's, when a tag means something else
    than before and ``choice`` does not say what to do, or when the spools hold rows under ids of another database.
    """
    sources = _columns([(source.name, source.kind, source.address) for source in plant.sources], 3)
    queries = load("register")
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute(queries["lock"])
            await connection.execute(queries["registration"])
            installation, taken_over = await claim(connection, state, plant.name, take_over)
            await _check_spools(connection, state)
            await _say(connection, plant)
            of_sources = await connection.fetch(queries["source_differences"], *sources, installation)
            changes = await _compared(connection, installation)
            moved = _moved(plant, await connection.fetch(queries["end_points"], installation))
            anew = chosen(changes, moved, await connection.fetch(queries["renamed"]), choice)
            if anew:
                await connection.execute(queries["give_way"], anew, [name_aside(name) for name in anew])
                await connection.execute(queries["compare_again"])
                changes = await _compared(connection, installation)
            added = await connection.fetch(queries["added"], NAMED)
            found = difference(of_sources, changes, added, await connection.fetch(queries["reads_the_same"]))
            await connection.execute(queries["update_sources"], *sources)
            await connection.execute(queries["insert_sources"], *sources, installation)
            await connection.execute(queries["update_channels"])
            await connection.execute(queries["insert_channels"])
            await connection.execute(queries["retire_channels"])
            await connection.execute(queries["settings"], *_columns(_settings(plant), 2), installation)
            await connection.execute(queries["retention_classes"], *_columns(_classes(plant), 5), installation)
            await connection.execute(queries["retire_sources"], sources[0], installation)
            made = await connection.fetch(queries["created"], sources[0])
            versions = {row["name"]: row["version"] for row in await connection.fetch(queries["versions"])}
            registry = Registry(
                {row["name"]: row["id"] for row in await connection.fetch(queries["sources"], sources[0])},
                _ids(plant, await connection.fetchval(queries["ids"]) or ()),
                _by_source(plant, made),
                tuple(row["id"] for row in made if row["kind"] == "text"),
            )
    finally:
        await connection.close()
    registry.save(state.registry)
    return Registered(registry, found, taken_over, versions)


async def _say(connection: asyncpg.Connection[Any], plant: Plant) -> None:
    """Send the plant's channels, once."""
    queries = load("register")
    await connection.execute(queries["said"])
    rows = ((place, *row) for place, row in enumerate(_channels(plant)))
    await connection.copy_records_to_table("said", schema_name="pg_temp", records=rows)
    await connection.execute(queries["all_said"])


async def _compared(connection: asyncpg.Connection[Any], installation: UUID) -> list[Any]:
    """What is otherwise of channels that were there before."""
    queries = load("register")
    await connection.execute(queries["compare"], installation)
    return await connection.fetch(queries["differences"])


def _ids(plant: Plant, ids: Sequence[int]) -> dict[str, dict[str, int]]:
    """Source → name of a channel → id; ``ids`` are in the order of the configuration."""
    names = ((source.name, tag.name) for source in plant.sources for tag in source.tags)
    found: dict[str, dict[str, int]] = {source.name: {} for source in plant.sources}
    for (source, name), number in zip(names, ids, strict=True):
        found[source][name] = number
    return found


def _moved(plant: Plant, known: list[Any]) -> dict[str, str]:
    """Former source → the source that has its end point now: the same device by another name."""
    now = {(source.kind, source.address): source.name for source in plant.sources if source.kind != "push"}
    here = {source.name for source in plant.sources}
    places = {row["name"]: (row["kind"], row["address"]) for row in known if row["name"] not in here}
    return {name: now[place] for name, place in places.items() if place in now}


def _by_source(plant: Plant, rows: list[Any]) -> dict[str, dict[str, int]]:
    """Push source → name of a channel that it created → id."""
    created: dict[str, dict[str, int]] = {source.name: {} for source in plant.push_sources()}
    for row in rows:
        created[row["source"]][row["name"]] = row["id"]
    return created


def _channels(plant: Plant) -> Iterator[tuple[Any, ...]]:
    """The columns of ``said`` but the first."""
    for source in plant.sources:
        described: dict[type[Tag], _Described] = {}
        for tag in source.tags:
            kind = type(tag)
            if kind not in described:
                described[kind] = _Described(source, kind)
            attributes = described[kind].attributes(tag)
            facts = (tag.kind, tag.unit, tag.lo, tag.hi, tag.deadband, tag.description)
            yield (tag.name, source.name, getattr(tag, "address", ""), *facts, attributes, tag.retention)


class _Described:
    """What tags of a source say beside the columns, as JSON: most of them say the same."""

    def __init__(self, source: Source, kind: type[Tag]) -> None:
        fields = {name: field.default for name, field in fields_of(kind).items() if name not in _COLUMNS}
        self._source = source
        self._defaults = tuple(fields.items())
        self._values = attrgetter(*fields)
        self._known: dict[tuple[Any, ...], str] = {}

    def attributes(self, tag: Tag) -> str:
        """A JSON object."""
        values = (tag.kind == "text", *self._values(tag))
        if values not in self._known:
            self._known[values] = self._written(tag, values[1:])
        return self._known[values]

    def _written(self, tag: Tag, values: tuple[Any, ...]) -> str:
        pairs = zip(self._defaults, values, strict=True)
        attributes = {name: value for (name, default), value in pairs if value != default}
        source = self._source
        if isinstance(source, ModbusSource) and isinstance(tag, ModbusTag):
            if tag.kind != "text":
                # s; texts are stored when they change, so that no number of them is to be expected
                attributes["expected_interval"] = tag.interval or source.poll_interval
            if tag.unit_id is None and source.unit_id != 1:
                attributes["unit_id"] = source.unit_id  # another unit is another device
        return json.dumps(attributes, sort_keys=True)


def _settings(plant: Plant) -> list[tuple[str, str | None]]:
    """What functions in the database have to know of the configuration; None: not said."""
    storage = plant.storage
    return [
        ("compression", storage.compression),
        ("lateness", f"{storage.lateness:g}"),  # s
        ("disk_budget", None if storage.disk_budget is None else str(storage.disk_budget)),  # bytes
        ("sealing", "on" if plant.sealing.enabled else "off"),
    ]


def _classes(plant: Plant) -> list[tuple[Any, ...]]:
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
                rows += connection.execute(load("spool")["depth"]).fetchone()[1]
        except sqlite3.Error:
            unreadable.append(path.name)
    return rows, tuple(unreadable)


async def _check_spools(connection: asyncpg.Connection[Any], state: State) -> None:
    """Spooled rows carry ids; under another database's ids they would become another channel's samples."""
    if not state.registry.exists():
        return
    rows, unreadable = spooled_rows(state.spool)
    if not rows and not unreadable:
        return
    before = Registry.load(state.registry)
    moved = await never(connection, replace(before, created=created(state.root).ids))
    if moved:
        name, old, here = moved[0]
        held = " and ".join((*([count(rows, "row")] if rows else []), *unreadable))
        raise OperationError(
            f"{state.spool} holds {held} of another database (there {name} has id {old}, here "
            f"{here or 'none'}): run `plantlog up` with that database once, so that they reach it, or "
            "remove the files to give them up"
        )
