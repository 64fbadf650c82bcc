"""Waiting in tests: the time-out is a bound against hanging, not a performance limit."""

from __future__ import annotations

import asyncio
import inspect
import reprlib
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

PATIENCE = 120.0  # s
_Result = TypeVar("_Result")


async def until(
    condition: Callable[..., Any],
    seconds: float = PATIENCE,
    every: float = 0.02,
    show: Callable[[], object] | None = None,
) -> Any:
    """Wait until a condition holds, plain or awaited; return its result.

    A wait that fails says what it waited for, what the condition looked at, and what ``show`` returns.
    """
    try:
        async with asyncio.timeout(seconds) as bound:
            while True:
                result = condition()
                if inspect.isawaitable(result):
                    result = await result
                if result:
                    return result
                await asyncio.sleep(every)
    except TimeoutError:
        if not bound.expired():
            raise  # the condition's own
        raise AssertionError(_failure(condition, seconds, show)) from None


def until_sync(
    condition: Callable[..., _Result],
    seconds: float = PATIENCE,
    every: float = 0.2,
    show: Callable[[], object] | None = None,
) -> _Result:
    """The same without an event loop."""
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, _failure(condition, seconds, show)
        time.sleep(every)
    return result


def _failure(condition: Callable[..., object], seconds: float, show: Callable[[], object] | None) -> str:
    lines = [f"after {seconds:g} s there is still not: {_source(condition)}"]
    if inspect.isfunction(condition):
        seen = inspect.getclosurevars(condition).nonlocals
        lines += [f"  {name} = {reprlib.repr(value)}" for name, value in seen.items()]
    if show is not None:
        lines.append(f"  {show()}")
    return "\n".join(lines)


def _source(condition: Callable[..., object]) -> str:
    if not inspect.isfunction(condition):
        return repr(condition)
    return textwrap.dedent(inspect.getsource(condition)).strip()


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run an endless task beside the block: it ends when it is cancelled behind it, and never before."""
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
