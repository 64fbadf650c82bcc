"""Access control: no authentication on loopback while there are no users, a login otherwise; and security headers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.addresses import is_loopback
from core.errors import OperationError
from core.servers.http import Handler, host_of, is_cross_site
from core.users.directory import OPERATORS, User, closed_viewer
from dashboards.viewer.login import COOKIE, SESSION_SECONDS, Login, Refused, session
from ingest.alarms import command_socket

_OPEN = ("/login", "/static/")  # paths without authentication
_USER = web.RequestKey("user", User)

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Server": "plantlog",
}
_Name = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^*?\[]+$")]  # no pattern: one alarm


class _LoginRequest(BaseModel):
    """The body of ``POST /login``."""

    model_config = ConfigDict(frozen=True, strict=True)

    name: Annotated[str, Field(max_length=300)]
    password: Annotated[str, Field(max_length=1000)]


class Access:
    """Checks every request to a viewer that listens on ``host``."""

    def __init__(self, host: str, state: Path, proxies: Collection[str] = ()) -> None:
        self._host = host
        self._login = Login(state, proxies)
        self._alarms = AlarmCommands(state, self._login)

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject unauthorized requests; add security headers to every response."""
        try:
            response = await self._redirect_or_check(request) or await handler(request)
        except Refused as refused:
            response = error_response(refused.status, str(refused))
            response.headers.update(refused.headers)
        except web.HTTPException as error:
            response = error_response(error.status, error.reason)
        response.headers.update(HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    async def _redirect_or_check(self, request: web.Request) -> web.StreamResponse | None:
        """A redirection, or None: the request may be answered. Raises Refused."""
        _refuse_cross_site(request)
        users = self._login.users()
        if not users:
            if (closed := closed_viewer(self._host, users)) is not None:
                raise Refused(503, closed)
            # Another site's name that resolves to loopback must not get access (DNS rebinding).
            if not is_loopback(host_of(request)):
                raise Refused(403, "use a loopback name or address, such as localhost")
            return None
        if request.path.startswith(_OPEN):
            return None
        try:
            request[_USER] = await self._login.user_of(request, users)
        except Refused as refused:
            if refused.status != 401 or request.path.startswith("/api/") or "Authorization" in request.headers:
                raise
            return web.Response(status=303, headers={"Location": "/login"})
        return None

    async def login(self, request: web.Request) -> web.StreamResponse:
        """``POST /login {"name": …, "password": …}``: sets a session cookie if both are correct. Raises Refused."""
        try:
            body = _LoginRequest.model_validate_json(await request.read())
        except ValidationError as error:
            first = error.errors()[0]
            raise Refused(400, ": ".join(map(str, (*first["loc"], first["msg"])))) from None
        user = await self._login.check(request, self._login.users(), body.name, body.password)
        cookie, until = session(user)
        response = web.json_response({"until": until})
        response.set_cookie(
            COOKIE, cookie, max_age=SESSION_SECONDS, httponly=True, samesite="Strict", secure=request.secure
        )
        return response

    async def logout(self, request: web.Request) -> web.StreamResponse:
        """``POST /logout``: removes the cookie."""
        if (user := request.get(_USER)) is not None:
            await self._login.record(request, user, "viewer logout")
        response = web.json_response({})
        response.del_cookie(COOKIE)
        return response

    async def who(self, request: web.Request) -> web.StreamResponse:
        """``GET /api/user``: who is logged in; nobody while there are no users."""
        user = request.get(_USER)
        if user is None:
            return web.json_response({})
        return web.json_response({"name": user.name, "role": user.role, "operates": user.role in OPERATORS})

    async def command(self, request: web.Request) -> web.StreamResponse:
        """``POST /api/alarms``: acknowledge, shelve or unshelve an alarm. Raises Refused."""
        return await self._alarms.execute(request, request.get(_USER))

    def close(self) -> None:
        """End its threads."""
        self._login.close()


def error_response(status: int, message: str) -> web.Response:
    """A JSON error response for the page."""
    return web.json_response({"error": message}, status=status)


def _refuse_cross_site(request: web.Request) -> None:
    """Raises Refused for cross-site requests."""
    if is_cross_site(request):
        raise Refused(403, "cross-site request refused")
    if request.method == "POST" and request.content_type != "application/json":
        raise Refused(415, "the content type must be application/json")


class AlarmRequest(BaseModel):
    """The body of ``POST /api/alarms``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    action: Literal["ack", "shelve", "unshelve"]
    channel: _Name
    limit: _Name
    why: Annotated[str, Field(max_length=300)] = ""
    seconds: Annotated[int, Field(gt=0)] | None = None  # to shelve


class AlarmCommands:
    """Sends the commands of users who may to the collectors of a state folder."""

    def __init__(self, state: Path, login: Login) -> None:
        self._run = state / "run"
        self._login = login

    async def execute(self, request: web.Request, user: User | None) -> web.StreamResponse:
        """``POST /api/alarms``: what became of the alarm. Raises Refused."""
        try:
            command = AlarmRequest.model_validate_json(await request.read())
        except ValidationError as error:
            first = error.errors()[0]
            raise Refused(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        # Also if the browser does not wait for it: what has begun gets an outcome in the audit trail.
        return await asyncio.shield(asyncio.ensure_future(self._execute(request, user, command)))

    async def _execute(self, request: web.Request, user: User | None, command: AlarmRequest) -> web.StreamResponse:
        fields = command.model_dump(exclude_none=True, exclude={"action"})
        arguments = {name: str(value) for name, value in fields.items() if value != ""}
        action = f"alarms {command.action}"
        if user is None:
            raise Refused(403, "nobody is logged in: add users with `plantlog user add`")
        if user.role not in OPERATORS:
            why = f"user {user.name} has the role {user.role}; legal: {' or '.join(sorted(OPERATORS))}"
            await self._login.record(request, user, action, "refused", why, arguments)
            raise Refused(403, why)
        if not await self._login.record(request, user, action, "begun", "", arguments):
            raise Refused(503, "the action can't be recorded in the audit trail: see the log of the viewer")
        try:
            sent = {**command.model_dump(), "who": user.name, "logged_in": True}
            done = await command_socket.send(self._run, sent)
        except OperationError as error:
            await self._login.record(request, user, action, "failed", str(error), arguments)
            raise Refused(409, str(error)) from error
        await self._login.record(request, user, action, "done", "", arguments)
        return web.json_response({"done": done})
