"""Requests to the push endpoint that are too large, too fast, without a token, or of another kind."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import REGISTRY

from core.timestamps import now_us
from tests.integration.ingest.test_push import TOKEN, site_in


async def test_gzip_is_accepted_and_bombs_refused(tmp_path: Path) -> None:
    site = site_in(tmp_path, push='max_body = "1 MiB"')
    packed = {**TOKEN, "Content-Encoding": "gzip"}
    async with site.running():
        assert (await site.push(gzip.compress(b"boiler pressure=1 1000"), headers=packed)).status == 204
        same = {**packed, "Content-Encoding": "x-gzip"}  # RFC 9110, 8.4.1.3
        assert (await site.push(gzip.compress(b"boiler pressure=2 2000"), headers=same)).status == 204
        bomb = gzip.compress(b"boiler pressure=1 1000\n" * 1_000_000)
        assert len(bomb) < 1024**2
        assert (await site.push(bomb, headers=packed)).status == 413
        broken = await site.push(b"boiler pressure=1 1000", headers=packed)
        assert (broken.status, broken.body["code"]) == (400, "invalid")
        assert (await site.push(b"x", headers={**TOKEN, "Content-Encoding": "br"})).status == 415
        assert site.samples() == [(1, 1, 1.0), (1, 2, 2.0)]


async def test_oversized_body_and_lines_are_refused(tmp_path: Path) -> None:
    site = site_in(tmp_path, push='max_body = "1 MiB"\nmax_lines = 3')
    async with site.running():
        assert (await site.push(b"#" * (1024**2 + 1))).body == {
            "code": "request too large",
            "message": "the body is larger than max_body, which is 1048576 bytes (inflated)",
        }

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(1025):
                yield b"#" * 1024

        url = f"{site.url}/api/v2/write"
        async with aiohttp.ClientSession() as own, own.post(url, data=chunks(), headers=TOKEN) as response:
            assert response.status == 413
        assert (await site.push(b"boiler pressure=1 1000\n" * 4)).status == 413
        assert (await site.push(b"boiler pressure=1 1000\n" * 3)).status == 204
        assert (await site.push(b"")).status == 204


async def test_too_fast_gateway_gets_retry_after(tmp_path: Path) -> None:
    site = site_in(tmp_path, "max_rate = 10")
    async with site.running():
        assert (await site.push(b"boiler pressure=1 1000\n" * 200)).status == 204
        refused = await site.push(b"boiler pressure=1 1000\n")
        assert (refused.status, refused.body["code"]) == (429, "too many requests")
        assert 1 <= int(refused.headers["Retry-After"]) <= 19


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"Authorization": "Token wrong"},
        {"Authorization": "Basic token-of-edge-gateway"},
        {"Authorization": "Token"},
    ],
    ids=["none", "wrong", "scheme", "empty"],
)
async def test_request_without_token_is_refused(
    tmp_path: Path, given: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    site = site_in(tmp_path)
    before = REGISTRY.get_sample_value("plantlog_wrong_tokens_total", {"endpoint": "push"}) or 0.0
    async with site.running():
        refused = await site.push(b"boiler pressure=1 1000", headers=given)
        assert (refused.status, refused.body) == (401, {"code": "unauthorized", "message": "unauthorized access"})
        assert REGISTRY.get_sample_value("plantlog_wrong_tokens_total", {"endpoint": "push"}) == before + 1
        assert "request from 127.0.0.1 rejected: missing or wrong token" in caplog.text
        wrong = (await site.health())["wrong_tokens"]
        assert (wrong["count"], wrong["last_from"]) == (1, "127.0.0.1")
        assert abs(wrong["last_at"] - now_us()) < 600e6
        assert (
            await site.push(b"boiler pressure=1 1000", headers={"Authorization": "Bearer token-of-edge-gateway"})
        ).status == 204
        assert len(site.samples()) == 1


async def test_unknown_requests_get_the_same_error_format(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    async with site.running(), aiohttp.ClientSession() as session:
        for path in ("/ping", "/api/v2/ping"):
            async with session.get(site.url + path) as response:
                assert (response.status, response.headers["X-Influxdb-Version"][:2]) == (204, "2.")
        async with session.head(site.url + "/ping") as response:
            assert response.status == 204
        async with session.get(site.url + "/health") as response:
            assert (await response.json())["status"] == "pass"
        async with session.get(site.url + "/api/v2/write") as response:
            assert (response.status, response.headers["Allow"]) == (405, "POST")
            assert (await response.json())["code"] == "method not allowed"
        async with session.post(site.url + "/query") as response:
            assert (response.status, (await response.json())["code"]) == (404, "not found")


async def test_client_waiting_for_100_continue_gets_it(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    async with site.running(), aiohttp.ClientSession() as session:
        url = f"{site.url}/api/v2/write"
        async with session.post(url, data=b"boiler pressure=1 1000", headers=TOKEN, expect100=True) as response:
            assert response.status == 204
