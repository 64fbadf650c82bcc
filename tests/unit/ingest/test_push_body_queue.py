"""Bodies are queued: processed in order, one at a time, and not for longer than their clients wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ingest.push import body
from ingest.push.body import BodyQueue, BodyRefused
from tests.waiting import until


class Work:
    """Work on bodies: the bodies done, and the most at once."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.most = 0
        self._at_once = 0
        self._lock = threading.Lock()

    def __call__(self, what: Any) -> Any:
        with self._lock:
            self._at_once += 1
            self.most = max(self.most, self._at_once)
        self.done.append(what)
        with self._lock:
            self._at_once -= 1
        return what


@asynccontextmanager
async def at_work(queue: BodyQueue) -> AsyncIterator[None]:
    """Inside the block a body is worked on."""
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait()

    working = asyncio.create_task(queue.run_first(work))
    await until(begun.is_set)
    try:
        yield
    finally:
        go_on.set()
        await working


async def test_bodies_are_processed_one_at_a_time_in_order() -> None:
    queue, work = BodyQueue(), Work()

    async def body(number: int) -> None:
        assert await queue.run_first(work, ("first", number)) == ("first", number)
        assert await queue.run_next(work, ("then", number)) == ("then", number)

    await asyncio.gather(*(body(number) for number in range(50)))
    assert work.most == 1
    assert [number for what, number in work.done if what == "first"] == [*range(50)]
    assert [number for what, number in work.done if what == "then"] == [*range(50)]
    assert work.done.index(("then", 0)) < work.done.index(("first", 3)), "what is begun is finished first"


async def test_body_that_would_wait_too_long_is_refused_unprocessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "_MAX_WAIT_SECONDS", 0.02)
    queue, work = BodyQueue(), Work()
    async with at_work(queue):
        for refused in await asyncio.gather(*(queue.run_first(work, n) for n in range(5)), return_exceptions=True):
            assert isinstance(refused, BodyRefused)
            assert (refused.status, refused.retry_after) == (503, 1)
            assert str(refused) == "the server is busy: the body waited for 0.02 s"
    assert work.done == []
    assert await queue.run_first(work, "the next one") == "the next one"


async def test_disconnected_client_does_not_block_the_queue() -> None:
    queue, work = BodyQueue(), Work()
    async with at_work(queue):
        waiting = [asyncio.create_task(queue.run_first(work, number)) for number in range(3)]
        await asyncio.sleep(0)
        waiting[1].cancel()
    await asyncio.wait(waiting)
    assert work.done == [0, 2]


async def test_failed_work_frees_the_queue() -> None:
    def fail() -> None:
        raise ValueError

    queue, work = BodyQueue(), Work()
    with pytest.raises(ValueError):
        await queue.run_first(fail)
    assert await queue.run_first(work, 1) == 1


async def test_slow_queue_has_room_for_one_body_of_each_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, work = BodyQueue(), Work()
    queue.check_room(7)
    with pytest.raises(BodyRefused, match="8 bodies are already being processed") as refused:
        queue.check_room(8)
    assert (refused.value.status, refused.value.retry_after) == (503, 1)

    monkeypatch.setattr(body, "_SLOW_SECONDS", 0.02)

    def full() -> bool:
        queue.check_room(0)
        try:
            queue.check_room(1)
        except BodyRefused as refused:
            assert str(refused) == "1 body is already being processed"
            return True
        return False

    async with at_work(queue):
        assert not full(), "nobody waits"
        waiting = asyncio.create_task(queue.run_first(work, 1))
        await until(full)
    await waiting
    assert not full()
