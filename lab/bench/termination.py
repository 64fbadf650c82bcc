"""Clean termination of a benchmark."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from core.errors import OperationError

_T = TypeVar("_T")


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """``asyncio.run`` for a measurement: SIGTERM ends it as Ctrl-C does."""
    return asyncio.run(until_terminated(work))


async def until_terminated(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a benchmark. Raises OperationError if SIGTERM cancels it."""
    try:
        return await cancelled_by_sigterm(work)
    except asyncio.CancelledError:
        raise OperationError("terminated before it was finished") from None


async def cancelled_by_sigterm(work: Coroutine[Any, Any, _T]) -> _T:
    """Run ``work``; the first SIGTERM cancels it, so that everything it started is stopped."""
    task, loop = asyncio.create_task(work), asyncio.get_running_loop()

    def cancel() -> None:
        loop.add_signal_handler(signal.SIGTERM, lambda: None)
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, cancel)
    return await task
