"""The web server: the page, the dashboards without SQL, and query results for panels."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from aiohttp import web

from core import metrics
from core.config.model import ViewerOptions
from core.errors import DatabaseError, QueryError
from core.servers import http
from core.servers.server_tls import ServerTls
from dashboards.viewer import page
from dashboards.viewer.access import Access, error_response
from dashboards.viewer.frames import wide
from dashboards.viewer.library import Library, Query
from dashboards.viewer.macros import expand
from dashboards.viewer.panel_query import PanelQuery, parse_query, search_values
from dashboards.viewer.reader import ReaderPool

_MAX_BODY = 256 * 1024


class Viewer:
    """The request handlers."""

    def __init__(self, library: Library, reader: ReaderPool) -> None:
        self._library = library
        self._reader = reader
        self._files = page.files()

    async def open(self, request: web.Request) -> web.StreamResponse:
        """The page, for any dashboard; with status 404 for one that there is not, which the page says."""
        uid = request.match_info.get("uid")
        return self._files["index.html"].answer(request, 200 if uid is None or uid in self._library else 404)

    async def login_page(self, request: web.Request) -> web.StreamResponse:
        """The login page."""
        return self._files["login.html"].answer(request)

    async def file(self, request: web.Request) -> web.StreamResponse:
        """One of the page's files."""
        file = self._files.get(request.match_info["path"])
        return file.answer(request) if file is not None else error_response(404, "no such file")

    async def dashboards(self, _: web.Request) -> web.StreamResponse:
        """The list of dashboards, by level, with the names of their variables."""
        return web.json_response(
            [
                {"uid": dashboard.uid, "title": dashboard.title, "variables": dashboard.variable_names()}
                for dashboard in self._library
            ]
        )

    async def dashboard(self, request: web.Request) -> web.StreamResponse:
        """One dashboard, without SQL."""
        try:
            return _json(self._library.dashboard(request.match_info["uid"]).public())
        except QueryError as error:
            return error_response(error.status, str(error))

    async def query(self, request: web.Request) -> web.StreamResponse:
        """``POST /api/query``: results of all queries of a panel."""
        return await self._respond(request, "panel")

    async def variable(self, request: web.Request) -> web.StreamResponse:
        """``POST /api/variable``: possible values of a variable, including the selected ones."""
        return await self._respond(request, "variable")

    async def annotations(self, request: web.Request) -> web.StreamResponse:
        """``POST /api/annotations``: the annotations of a dashboard."""
        return await self._respond(request, "annotations")

    async def _respond(self, request: web.Request, what: str) -> web.StreamResponse:
        started = time.perf_counter()
        status = 200
        try:
            panel_query = parse_query(await request.read())
            queries = self._queries(panel_query, what)
            answers = await asyncio.gather(*(self._rows(query, panel_query) for query in queries))
            return _json(dict(zip((query.ref for query in queries), answers, strict=True)))
        except QueryError as error:
            status = error.status
            return error_response(status, str(error))
        except DatabaseError as error:
            status = 503
            return error_response(status, str(error))
        finally:
            metrics.viewer_answers.labels(what=what, status=str(status)).inc()
            metrics.viewer_seconds.labels(what=what).observe(time.perf_counter() - started)

    def _queries(self, panel_query: PanelQuery, what: str) -> list[Query]:
        dashboard = self._library.dashboard(panel_query.dashboard)
        if what == "annotations":
            return dashboard.annotations()
        if what == "variable" and panel_query.variable is not None:
            return [dashboard.variable(panel_query.variable)]
        if what == "panel" and panel_query.panel is not None:
            return dashboard.panel(panel_query.panel)
        raise QueryError(400, f"{what} is missing")

    async def _rows(self, query: Query, panel_query: PanelQuery) -> dict[str, object]:
        all_values = self._library.dashboard(panel_query.dashboard).all_values_sql()
        sql, parameters = expand(query.sql, panel_query.variables, panel_query.time_range, all_values)
        if panel_query.variable is not None:
            sql, parameters = search_values(
                sql, parameters, panel_query.search, panel_query.variables.get(panel_query.variable, ())
            )
        if query.question is not None:
            question = query.question.filled(panel_query.variables)
            answer = await self._reader.ask(question, panel_query.time_range, sql, parameters)
        else:
            answer = await self._reader.query(sql, parameters)
        return (wide(answer) if query.time_series else answer).json()


def application(viewer: Viewer, access: Access) -> web.Application:
    """All routes, behind the access check."""
    app = web.Application(middlewares=[access.check], client_max_size=_MAX_BODY)
    app.add_routes(
        [
            web.get("/", viewer.open),
            web.get("/d/{uid}", viewer.open),
            web.get("/d/{uid}/{slug}", viewer.open),
            web.get("/login", viewer.login_page),
            web.post("/login", access.login),
            web.post("/logout", access.logout),
            web.get("/api/user", access.who),
            web.post("/api/alarms", access.command),
            web.get("/static/{path:.+}", viewer.file),
            web.get("/api/dashboards", viewer.dashboards),
            web.get("/api/dashboards/{uid}", viewer.dashboard),
            web.post("/api/query", viewer.query),
            web.post("/api/variable", viewer.variable),
            web.post("/api/annotations", viewer.annotations),
        ]
    )
    return app


@asynccontextmanager
async def serve(
    options: ViewerOptions, state: Path, reader: ReaderPool, library: Library, tls: ServerTls | None = None
) -> AsyncIterator[int]:
    """Serve while the block runs; yields the port. Raises OperationError if it cannot be opened.

    ``state``: the state folder, which has the users.
    """
    access = Access(options.host, state, options.trusted_proxies)
    app = application(Viewer(library, reader), access)
    if tls is not None and not tls.is_own:
        # Not with plantlog's own certificate: it would also hold for Grafana and others on this host.
        app.on_response_prepare.append(_require_https)
    # If a client disconnects, its statement is cancelled.
    served = http.serve(app, options.host, options.port, tls, handler_cancellation=True, shutdown_timeout=3.0)
    with closing(access):
        async with served as port:
            yield port


async def _require_https(_: web.Request, response: web.StreamResponse) -> None:
    """Let browsers call this host by HTTPS only (RFC 6797)."""
    response.headers["Strict-Transport-Security"] = "max-age=31536000"


def _json(content: object) -> web.Response:
    response = web.json_response(content)
    response.enable_compression()
    return response
