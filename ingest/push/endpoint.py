"""The HTTP side: InfluxDB's v2 write API.

https://docs.influxdata.com/influxdb/v2/api/#operation/PostWrite. ``org`` and ``bucket`` are taken and not used: the
token says which source a gateway is.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TypeAlias

from aiohttp import web

from ingest import http, metrics
from ingest.config.model import PushOptions
from ingest.errors import OperationError, SpoolError
from ingest.push.arrivals import acknowledged
from ingest.push.body import Refused, read
from ingest.push.channels import AGAIN_SECONDS
from ingest.push.gateway import Gateway, Taken
from ingest.push.gateways import Gateways
from ingest.push.line_protocol import PRECISIONS

log = logging.getLogger(__name__)

_NAMED = 20  # bad lines that an answer names
_IN_HAND = 8  # bodies of one gateway at once: what they take of memory is bounded
_FULL_SECONDS = 5  # until a gateway that we have no room for comes again
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
async def serve(endpoint: Endpoint) -> AsyncIterator[int]:
    """Take bodies while the block runs; gives the port. Raises OperationError where it can't be opened."""
    options = endpoint.options
    app = web.Application(middlewares=[_in_influx_words])
    app.add_routes(
        [
            web.post("/api/v2/write", endpoint.write),
            web.get("/api/v2/ping", _ping),
            web.get("/ping", _ping),
            web.get("/health", _health),
        ]
    )
    async with AsyncExitStack() as stack:
        try:
            served = http.serve(app, options.host, options.port, shutdown_timeout=_DRAIN_SECONDS, auto_decompress=False)
            port = await stack.enter_async_context(served)
        except OSError as error:
            raise OperationError(f"[push] {options.host}:{options.port} can't be opened: {error}") from error
        yield port


class Endpoint:
    """Answers the requests of ``gateways``. ``options`` may be replaced, but for host and port."""

    def __init__(self, options: PushOptions, gateways: Gateways) -> None:
        self.options = options
        self._gateways = gateways
        self._in_hand: Counter[str] = Counter()

    async def write(self, request: web.Request) -> web.StreamResponse:
        """``POST /api/v2/write``: 204 when every line is on disk."""
        gateway = self._gateway(request.headers.get("Authorization", ""))
        if gateway is None:
            metrics.wrong_tokens.labels(endpoint="push").inc()
            log.warning("a body from %s was refused: its token is missing or wrong", request.remote)
            return _answer(401, "unauthorized access")
        try:
            taken = await self._take(gateway, request)
        except Refused as refused:
            return _counted(gateway, _answer(refused.status, str(refused), refused.after))
        response = _counted(gateway, _partial(taken) if taken.bad else web.Response(status=204))
        if taken.note is not None:
            with suppress(ConnectionError):
                await response.prepare(request)
                await response.write_eof()
                if await acknowledged(request.transport):
                    gateway.arrivals.forget(taken.note)
        return response

    def _gateway(self, authorization: str) -> Gateway | None:
        scheme, _, token = authorization.partition(" ")
        found = self._gateways.of_token(token.strip().encode(errors="surrogateescape"))
        return found if scheme.lower() in ("token", "bearer") else None

    async def _take(self, gateway: Gateway, request: web.Request) -> Taken:
        """What became of a request's body, all of which is on disk. Raises Refused."""
        precision = next((p for p in PRECISIONS if p == request.query.get("precision", "ns")), None)
        if precision is None:
            raise Refused(400, f"precision {request.query['precision']!r}; legal: {', '.join(PRECISIONS)}")
        if wait := gateway.limit.wait():
            gateway.silence.heard()
            raise Refused(429, f"more than {gateway.limit.rate} lines a second", wait)
        if self._in_hand[gateway.name] >= _IN_HAND:
            raise Refused(503, f"{_IN_HAND} bodies are in hand already", 1)
        self._in_hand[gateway.name] += 1
        try:
            body = await read(request, self.options.max_body)
            lines = body.count(b"\n") + (not body.endswith(b"\n"))
            if lines > self.options.max_lines:
                raise Refused(413, f"{lines} lines; max_lines is {self.options.max_lines}")
            gateway.limit.take(lines)
            taken = await gateway.take(body, precision)
        except SpoolError as error:
            log.warning("source %s: %s", gateway.name, error)
            raise Refused(503, f"not written: {error}", _FULL_SECONDS) from error
        finally:
            self._in_hand[gateway.name] -= 1
        if taken.later:
            raise Refused(503, f"{taken.values} values written; {taken.later}", AGAIN_SECONDS)
        return taken


def _counted(gateway: Gateway, response: web.Response) -> web.Response:
    metrics.push_answers.labels(source=gateway.name, status=str(response.status)).inc()
    return response


def _partial(taken: Taken) -> web.Response:
    lines = len({bad.line for bad in taken.bad})
    named = "; ".join(str(bad) for bad in taken.bad[:_NAMED])
    more = f"; and {len(taken.bad) - _NAMED} more" if len(taken.bad) > _NAMED else ""
    what = "partial write: " if taken.values else ""
    bad = "1 bad line" if lines == 1 else f"{lines} bad lines"
    return _answer(400, f"{what}{taken.values} values written, {bad}: {named}{more}")


def _answer(status: int, message: str, after: float | None = None) -> web.Response:
    headers = {} if after is None else {"Retry-After": str(max(1, math.ceil(after)))}
    return web.json_response({"code": _CODES[status], "message": message}, status=status, headers=headers)


@web.middleware
async def _in_influx_words(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Errors of the HTTP library, and our own mistakes, in InfluxDB's form."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status not in _CODES:
            raise
        answer = _answer(error.status, error.reason)
        answer.headers.update({name: value for name, value in error.headers.items() if name == "Allow"})
        return answer
    except Exception:
        log.exception("a body was not taken")
        return web.json_response({"code": "internal error", "message": "see plantlog's log"}, status=500)


async def _ping(_: web.Request) -> web.Response:
    return web.Response(status=204, headers={"X-Influxdb-Version": _VERSION, "X-Influxdb-Build": "plantlog"})


async def _health(_: web.Request) -> web.Response:
    said = {"name": "plantlog", "message": "ready for writes", "status": "pass", "checks": [], "version": _VERSION}
    return web.json_response(said)
