"""Installations: each is a state folder with its plant; several can share a database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from core.errors import OperationError
from schema.queries import load

if TYPE_CHECKING:
    import asyncpg

ALL = "all"  # stands for every installation


def installation_of(folder: Path) -> UUID | None:
    """The installation id of a state folder; None: it has none yet. Raises OperationError if its file is damaged."""
    path = folder / "installation"
    try:
        text = path.read_text().strip()
        return UUID(text)
    except FileNotFoundError:
        return None
    except ValueError:
        raise OperationError(
            f"{path} contains {text[:40]!r}, which is not an installation id: restore the file, or delete it and run "
            "`plantlog up --take-over INSTALLATION`"
        ) from None


@dataclass(frozen=True, slots=True)
class Installation:
    """An installation that is registered in a database."""

    id: UUID
    plant: str
    place: str | None  # machine and state folder; None: not known
    age: float | None  # s since it was seen there

    @property
    def name(self) -> str:
        """Name in messages."""
        return f"installation {self.id} of plant {self.plant}"

    def __str__(self) -> str:
        last_seen = "" if self.age is None else f", last seen {_ago(self.age)} in {self.place}"
        return f"{self.name}{last_seen}"


def _ago(seconds: float) -> str:
    for unit, length in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"


async def installations(connection: asyncpg.Connection[Any]) -> list[Installation]:
    """Installations of a database, in the order of their registration; without the schema, none."""
    queries = load("installation")
    if not await connection.fetchval(queries["has_tables"]):
        return []
    return [Installation(**row) for row in await connection.fetch(queries["select_installations"])]


def find(option: str, name: str, installations: Sequence[Installation]) -> Installation:
    """The installation with this plant, or whose id begins so. Raises OperationError, which names the option."""
    matches = [each for each in installations if each.plant == name or str(each.id).startswith(name)]
    if len(matches) != 1:
        listed = "; ".join(map(str, installations)) or "none"
        problem = "more than one installation is" if matches else "no installation is"
        raise OperationError(f"{option}: {problem} {name}; registered: {listed}")
    return matches[0]


async def chosen(connection: asyncpg.Connection[Any], name: str) -> UUID | None:
    """The installation that ``--installation`` names; None: all of the database. Raises OperationError."""
    return None if name == ALL else find("--installation", name, await installations(connection)).id
