"""How long a test waits for what has to happen: a bound against hanging, not a measure; machines differ by much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

PATIENCE = 120.0  # s


async def until(condition: Callable[..., object], seconds: float = PATIENCE) -> None:
    """Wait for something in this process."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """What runs for ever, inside the block: it ends when it is told to, behind it, and never before."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE)
    assert task.done()
    with suppress(asyncio.CancelledError):
        await task  # or raises why it ended before
    assert task.cancelled()
