"""Servers with limits that they don't announce, and servers that refuse calls now and then: the session goes on."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from asyncua import ua
from asyncua.server.internal_session import InternalSession

from core.config.sources import OpcuaTag
from core.timestamps import now_us
from tests.integration.ingest.test_opcua_collector import collecting
from tests.integration.ops.test_opcua_discover import discovered, serving
from tests.memory_appender import MemoryAppender
from tests.opcua_history import backfilled

_SERVICES = {
    "read": lambda request: len(request.NodesToRead),
    "browse": lambda request: len(request.NodesToBrowse),
    "create_monitored_items": lambda request: len(request.ItemsToCreate),
    "modify_monitored_items": lambda request: len(request.ItemsToModify),
    "delete_monitored_items": lambda request: len(request.MonitoredItemIds),
    "create_subscription": lambda request: 1,
}


def refusing(monkeypatch: pytest.MonkeyPatch, refuse: Callable[[str, int], int]) -> list[str]:
    """The server's services refuse a call with a status code; 0: they don't. Returns those calls."""
    refused: list[str] = []

    def wrap(service: str, size: Callable[[Any], int], of_server: Callable[..., Awaitable[Any]]) -> None:
        async def call(session: InternalSession, request: Any, *others: Any, **named: Any) -> Any:
            if session.external and (code := refuse(service, size(request))):
                refused.append(service)
                raise ua.UaStatusCodeError(code)
            return await of_server(session, request, *others, **named)

        monkeypatch.setattr(InternalSession, service, call)

    for service, size in _SERVICES.items():
        wrap(service, size, getattr(InternalSession, service))
    return refused


async def test_a_gap_says_why_the_history_was_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where the server says that it has none, it is "not in the history"."""
    codes = {"v0": ua.StatusCodes.BadUserAccessDenied, "v1": ua.StatusCodes.BadNoData, "v2": ua.StatusCodes.GoodNoData}

    async def history_read(_: InternalSession, request: Any) -> list[Any]:
        nodes = [node.NodeId.Identifier for node in request.NodesToRead]
        return [ua.HistoryReadResult(ua.StatusCode(codes[node]), None, ua.HistoryData()) for node in nodes]

    monkeypatch.setattr(InternalSession, "history_read", history_read)
    spool = MemoryAppender()
    async with serving() as (_, folder, address):
        tags = await add_variables(folder, 3)
        await backfilled(address, tags, tmp_path / "pki", now_us() - 1_000_000, spool)
    (gap,) = spool.gaps()
    assert gap.detail == "not in the history; the history cannot be read: BadUserAccessDenied"


async def add_variables(folder: Any, count: int) -> list[OpcuaTag]:
    for n in range(count):
        await folder.add_variable(ua.NodeId(f"v{n}", 2), f"2:v{n}", float(n))
    return [OpcuaTag(name=f"v{n}", address=f"ns=2;s=v{n}") for n in range(count)]


@pytest.mark.parametrize("code", ["BadTooManyOperations", "BadEncodingLimitsExceeded", "BadRequestTooLarge"])
async def test_limits_that_are_not_announced(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = {"read": 100, "browse": 100, "create_monitored_items": 500, "delete_monitored_items": 200}
    refused = refusing(
        monkeypatch, lambda service, size: getattr(ua.StatusCodes, code) if size > most.get(service, size) else 0
    )
    async with serving() as (_, folder, address):
        tags = await add_variables(folder, 700)
        found = await discovered(address, tmp_path / "pki")
        assert len(found.tags) == len(tags)
        assert not found.not_seen
        async with collecting(address, tags, tmp_path / "pki", insecure=True) as (spool, status):
            await spool.until(lambda: all(spool.samples(n) for n in (0, 600, 699)))
            assert (status.state, status.reconnects, status.bad_channels) == ("connected", 0, {})
    assert {"read", "create_monitored_items"} <= set(refused)
    assert len(refused) < 30, "what the server accepts is learned"


async def test_calls_that_are_refused_by_chance_are_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = (ua.StatusCodes.BadTooManyOperations, ua.StatusCodes.BadResourceUnavailable)
    dice = random.Random(3)
    refused = refusing(monkeypatch, lambda *_: dice.choice(codes) if dice.random() < 0.3 else 0)
    async with serving() as (_, folder, address):
        tags = await add_variables(folder, 100)
        async with collecting(address, tags, tmp_path / "pki", insecure=True) as (spool, status):
            await spool.until(lambda: all(spool.samples(n) for n in range(100)))
            assert (status.state, status.reconnects) == ("connected", 0)
    assert refused
