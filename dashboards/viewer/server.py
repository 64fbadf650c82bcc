"""The web server: the page, the dashboards without their SQL, and the answers to what a panel asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from dashboards.viewer import page
from dashboards.viewer.access import Access, problem
from dashboards.viewer.asked import Asked, asked
from dashboards.viewer.expand import expand
from dashboards.viewer.frames import wide
from dashboards.viewer.library import Library, Query
from dashboards.viewer.options import among
from dashboards.viewer.reader import Reader
from ingest import http, metrics
from ingest.config.contradictions import is_loopback
from ingest.config.model import ViewerOptions
from ingest.config.secrets import TOKEN_LEGAL, weak
from ingest.errors import DatabaseError, OperationError, QuestionError

_MOST_BODY = 256 * 1024


class Viewer:
    """What is answered to whom."""

    def __init__(self, library: Library, reader: Reader) -> None:
        self._library = library
        self._reader = reader
        self._files = page.files()

    async def open(self, request: web.Request) -> web.StreamResponse:
        """The page itself, whichever dashboard it is about."""
        return self._files["index.html"].answer(request)

    async def login_page(self, request: web.Request) -> web.StreamResponse:
        """Where the token is asked for."""
        return self._files["login.html"].answer(request)

    async def file(self, request: web.Request) -> web.StreamResponse:
        """One of the page's files."""
        found = self._files.get(request.match_info["path"])
        return found.answer(request) if found is not None else problem(404, "no such file")

    async def dashboards(self, _: web.Request) -> web.StreamResponse:
        """Which dashboards there are, by drill-down."""
        return web.json_response([{"uid": one.uid, "title": one.title} for one in self._library])

    async def dashboard(self, request: web.Request) -> web.StreamResponse:
        """One dashboard, without SQL."""
        try:
            return _json(self._library.dashboard(request.match_info["uid"]).public())
        except QuestionError as error:
            return problem(error.status, str(error))

    async def query(self, request: web.Request) -> web.StreamResponse:
        """``POST /api/query``: the rows of every query of a panel."""
        return await self._answered(request, "panel")

    async def variable(self, request: web.Request) -> web.StreamResponse:
        """``POST /api/variable``: values that a variable may have; those that it has now are among them."""
        return await self._answered(request, "variable")

    async def annotations(self, request: web.Request) -> web.StreamResponse:
        """``POST /api/annotations``: the bands and marks of a dashboard."""
        return await self._answered(request, "annotations")

    async def _answered(self, request: web.Request, what: str) -> web.StreamResponse:
        begun = time.perf_counter()
        status = 200
        try:
            question = asked(await request.read())
            queries = self._queries(question, what)
            answers = await asyncio.gather(*(self._ask(query, question) for query in queries))
            return _json(dict(zip((query.ref for query in queries), answers, strict=True)))
        except QuestionError as error:
            status = error.status
            return problem(status, str(error))
        except DatabaseError as error:
            status = 503
            return problem(status, str(error))
        finally:
            metrics.viewer_answers.labels(what=what, status=str(status)).inc()
            metrics.viewer_seconds.labels(what=what).observe(time.perf_counter() - begun)

    def _queries(self, question: Asked, what: str) -> list[Query]:
        dashboard = self._library.dashboard(question.dashboard)
        if what == "annotations":
            return dashboard.annotations()
        if what == "variable" and question.variable is not None:
            return [dashboard.variable(question.variable)]
        if what == "panel" and question.panel is not None:
            return dashboard.panel(question.panel)
        raise QuestionError(400, f"{what}: missing")

    async def _ask(self, query: Query, question: Asked) -> dict[str, object]:
        every = self._library.dashboard(question.dashboard).every()
        sql, parameters = expand(query.sql, question.variables, question.over, every)
        if question.variable is not None:
            sql, parameters = among(sql, parameters, question.search, question.variables.get(question.variable, ()))
        answer = await self._reader.ask(sql, parameters)
        return (wide(answer) if query.time_series else answer).json()


def application(viewer: Viewer, access: Access) -> web.Application:
    """All routes, behind the one check."""
    app = web.Application(middlewares=[access.check], client_max_size=_MOST_BODY)
    app.add_routes(
        [
            web.get("/", viewer.open),
            web.get("/d/{uid}", viewer.open),
            web.get("/d/{uid}/{slug}", viewer.open),
            web.get("/login", viewer.login_page),
            web.post("/login", access.login),
            web.get("/static/{path:.+}", viewer.file),
            web.get("/api/dashboards", viewer.dashboards),
            web.get("/api/dashboards/{uid}", viewer.dashboard),
            web.post("/api/query", viewer.query),
            web.post("/api/variable", viewer.variable),
            web.post("/api/annotations", viewer.annotations),
        ]
    )
    return app


def token_of(options: ViewerOptions) -> bytes | None:
    """The token that is asked for. Raises OperationError where it is missing and needed."""
    if options.token_file is None:
        if not is_loopback(options.host):
            raise OperationError(f"[viewer] host {options.host} is not loopback: a token_file is needed")
        return None
    try:
        token = options.token_file.read_bytes().strip()
    except OSError as error:
        raise OperationError(f"[viewer] token_file {options.token_file}: {error.strerror}") from error
    if (wrong := weak(token)) is not None:
        raise OperationError(f"[viewer] token_file {options.token_file}: found {wrong}; legal: {TOKEN_LEGAL}")
    return token


@asynccontextmanager
async def serve(options: ViewerOptions, reader: Reader, library: Library) -> AsyncIterator[int]:
    """Answer while the block runs; gives the port. Raises OperationError where it can't be opened."""
    app = application(Viewer(library, reader), Access(token_of(options)))
    async with AsyncExitStack() as stack:
        try:
            # Whoever goes away takes his statement with him.
            served = http.serve(app, options.host, options.port, handler_cancellation=True, shutdown_timeout=3.0)
            port = await stack.enter_async_context(served)
        except OSError as error:
            raise OperationError(f"[viewer] {options.host}:{options.port} can't be opened: {error}") from error
        yield port


def _json(content: object) -> web.Response:
    response = web.json_response(content)
    response.enable_compression()
    return response
