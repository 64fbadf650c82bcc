"""``python -m dashboards.viewer --state FOLDER``: serve the dashboards until terminated, with a health page."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any

from core.config.settings import ViewerSettings
from core.errors import DatabaseError
from core.process import health_page
from core.process.entry import add_arguments, run
from core.process.scheduling import lower_priority
from core.timestamps import now_us
from dashboards.viewer.library import Library
from dashboards.viewer.reader import ReaderPool
from dashboards.viewer.server import serve


async def run_viewer(settings: ViewerSettings, state: Path, stop: asyncio.Event) -> None:
    """Serve until ``stop``. Runs without the database, too: then the page shows that it is unavailable."""
    since = now_us()
    reader = ReaderPool(state)

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
            health_page.serve("viewer", settings, report, state),
            serve(settings.viewer, state, reader, Library(), settings.server_tls(settings.viewer, state)),
        ):
            await stop.wait()
    finally:
        await reader.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m dashboards.viewer", description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args()
    lower_priority()
    sys.exit(run("viewer", run_viewer, arguments.state))
