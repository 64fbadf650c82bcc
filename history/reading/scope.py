"""Scope of a seal: the data of one installation, or of all in the database.

An installation has a number that never changes. The first one has number 1, and what belongs to no installation is its
own: so every sample, event and gap of a day belongs to exactly one. As long as it is alone in the database, its seals
cover all that is there, under number 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import asyncpg

from core.errors import OperationError
from core.installation import find, installation_of, installations
from core.paths import State
from schema.queries import load


@dataclass(frozen=True, slots=True)
class Scope:
    """The data of one installation."""

    number: int  # 0: of all
    sources: Mapping[int, int]  # source id → number of its installation, other than 1
    channels: Mapping[int, int]  # the same by channel id

    @property
    def chain(self) -> int:
        """The number of the installation that seals it."""
        return max(self.number, 1)

    def of_installation(self, number: int) -> Scope:
        """Scope of another installation, or of all."""
        return replace(self, number=number)

    def owner(self, source: int | None, channel: int | None = None) -> int:
        """The number of the installation that something belongs to: by its source, or if it has none, its channel."""
        return self.sources.get(source, 1) if source is not None else self.channels.get(channel or 0, 1)

    def covers(self, source: int | None, channel: int | None = None) -> bool:
        """Return whether something belongs to the installation."""
        return self.number in (0, self.owner(source, channel))

    def select(self, channels: Iterable[int]) -> list[int]:
        """Select the channels that belong to it, in their order."""
        return [channel for channel in channels if self.covers(None, channel)]


async def load_scope(connection: asyncpg.Connection[Any], number: int) -> Scope:
    """The scope of an installation (0: of all) as registered now."""
    sections = ("select_numbered_sources", "select_numbered_channels")
    sources, channels = [
        {row["id"]: row["number"] for row in await connection.fetch(load("evidence")[name])} for name in sections
    ]
    return Scope(number, sources, channels)


@dataclass(frozen=True, slots=True)
class Chain:
    """An installation's chain of seals."""

    number: int
    is_own: bool  # of this state folder
    label: str  # the installation; empty where the database has only one


async def own_scope_number(connection: asyncpg.Connection[Any], state: State) -> int:
    """The scope of what this state folder seals from now on. Raises OperationError if it is not registered."""
    rows = await connection.fetch(load("evidence")["select_numbers"])
    identifier = installation_of(state.root)
    number = next((row["number"] for row in rows if row["id"] == identifier), None)
    if rows and number is None:
        raise OperationError(f"{state.root} is not registered in this database: run `plantlog up`")
    return 0 if number is None or (number == 1 and len(rows) == 1) else number


async def choose(connection: asyncpg.Connection[Any], state: State, name: str | None) -> list[Chain]:
    """The chains that ``--installation`` names: a plant, or the beginning of an id; all; None: this state folder's own.

    Raises OperationError.
    """
    rows = await connection.fetch(load("evidence")["select_numbers"])
    if len(rows) < 2 and name in (None, "all"):
        return [Chain(row["number"], True, "") for row in rows] or [Chain(1, True, "")]
    identifier = installation_of(state.root)
    chosen = (
        identifier if name in (None, "all") else find("--installation", str(name), await installations(connection)).id
    )
    chains = [
        Chain(row["number"], row["id"] == identifier, f"installation {row['id']} of plant {row['plant']}")
        for row in rows
        if name == "all" or row["id"] == chosen
    ]
    if not chains:
        raise OperationError(
            f"{state.root} is not registered in this database, which has several installations: use --installation"
        )
    return chains
