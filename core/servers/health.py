"""HTTP endpoints of every process: ``/health`` (readiness), ``/health/live`` (liveness) and ``/metrics``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from core.addresses import is_loopback
from core.installation import installation_of
from core.servers import http
from core.servers.server_tls import ServerTls

HealthReport: TypeAlias = dict[str, Any]  # has "ready": bool
_PUBLIC = ("process", "ready", "alive", "since", "installation", "configuration")


@asynccontextmanager
async def serve(
    host: str, port: int, report: Callable[[], Awaitable[HealthReport]], state: Path, tls: ServerTls | None = None
) -> Any:
    """Serve on ``host:port`` while the block runs. Raises OperationError if the port is in use.

    The report has the installation, as another appliance may have had the same port before. There is no login, so other
    machines see neither addresses nor tokens.
    """

    async def health(request: web.Request) -> web.Response:
        content = {**await report(), "installation": str(installation_of(state))}
        shown = content if _is_from_here(request) else _public(content)
        return web.json_response(shown, status=200 if content["ready"] else 503)

    async def live(_: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def metrics(_: web.Request) -> web.Response:
        await report()  # gauges are updated on request
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application(middlewares=[http.check_host(host)])
    app.add_routes([web.get("/health", health), web.get("/health/live", live), web.get("/metrics", metrics)])
    async with http.serve(app, host, port, tls):
        yield


def _public(report: HealthReport) -> HealthReport:
    """The part of a report that other machines may see."""
    sources = [{name: source[name] for name in ("name", "state")} for source in report.get("sources", ())]
    shown = {name: report[name] for name in _PUBLIC if name in report}
    return {**shown, "sources": sources} if sources else shown


def _is_from_here(request: web.Request) -> bool:
    """Return whether a process of this machine sent the request, and not a proxy."""
    ends = [request.get_extra_info(name) for name in ("peername", "sockname")]
    if None in ends or "X-Forwarded-For" in request.headers:
        return False
    return is_loopback(ends[0][0]) or ends[0][0] == ends[1][0]
