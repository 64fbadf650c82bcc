"""Work that is cancelled while something else happens to it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

_AGAIN_SECONDS = 30.0  # longer than an orderly end takes


async def until_over(work: Coroutine[Any, Any, None]) -> None:
    """Wait for ``work`` to end; raises what it raises. A cancellation of the caller cancels it, and is never lost.

    Awaited as it is, it may be: a TaskGroup (of Python 3.11) in which something fails at that moment raises that
    instead, and ``wait_for`` returns what came at that moment.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task])
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=_AGAIN_SECONDS)
    task.result()
