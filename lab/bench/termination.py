"""Clean termination of a benchmark."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from core.errors import OperationError

_T = TypeVar("_T")


class _Terminated(KeyboardInterrupt):
    """Exception of SIGTERM."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, once: what it started is stopped meanwhile. Raises OperationError."""

    def terminate(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except (_Terminated, asyncio.CancelledError):
        raise OperationError("terminated before it was finished") from None
    finally:
        signal.signal(signal.SIGTERM, before)


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """``asyncio.run`` within :func:`terminable`: SIGTERM cancels the work."""
    terminate = signal.getsignal(signal.SIGTERM)
    try:
        return asyncio.run(cancelled_by_sigterm(work))
    finally:
        signal.signal(signal.SIGTERM, terminate)


async def cancelled_by_sigterm(work: Coroutine[Any, Any, _T]) -> _T:
    """Run ``work``; the first SIGTERM cancels it, so that everything it started is stopped."""
    task, loop = asyncio.create_task(work), asyncio.get_running_loop()

    def cancel() -> None:
        loop.add_signal_handler(signal.SIGTERM, lambda: None)
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, cancel)
    return await task
