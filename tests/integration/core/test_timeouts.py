"""Time-outs by time in which this process ran."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from core.timeouts import run_to_end, sleep_overrun, unread_seconds, within


def starve(seconds: float) -> None:
    """This process does not run."""
    time.sleep(seconds)


async def test_answer_received_while_suspended_is_no_timeout() -> None:
    here, there = socket.socketpair()
    with there:
        reader, writer = await asyncio.open_connection(sock=here)
        asyncio.get_running_loop().call_soon(starve, 0.5)
        asyncio.get_running_loop().call_soon(there.send, b"late")
        assert await within(0.1, reader.readexactly(4)) == b"late"
        writer.close()
        await writer.wait_closed()


async def test_suspended_time_does_not_count_towards_a_timeout() -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, starve, 1.0)
    answer = loop.create_future()
    loop.call_later(1.2, answer.set_result, "in time")
    assert await within(0.5, answer) == "in time"


async def test_silence_is_a_timeout_and_cancels_the_wait() -> None:
    silence = asyncio.get_running_loop().create_future()
    with pytest.raises(TimeoutError, match=r"no response within 0\.05 s"):
        await within(0.05, silence)
    assert silence.cancelled()


async def test_errors_and_cancellation_pass_through() -> None:
    async def fails() -> None:
        raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        await within(1.0, fails())
    waited = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(within(60.0, waited))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert waited.cancelled()


@pytest.mark.parametrize("awaiting", [run_to_end, partial(within, 60.0)])
async def test_error_while_it_is_cancelled_is_not_reported(
    awaiting: Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]],
) -> None:
    """A connection that breaks while its collector stops: asyncio would report it whenever memory is collected."""
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def breaks() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("closed")

    task = asyncio.create_task(awaiting(breaks()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    del task
    gc.collect()
    assert reported == []


async def test_sleep_returns_its_lateness() -> None:
    asyncio.get_running_loop().call_later(0.01, starve, 0.5)
    assert await sleep_overrun(0.05) > 0.3


async def test_unread_time_of_an_answer_is_known() -> None:
    lay: asyncio.Queue[float] = asyncio.Queue()

    class Reading(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            lay.put_nowait(unread_seconds(self.transport))

    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        transport, _ = await loop.create_connection(Reading, *listening.getsockname())
        device, _ = listening.accept()
        with device:
            device.send(b"read late")
            starve(0.5)
            assert await lay.get() >= 0.4
            sent = loop.time()
            device.send(b"read at once")
            assert await lay.get() <= loop.time() - sent + 0.02, "to some ms"
        transport.close()
