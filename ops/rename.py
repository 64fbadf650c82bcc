"""``plantlog rename``: another name for a channel, which keeps its id and its history."""

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

from ingest.config.model import ChannelName
from ingest.errors import DatabaseError, OperationError
from ops.deployment import Deployment
from ops.installation import check
from ops.paths import State
from ops.spool.kept_out import dsn
from schema.queries import load


def rename(old: str, new: str, console: Console) -> None:
    """Rename a channel in the database, say what to change in the tag list. Raises OperationError and DatabaseError."""
    state = State.current()
    owner = dsn(state, "owner")
    try:
        TypeAdapter(ChannelName).validate_python(new)
    except ValidationError:
        raise OperationError(
            f"{new!r} is no channel's name: letters, digits, _ . % - and / between its parts, 255 characters at most"
        ) from None
    try:
        row = asyncio.run(renamed(owner, state, old, new))
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise DatabaseError(f"the database does not answer: {str(error) or type(error).__name__}") from error
    console.print(
        f"channel {row['id']} is called {new} from now on; in samples_named samples from before keep the name {old}: "
        f"WHERE channel_id = {row['id']} finds them all",
        highlight=False,
        soft_wrap=True,
    )
    console.print(f"Now {_to_do(state, row, old, new)}run `plantlog up`.", highlight=False, soft_wrap=True)


async def renamed(where: str, state: State, old: str, new: str) -> asyncpg.Record:
    """The renamed channel: id, name of its source, whether a gateway made it, whether it is retired.

    A channel that reads the same under the new name, as ``up`` made it of an edited tag list, is set aside and retired.
    Raises OperationError.
    """
    queries = load("register")
    connection = await asyncpg.connect(where)
    try:
        async with connection.transaction():
            await connection.execute(queries["lock"])
            await check(connection, state, take_over=False)
            rows = {row["name"]: row for row in await connection.fetch(queries["named"], [old, new])}
            if old not in rows:
                raise OperationError(f"no channel is called {old}")
            if new in rows and rows[old]["retired"] and rows[old]["place"] == rows[new]["place"]:
                # The tag list had the new name before this command: what it made gives way.
                await connection.execute(queries["give_way"], [new], [name_aside(new)])
            elif new in rows:
                raise OperationError(f"channel {rows[new]['id']} is called {new} already: give {old} another name")
            await connection.execute(queries["rename"], old, new)
            return rows[old]
    finally:
        await connection.close()


def name_aside(name: str) -> str:
    """The name of a channel that gives its own to a new one."""
    return f"{name[:230]}.until-{datetime.now(UTC):%Y%m%dT%H%M%S}"


def _to_do(state: State, row: asyncpg.Record, old: str, new: str) -> str:
    """What to change in the configuration before the next ``up``."""
    if row["created"]:
        return f'give source {row["source"]} a tag with name = "{new}" and address = "{old}", and '
    deployment = Deployment.load(state)
    if deployment is not None and row["retired"] and _place(deployment.config, row["source"], new):
        return ""  # it has the new name
    place = _place(deployment.config, row["source"], old) if deployment is not None else None
    where = f"in {place}" if place else f"in the tag list of source {row['source']}"
    return f"write {new} instead of {old} {where}, and "


def _place(config: Path, source: str, name: str) -> str | None:
    """FILE:LINE of a tag; None where it is not found: the command itself is done."""
    try:
        content: dict[str, Any] = tomllib.loads(config.read_text())
        [file] = [one["tags"] for one in content["source"] if one["name"] == source]
        with (config.parent / file).open(newline="") as text:
            rows = csv.DictReader(text)
            for row in rows:
                if row.get("name") == name:
                    return f"{config.parent / file}:{rows.line_num}"
    except (OSError, ValueError, KeyError, TypeError, csv.Error):
        pass
    return None
