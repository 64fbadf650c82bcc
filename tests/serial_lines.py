"""Serial lines without hardware: pseudo-terminals that socat joins, and a gateway from TCP to one of them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.peers import listens
from tests.ports import free_port
from tests.waiting import until


@asynccontextmanager
async def socat(*addresses: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Running inside the block."""
    process = await asyncio.create_subprocess_exec(
        *("socat", "-t", "0", *addresses), stderr=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with a child for each connection
        await process.wait()


@asynccontextmanager
async def line(folder: Path) -> AsyncIterator[tuple[Path, Path]]:
    """The two ends of a serial line, which vanish behind the block."""
    ends = folder / "client", folder / "device"
    async with socat(*(f"pty,raw,echo=0,link={end}" for end in ends)):
        await until(lambda: all(end.exists() for end in ends))
        yield ends
    for end in ends:
        end.unlink(missing_ok=True)


@asynccontextmanager
async def gateway(end: Path) -> AsyncIterator[int]:
    """Passes bytes on between a serial line and TCP; gives its port."""
    port = free_port()
    async with socat(f"tcp-listen:{port},bind=127.0.0.1,reuseaddr,fork", f"{end},raw,echo=0"):
        await until(lambda: listens(port))
        yield port
