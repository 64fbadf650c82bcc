"""The health page has no login: other machines see no addresses and no tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from core.addresses import machine_addresses
from core.servers import health
from tests.ports import free_ports

REPORT = {
    "process": "collector-push",
    "ready": True,
    "alive": True,
    "since": 7,
    "sources": [{"name": "edge", "state": "connected", "address": "10.1.2.3:4840", "reason": "10.1.2.3 is slow"}],
    "tokens": {"edge": {"18ac3e73": 5}},
    "wrong_tokens": {"count": 1, "at": 5, "address": "10.6.6.6"},
    "database": "unreachable: 10.9.9.9",
}


async def report() -> dict[str, Any]:
    return REPORT


async def fetched(port: int, local: str | None = None, **headers: str) -> dict[str, Any]:
    connector = aiohttp.TCPConnector(local_addr=None if local is None else (local, 0))
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(f"http://127.0.0.1:{port}/health", headers=headers) as response,
    ):
        content: dict[str, Any] = await response.json()
        return content


async def test_addresses_and_tokens_are_for_this_machine(tmp_path: Path) -> None:
    port = free_ports(1)
    async with health.serve("127.0.0.1", port, report, tmp_path):
        assert await fetched(port) == {**REPORT, "installation": "None"}
        public = {
            "process": "collector-push",
            "ready": True,
            "alive": True,
            "since": 7,
            "installation": "None",
            "sources": [{"name": "edge", "state": "connected"}],
        }
        assert await fetched(port, **{"X-Forwarded-For": "10.0.0.7"}) == public
        for address in [
            address for address in machine_addresses() if "." in address and not address.startswith("127.")
        ][:1]:
            assert await fetched(port, local=address) == public


@pytest.mark.parametrize("path", ["health", "health/live", "metrics"])
async def test_no_path_names_addresses_to_others(tmp_path: Path, path: str) -> None:
    port = free_ports(1)
    async with (
        health.serve("127.0.0.1", port, report, tmp_path),
        aiohttp.ClientSession(headers={"X-Forwarded-For": "10.0.0.7"}) as session,
        session.get(f"http://127.0.0.1:{port}/{path}") as response,
    ):
        text = await response.text()
        assert response.status == 200
        assert not any(secret in text for secret in ("10.1.2.3", "18ac3e73", "10.6.6.6", "10.9.9.9"))
