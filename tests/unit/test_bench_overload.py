"""The load of the overload bench, and what its looks call as before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest

from ops.bench.overload import flood
from ops.bench.overload.flood import LINES, Flood
from ops.overload.calm import Seen, as_before
from ops.overload.measure import Waiting
from tests.patience import until

_SILENT = b""


@asynccontextmanager
async def answering(answers: Iterator[bytes]) -> AsyncIterator[str]:
    """An HTTP server that gives these answers, one a request."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                header = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                await reader.readexactly(int(header.partition("content-length: ")[2].split()[0]))
                if said := next(answers):
                    writer.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % said)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_bodies_are_due_whatever_became_of_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flood, "_ANSWER_SECONDS", 1.0)
    async with answering(cycle([_SILENT])) as url:
        gateways = Flood(url, ["a" * 20, "b" * 20])
        async with gateways.at(100 * LINES):
            await until(lambda: gateways.told["offered"] >= 50 * LINES)
            assert gateways.told["unanswered"] < gateways.told["offered"], "as many under way as a time-out allows"
    assert gateways.told["unanswered"] == gateways.told["offered"] and not gateways.taken


async def test_a_refusal_counts_where_it_says_when_to_come_again() -> None:
    answers = [b"204 No Content", b"503 Busy\r\nRetry-After: 1", b"429 Slow\r\nRetry-After: 2", b"503 Busy", b"500 No"]
    async with answering(cycle(answers)) as url:
        gateways = Flood(url, ["a" * 20])
        async with gateways.at(100 * LINES):
            await until(lambda: gateways.told["offered"] >= 20 * LINES)
    told = gateways.told
    assert told["taken"] == LINES * len(gateways.taken) > 0 and told["unanswered"] == 0
    assert told["refused"] + told["wrong"] + told["taken"] == told["offered"]
    assert abs(told["refused"] - told["wrong"]) <= 2 * LINES


def source(**other: Any) -> dict[str, Any]:
    return {
        "name": "plc", "kind": "modbus", "state": "connected", "missed": 5, "pace_seconds": 0.0, "due_at": 0,
        "last_sample_at": 100_000_000, **other,
    }  # fmt: skip


def seen(of: dict[str, Any] | None = None, waits: float = 0.0, since: float | None = None) -> Seen:
    said: dict[str, dict[str, Any] | None] = {
        "collector-modbus": {"sources": [of or source()]},
        "maintenance": {"overload": {"since": since}},
    }
    return Seen(0.0, 101.0, said, {"modbus": Waiting(waits, 0)})


@pytest.mark.parametrize(
    ("now", "wrong"),
    [
        (seen(), ""),
        (seen(source(state="disconnected")), "source plc is disconnected"),
        (seen(source(state="connecting")), "source plc is connecting"),
        (seen(source(state="connecting", kind="push")), ""),
        (seen(source(missed=6)), "polls of source plc are late"),
        (seen(source(pace_seconds=2.4)), "polls of source plc are late"),
        (seen(source(due_at=98_000_000)), "polls of source plc are late"),
        (seen(source(last_sample_at=97_000_000)), "the newest sample of source plc is 4.0 s old"),
        (seen(source(last_sample_at=97_000_000, kind="push")), ""),
        (seen(waits=3.0), "the spool modbus waits for the database since 3.0 s"),
        (replace(seen(), said={"writer": None}), "writer does not answer"),
    ],
)
def test_what_is_not_as_before_is_said(now: Seen, wrong: str) -> None:
    assert now.wrong(seen(), 1.0) == ([wrong] if wrong else [])


async def test_the_first_of_the_calm_looks_counts_and_the_end_of_the_overload_is_waited_for() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    def look() -> Seen:
        at = loop.time()
        over = at - began > 5
        return replace(seen(waits=9.0 if at - began < 1 else 0.0, since=None if over else 1.0), at=at)

    after = await as_before(look, began, 1.0, 60.0)
    assert after.left == [] and 1 <= after.seconds < 5
    assert loop.time() - began > 5
    never = await as_before(lambda: replace(seen(since=1.0), at=loop.time()), loop.time(), 1.0, 1.0)
    assert never.left == ["overload has not ended"]
