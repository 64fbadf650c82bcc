"""The viewer process, with a health page like every process of the appliance."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dashboards.viewer.library import Library
from dashboards.viewer.reader import Reader
from dashboards.viewer.server import serve
from ingest import health
from ingest.config import https
from ingest.config.model import Plant
from ingest.errors import DatabaseError
from ingest.timestamps import now_us

HEALTH_PORT = 5  # offset to [health].port


async def run_viewer(plant: Plant, state: Path, stop: asyncio.Event) -> None:
    """Serve until ``stop``. Runs without the database, too: then the page shows that it is unavailable."""
    since = now_us()
    reader = Reader(state)

    async def report() -> dict[str, Any]:
        try:
            await reader.query("SELECT 1", [])
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
            health.serve(
                plant.health.host, plant.health.port + HEALTH_PORT, report, state, https.of(plant, plant.health, state)
            ),
            serve(plant.viewer, state, reader, Library(), https.of(plant, plant.viewer, state)),
        ):
            await stop.wait()
    finally:
        await reader.close()
