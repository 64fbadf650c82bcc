"""Processes of plantlog that a test starts as the supervisor does."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from core.paths import CHECKOUT


async def start(module: str, *arguments: str | Path, stderr: int = DEVNULL) -> Process:
    """``python -m`` of a module."""
    return await asyncio.create_subprocess_exec(sys.executable, "-m", module, *arguments, cwd=CHECKOUT, stderr=stderr)


@asynccontextmanager
async def running(module: str, *arguments: str | Path, stderr: int = DEVNULL) -> AsyncIterator[Process]:
    """The same inside the block: killed behind it, unless it has ended."""
    process = await start(module, *arguments, stderr=stderr)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
