"""The storage settings in the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from core.errors import DatabaseError
from ops.maintenance.run import Connection
from schema.queries import load


@dataclass(frozen=True, slots=True)
class Settings:
    """Read in one look, with what depends on the clock."""

    late_until: datetime  # what is before is closed: its time for late data is over
    closed_until: datetime  # the same in whole days (UTC)
    disk_budget: int | None  # bytes
    bytes: int  # of the database now


async def settings(connection: Connection) -> Settings:
    """Present settings."""
    row = await connection.fetchrow(load("maintenance")["select_settings"])
    if row is None:
        raise DatabaseError("a SELECT without FROM gave no row")
    return Settings(**row)
