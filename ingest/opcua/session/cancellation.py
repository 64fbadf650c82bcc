"""Cancellation that is never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

_CANCEL_AGAIN_SECONDS = 30.0  # longer than an orderly end takes


async def run_to_end(work: Coroutine[Any, Any, None]) -> None:
    """Await ``work`` and raise what it raises. Cancelling the caller cancels ``work``, without fail.

    A plain ``await`` can lose it: a TaskGroup (Python 3.11) in which a task fails at that moment raises that
    error instead, and ``wait_for`` returns a result that arrives at that moment.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task])
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=_CANCEL_AGAIN_SECONDS)
    task.result()
