"""What every process answers over HTTP: ``/health`` (ready?), ``/health/live`` (alive?) and ``/metrics``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from ingest import http

HealthReport: TypeAlias = dict[str, Any]  # has "ready": bool


@asynccontextmanager
async def serve(host: str, port: int, report: Callable[[], Awaitable[HealthReport]]) -> Any:
    """Answer on ``host:port`` while the block runs. Raises OSError where the port is taken."""

    async def health(_: web.Request) -> web.Response:
        said = await report()
        return web.json_response(said, status=200 if said["ready"] else 503)

    async def live(_: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def metrics(_: web.Request) -> web.Response:
        await report()  # gauges are read when they are asked for
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application(middlewares=[http.by_name(host)])
    app.add_routes([web.get("/health", health), web.get("/health/live", live), web.get("/metrics", metrics)])
    async with http.serve(app, host, port):
        yield
