"""The viewer's connections and its server, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from core.config.model import ViewerOptions
from dashboards.viewer.library import Library
from dashboards.viewer.reader import ReaderPool, Timeouts
from dashboards.viewer.server import serve
from tests.ports import free_ports
from tests.waiting import PATIENCE

PATIENT = Timeouts(PATIENCE, PATIENCE, PATIENCE, PATIENCE)  # what a busy machine takes says nothing of the viewer


@asynccontextmanager
async def reading(dsn: str, state: Path, timeouts: Timeouts = PATIENT) -> AsyncIterator[ReaderPool]:
    """The viewer's connections to a database; the file that names it is made in the state folder."""
    file = state / "secrets" / "reader.dsn"
    file.parent.mkdir(exist_ok=True)
    file.write_text(dsn)
    reader = ReaderPool(state, timeouts)
    try:
        yield reader
    finally:
        await reader.close()


@asynccontextmanager
async def served(reader: ReaderPool, state: Path = Path("/nonexistent")) -> AsyncIterator[str]:
    """Address of a viewer, on loopback; ``state``: the folder with its users, none by default."""
    async with serve(ViewerOptions(port=free_ports(1)), state, reader, Library()) as port:
        yield f"http://127.0.0.1:{port}"
