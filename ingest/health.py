"""HTTP endpoints of every process: ``/health`` (readiness), ``/health/live`` (liveness) and ``/metrics``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from ingest import http
from ingest.installation import installation_of
from ingest.server_tls import ServerTls

HealthReport: TypeAlias = dict[str, Any]  # has "ready": bool


@asynccontextmanager
async def serve(
    host: str, port: int, report: Callable[[], Awaitable[HealthReport]], state: Path, tls: ServerTls | None = None
) -> Any:
    """Serve on ``host:port`` while the block runs. Raises OSError if the port is in use.

    The report says whose process it is: appliances in turn may have the same ports.
    """

    async def health(_: web.Request) -> web.Response:
        content = {**await report(), "installation": str(installation_of(state))}
        return web.json_response(content, status=200 if content["ready"] else 503)

    async def live(_: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def metrics(_: web.Request) -> web.Response:
        await report()  # gauges are updated on request
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application(middlewares=[http.check_host(host)])
    app.add_routes([web.get("/health", health), web.get("/health/live", live), web.get("/metrics", metrics)])
    async with http.serve(app, host, port, tls):
        yield
