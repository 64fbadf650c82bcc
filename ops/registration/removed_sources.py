"""The gaps of sources that a registration retires."""

from __future__ import annotations

from typing import Any

import asyncpg

from core.config.model import Plant
from core.paths import State
from core.registry import Registry
from schema.queries import load


async def close_removed(connection: asyncpg.Connection[Any], state: State, plant: Plant) -> None:
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
