"""An appliance in a state folder of its own, whose plant is somebody else's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ingest.errors import OperationError
from ops.paths import CHECKOUT, State


@asynccontextmanager
async def running_appliance(state: State, config: Path) -> AsyncIterator[None]:
    """It runs inside the block. Raises OperationError where it does not come up or go down."""
    try:
        await plantlog(state, "up", "--config", str(config), "--no-simulator")
        yield
    finally:
        await plantlog(state, "down")


async def plantlog(state: State, *arguments: str) -> str:
    """Run a command on that appliance; returns its standard output. Raises OperationError where it fails."""
    environment = {**os.environ, "PLANTLOG_STATE": str(state.root)}
    # Where the database's programs need a root file system of their own, one is enough for all state folders.
    environment.setdefault("PLANTLOG_ROOTFS", str(CHECKOUT / ".state" / "postgres" / "rootfs"))
    process = await asyncio.create_subprocess_exec(
        CHECKOUT / "plantlog",
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, error_output = (each.decode() for each in await process.communicate())
    if process.returncode:
        raise OperationError(
            f"plantlog {' '.join(arguments)} exited with {process.returncode}:\n{output}{error_output}"
        )
    return output
