"""``plantlog config rename``: rename a channel; its id and history are kept."""

from __future__ import annotations

import asyncio
import csv
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from core.config.sources import ChannelName
from core.database import connected, database_errors
from core.errors import OperationError
from core.installation import installations
from core.paths import State
from ops.deployment import Deployment
from ops.registration.definitions import PRESENTATION
from ops.registration.installation import installation_id
from schema.queries import load


def rename(old: str, new: str, console: Console, *, exchange: bool = False) -> None:
    """Rename a channel in the database, print what to change in the tag list. Raises OperationError, DatabaseError.

    ``exchange``: ``new`` is a channel, too, and gets the name ``old``.
    """
    state = State.current()
    owner = state.dsn("owner")
    try:
        TypeAdapter(ChannelName).validate_python(new)
    except ValidationError:
        raise OperationError(
            f"{new!r} is not a channel name; legal: letters, digits, _ . % - and / as separator, 255 characters"
        ) from None
    with database_errors():
        row = asyncio.run(rename_channel(owner, state, old, new, exchange=exchange))
    if exchange:
        console.print(
            f"{old} and {new} have exchanged their names; channel {row['id']} is {new} now. Earlier samples keep their "
            "names in samples_named.",
            highlight=False,
            soft_wrap=True,
        )
        # Those who were sent here by `plantlog config apply` have exchanged them in the list already.
        console.print("Next: run `plantlog up` with a tag list in which each has its new name.", highlight=False)
        return
    console.print(
        f"channel {row['id']} is renamed to {new}. Earlier samples keep the name {old} in samples_named; "
        f"use WHERE channel_id = {row['id']} to select all of them.",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"Next: {_next_steps(state, row, old, new)}run `plantlog up`.", highlight=False, soft_wrap=True)


async def rename_channel(dsn: str, state: State, old: str, new: str, *, exchange: bool = False) -> asyncpg.Record:
    """The renamed channel: id, name of its source, whether a gateway made it, whether it is retired.

    A channel that reads the same under the new name, as ``up`` made it of an edited tag list, is set aside and retired.
    Raises OperationError.
    """
    queries = load("register")
    async with connected(dsn, "plantlog channel rename") as connection, connection.transaction():
        await connection.execute(queries["lock_registration"])
        records = await connection.fetch(queries["select_named"], [old, new], PRESENTATION)
        rows = {row["name"]: row for row in records}
        installation = installation_id(state)
        others = {other.id: other for other in await installations(connection) if other.id != installation}
        for name in (old, new) if exchange else (old,):
            if name not in rows:
                raise OperationError(f"there is no channel {name}")
            if (owner := others.get(rows[name]["installation_id"])) is not None:
                raise OperationError(f"channel {name} belongs to {owner}: rename it there")
        renamed: asyncpg.Record = rows[old]
        if exchange:
            # A name is unique at any time.
            aside = superseded_name(old)
            for before, after in ((old, aside), (new, old), (aside, new)):
                await connection.execute(queries["rename_channel"], before, after)
            return renamed
        if new in rows and rows[old]["retired"] and rows[old]["location"] == rows[new]["location"]:
            # The tag list had the new name before this command: what it made gives way.
            await connection.execute(queries["supersede_channels"], [new], [superseded_name(new)])
        elif new in rows:
            raise OperationError(f"channel {rows[new]['id']} already has the name {new}: choose another")
        await connection.execute(queries["rename_channel"], old, new)
        return renamed


def superseded_name(name: str) -> str:
    """The name of a channel that gives its own to a new one."""
    return f"{name[:230]}.until-{datetime.now(UTC):%Y%m%dT%H%M%S}"


def _next_steps(state: State, row: asyncpg.Record, old: str, new: str) -> str:
    """Next steps: changes of the configuration before the next ``up``."""
    if row["created"]:
        return f'add a tag with name = "{new}" and address = "{old}" to source {row["source"]}, then '
    deployment = Deployment.load(state)
    location = _location(deployment.config, row["source"], old) if deployment is not None else None
    list_location = _location(deployment.config, row["source"], new) if deployment is not None else None
    if list_location is not None and (row["retired"] or location is None):
        return f"{list_location} has the new name already: "
    dsn = f"in {location}" if location else f"in the tag list of source {row['source']}"
    return f"change {old} to {new} {dsn}, then "


def _location(config: Path, source: str, name: str) -> str | None:
    """FILE:LINE of a tag; None where it is not found: the command itself is done."""
    try:
        content: dict[str, Any] = tomllib.loads(config.read_text())
        [file] = [table["tags"] for table in content["source"] if table["name"] == source]
        with (config.parent / file).open(newline="") as text:
            rows = csv.DictReader(text)
            for row in rows:
                if row.get("name") == name:
                    return f"{config.parent / file}:{rows.line_num}"
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        pass
    return None
