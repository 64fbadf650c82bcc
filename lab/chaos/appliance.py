"""An appliance in a state folder of its own, whose plant is somebody else's."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from core.errors import OperationError
from core.paths import CHECKOUT, State


@asynccontextmanager
async def running_appliance(state: State, config: Path) -> AsyncIterator[None]:
    """Run it inside the block. Raises OperationError where it does not come up or go down."""
    try:
        await plantlog(state, "up", "--config", str(config), "--no-simulator")
        yield
    finally:
        await plantlog(state, "down")


async def plantlog(
    state: State, *arguments: str, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
) -> str:
    """Run a command on that appliance; returns its standard output. Raises OperationError where it fails.

    If it is cancelled, the command has ended before.
    ``environment``: in addition to our own; ``prefix``: a command that runs this one.
    """
    environment = {**os.environ, **(environment or {}), "PLANTLOG_STATE": str(state.root)}
    process = await asyncio.create_subprocess_exec(
        *prefix,
        CHECKOUT / "plantlog",
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, error_output = (stream.decode() for stream in await process.communicate())
    except asyncio.CancelledError:  # else `up` would go on in a folder that is removed
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        raise
    if process.returncode:
        raise OperationError(
            f"plantlog {' '.join(arguments)} exited with {process.returncode}:\n{output}{error_output}"
        )
    return output
