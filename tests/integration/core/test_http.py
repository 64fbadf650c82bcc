"""Our HTTP servers over real sockets: whom they answer, how long they wait, whom they let in; and quiet logs."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from core.log import RateLimitFilter
from core.servers import health, http
from simulator.simulation import control_application
from tests.ports import free_ports
from tests.waiting import until


@asynccontextmanager
async def health_page() -> AsyncIterator[int]:
    async def report() -> dict[str, Any]:
        return {"ready": True}

    port = free_ports(1)
    async with health.serve("127.0.0.1", port, report, Path("no state folder")):
        yield port


async def status(port: int, path: str, host: str, **headers: str) -> int:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}", headers={"Host": host, **headers}) as response,
    ):
        return response.status


@pytest.mark.parametrize("path", ["/health", "/health/live", "/metrics"])
async def test_health_page_refuses_other_host_names(path: str) -> None:
    async with health_page() as port:
        assert await status(port, path, "plant.example") == 403
        assert await status(port, path, f"127.0.0.1.plant.example:{port}") == 403
        for host in (f"127.0.0.1:{port}", "localhost", "[::1]:80", "192.0.2.7"):
            assert await status(port, path, host) == 200
        assert await status(port, path, "localhost", **{"Sec-Fetch-Site": "cross-site"}) == 403


async def test_simulator_control_refuses_other_host_names() -> None:
    class Plant:
        name = "p"
        tags = ()

    class Nothing:
        plant, published = Plant, 0

        class faults:  # noqa: N801
            active: Any = staticmethod(list)

    port = free_ports(1)
    async with http.serve(control_application(Nothing, "127.0.0.1"), "127.0.0.1", port):  # type: ignore[arg-type]
        assert await status(port, "/state", "plant.example") == 403
        assert await status(port, "/state", "127.0.0.1") == 200


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """Answers POST with the length of the body."""

    async def read(request: web.Request) -> web.Response:
        return web.json_response(len(await request.read()))

    app = web.Application()
    app.add_routes([web.post("/", read)])
    async with http.serve(app, "127.0.0.1", free_ports(1)) as port:
        yield port


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Times (s) at which a server looked whether a connection is late, which it does often."""
    is_late: Callable[[http._Connection, float], bool] = http._Connection.is_late
    looks: list[float] = []

    def look(connection: http._Connection, now: float) -> bool:
        looks.append(now)
        return is_late(connection, now)

    monkeypatch.setattr(http._Connection, "is_late", look)
    monkeypatch.setattr(http, "_CHECK_SECONDS", 0.05)
    return looks


HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"


@pytest.mark.parametrize(
    ("begun", "rest"),
    [(b"", HEAD + b"\r\nabcde"), (HEAD, b"\r\nabcde"), (HEAD + b"\r\nab", b"cde")],
    ids=["nothing", "half a header", "half a body"],
)
async def test_silent_client_is_disconnected(
    begun: bytes, rest: bytes, looks: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begun)
        await until(lambda: len(looks) >= 3)
        writer.write(rest)  # in time
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        monkeypatch.setattr(http, "_MAX_SECONDS", dict.fromkeys(http._MAX_SECONDS, 0.3))
        since = time.monotonic()  # the server's clock runs from the connection, which is before the client's next step
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begun)
        with pytest.raises(ConnectionResetError):
            assert await reader.read() == b""
            raise ConnectionResetError
        assert time.monotonic() - since >= 0.3
        writer.close()


async def test_slow_drip_does_not_keep_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(http, "_MAX_SECONDS", dict.fromkeys(http._MAX_SECONDS, 0.3))
    async with serving() as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(ConnectionError):
            for byte in HEAD * 100:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()


async def test_longest_idle_connection_is_closed_for_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle connection makes room before one whose body is on its way, one that is answered never does."""
    monkeypatch.setattr(http, "_MAX_PER_ADDRESS", 3)
    answering, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        answering.set()
        await go_on.wait()
        return web.Response(text="done")

    app = web.Application()
    app.add_routes([web.get("/", slow)])
    async with http.serve(app, "127.0.0.1", free_ports(1)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await answering.wait()
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        go_on.set()
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/") as response:
            assert response.status == 200
        for _, other in (*silent, (reader, writer)):
            other.close()


def test_repeated_log_messages_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("tests.sparing")
    caplog.handler.addFilter(sparing := RateLimitFilter())
    try:
        for n in range(5000):
            log.warning("refused %d", n)
        log.warning("something else")
    finally:
        caplog.handler.removeFilter(sparing)
    logged = [record.getMessage() for record in caplog.records if record.name == "tests.sparing"]
    assert len(logged) == 61
    assert logged[59] == "refused 59 (similar messages are suppressed for one minute)"
    assert logged[60] == "something else"
    assert json.dumps(logged)
