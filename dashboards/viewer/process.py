"""The viewer as a process of the appliance, with the health page that every process has."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dashboards.viewer.library import Library
from dashboards.viewer.reader import Reader
from dashboards.viewer.server import serve
from ingest import health
from ingest.batch import now_us
from ingest.config.model import Plant
from ingest.errors import DatabaseError

HEALTH_PORT = 5  # behind [health].port


async def run_viewer(plant: Plant, state: Path, stop: asyncio.Event) -> None:
    """Answer until ``stop``. It waits for no database: while that is away, the page says so."""
    since = now_us()
    reader = Reader(state / "secrets" / "reader.dsn")

    async def report() -> dict[str, Any]:
        try:
            await reader.ask("SELECT 1", [])
            database = "connected"
        except DatabaseError as error:
            database = str(error)
        return {
            "process": "viewer",
            "ready": database == "connected",
            "alive": True,
            "since": since,
            "database": database,
        }

    try:
        async with (
            health.serve(plant.health.host, plant.health.port + HEALTH_PORT, report),
            serve(plant.viewer, reader, Library()),
        ):
            await stop.wait()
    finally:
        await reader.close()
