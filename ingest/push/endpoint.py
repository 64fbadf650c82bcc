"""The HTTP endpoint: InfluxDB's v2 write API.

https://docs.influxdata.com/influxdb/v2/api/#operation/PostWrite. ``org`` and ``bucket`` are accepted and ignored: the
token identifies the source.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias

from aiohttp import web

from core import metrics
from core.config.model import PushOptions
from core.errors import SpoolError
from core.servers import http
from core.servers.server_tls import ServerTls
from core.timestamps import now_us
from ingest.push.arrivals import acknowledged
from ingest.push.body import BodyRefused, read
from ingest.push.channels import RETRY_SECONDS
from ingest.push.gateway import BodyResult, Gateway
from ingest.push.gateways import Gateways
from ingest.push.line_protocol import PRECISIONS, parse

log = logging.getLogger(__name__)

_MAX_LISTED = 20  # bad lines that a response names
_SPOOL_FULL_SECONDS = 5  # Retry-After while the spool is full
_DRAIN_SECONDS = 5.0
_VERSION = "2.7-plantlog"  # clients look for the 2

# InfluxDB's words for HTTP's numbers
_CODES = {
    400: "invalid",
    401: "unauthorized",
    404: "not found",
    405: "method not allowed",
    408: "invalid",
    413: "request too large",
    415: "unsupported media type",
    429: "too many requests",
    503: "unavailable",
}

_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve(endpoint: Endpoint, tls: ServerTls | None = None) -> AsyncIterator[int]:
    """Serve while the block runs; yields the port. Raises OperationError if it cannot listen."""
    options = endpoint.options
    app = web.Application(middlewares=[_influx_errors])
    app.add_routes(
        [
            web.post("/api/v2/write", endpoint.write),
            web.get("/api/v2/ping", _ping),
            web.get("/ping", _ping),
            web.get("/health", _health),
        ]
    )
    limits = {"shutdown_timeout": _DRAIN_SECONDS, "auto_decompress": False}
    async with http.serve(app, options.host, options.port, tls, **limits) as port:
        yield port


@dataclass(frozen=True, slots=True)
class WrongTokens:
    """Requests without a valid token since the start."""

    count: int = 0
    last_at: int = 0  # µs
    last_from: str = ""  # address


class Endpoint:
    """Handles requests of gateways. ``options`` may be replaced, except host and port."""

    def __init__(self, options: PushOptions, gateways: Gateways) -> None:
        self.options = options
        self.wrong_tokens = WrongTokens()
        self._gateways = gateways
        self._body_queue = gateways.body_queue
        self._in_progress: Counter[str] = Counter()

    async def write(self, request: web.Request) -> web.StreamResponse:
        """``POST /api/v2/write``: 204 once every line is on disk."""
        gateway = self._gateway(request.headers.get("Authorization", ""))
        if gateway is None:
            metrics.wrong_tokens.labels(endpoint="push").inc()
            self.wrong_tokens = WrongTokens(self.wrong_tokens.count + 1, now_us(), request.remote or "")
            log.warning("request from %s rejected: missing or wrong token", request.remote)
            return _answer(401, "unauthorized access")
        try:
            result = await self._write_body(gateway, request)
        except BodyRefused as refused:
            if refused.retry_after is not None:
                gateway.silence.record_activity()  # it sends again
            return _count_answer(gateway, _answer(refused.status, str(refused), refused.retry_after))
        response = _count_answer(gateway, _partial(result) if result.bad else web.Response(status=204))
        if result.notes:
            with suppress(ConnectionError):
                await response.prepare(request)
                await response.write_eof()
                if await acknowledged(request.transport):
                    for note in result.notes:
                        gateway.arrivals.forget(note)
        return response

    def _gateway(self, authorization: str) -> Gateway | None:
        scheme, _, token = authorization.partition(" ")
        gateway = self._gateways.of_token(token.strip().encode(errors="surrogateescape"))
        return gateway if scheme.lower() in ("token", "bearer") else None

    async def _write_body(self, gateway: Gateway, request: web.Request) -> BodyResult:
        """Write a request body to disk. Raises BodyRefused."""
        precision = next((p for p in PRECISIONS if p == request.query.get("precision", "ns")), None)
        if precision is None:
            raise BodyRefused(400, f"precision {request.query['precision']!r}; legal: {', '.join(PRECISIONS)}")
        if wait := gateway.limit.wait():
            raise BodyRefused(429, f"more than {gateway.limit.rate} lines per second", wait)
        self._body_queue.check_room(self._in_progress[gateway.name])
        self._in_progress[gateway.name] += 1
        try:
            body = await read(request, self.options.max_body)
            lines = body.count(b"\n") + (not body.endswith(b"\n"))
            if lines > self.options.max_lines:
                raise BodyRefused(413, f"{lines} lines; max_lines is {self.options.max_lines}")
            parsed = await self._body_queue.run_first(parse, body, precision)
            gateway.limit.take(lines)
            result = await gateway.write(body, precision, parsed)
        except SpoolError as error:
            log.warning("source %s: %s", gateway.name, error)
            raise BodyRefused(503, f"not written: {error}", _SPOOL_FULL_SECONDS) from error
        finally:
            self._in_progress[gateway.name] -= 1
        if result.retry_reason:
            raise BodyRefused(503, f"{_written(result)}; {result.retry_reason}", RETRY_SECONDS)
        return result


def _count_answer(gateway: Gateway, response: web.Response) -> web.Response:
    metrics.push_answers.labels(source=gateway.name, status=str(response.status)).inc()
    return response


def _partial(result: BodyResult) -> web.Response:
    lines = len({bad.line for bad in result.bad})
    named = "; ".join(str(bad) for bad in result.bad[:_MAX_LISTED])
    more = f"; and {len(result.bad) - _MAX_LISTED} more" if len(result.bad) > _MAX_LISTED else ""
    prefix = "partial write: " if result.values else ""
    bad = "1 bad line" if lines == 1 else f"{lines} bad lines"
    return _answer(400, f"{prefix}{_written(result)}, {bad}: {named}{more}")


def _written(result: BodyResult) -> str:
    return "1 value written" if result.values == 1 else f"{result.values} values written"


def _answer(status: int, message: str, retry_after: float | None = None) -> web.Response:
    headers = {} if retry_after is None else {"Retry-After": str(max(1, math.ceil(retry_after)))}
    return web.json_response({"code": _CODES[status], "message": message}, status=status, headers=headers)


@web.middleware
async def _influx_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Middleware: HTTP errors and internal errors in InfluxDB's format."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status not in _CODES:
            raise
        answer = _answer(error.status, error.reason)
        answer.headers.update({name: value for name, value in error.headers.items() if name == "Allow"})
        return answer
    except Exception:
        log.exception("internal error while processing a request")
        return web.json_response({"code": "internal error", "message": "see plantlog's log"}, status=500)


async def _ping(_: web.Request) -> web.Response:
    return web.Response(status=204, headers={"X-Influxdb-Version": _VERSION, "X-Influxdb-Build": "plantlog"})


async def _health(_: web.Request) -> web.Response:
    content = {"name": "plantlog", "message": "ready for writes", "status": "pass", "checks": [], "version": _VERSION}
    return web.json_response(content)
