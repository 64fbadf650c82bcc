"""Who may look: on loopback whoever is on this machine, elsewhere who has the token; and what a browser is told."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiohttp import web

from ingest.config.contradictions import is_loopback

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

COOKIE = "plantlog-viewer"
SESSION_SECONDS = 12 * 3600
_WRONG_SECONDS = 0.5  # between two tries of a token, all who try taken together
_OPEN = ("/login", "/static/")  # what needs no token

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


class Access:
    """The one check that every request passes. ``token`` None: loopback, where no token is asked for."""

    def __init__(self, token: bytes | None) -> None:
        self._token = token
        self._key = hashlib.sha256(b"plantlog viewer session " + (token or b"")).digest()
        self._trying = asyncio.Lock()

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer who may not look; give every answer its headers."""
        refused = self._refused(request)
        try:
            response = refused or await handler(request)
        except web.HTTPException as error:
            response = problem(error.status, error.reason)
        response.headers.update(HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    def _refused(self, request: web.Request) -> web.StreamResponse | None:
        foreign = _foreign(request)
        if foreign is not None:
            return foreign
        if self._token is None:
            # Another site's name that resolves to loopback must not read what is ours (DNS rebinding).
            named = is_loopback(_host(request))
            return None if named else problem(403, "a page on loopback is asked for by a loopback name")
        if request.path.startswith(_OPEN) or self._known(request):
            return None
        if request.path.startswith("/api/"):
            return problem(401, "a token is needed")
        return web.Response(status=303, headers={"Location": "/login"})

    def _known(self, request: web.Request) -> bool:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._right(token.strip()):
            return True
        until, _, mark = request.cookies.get(COOKIE, "").partition(".")
        if not until.isdecimal() or len(until) > 12 or int(until) < time.time():
            return False
        return hmac.compare_digest(mark.encode(errors="replace"), self._mark(until).encode())

    def _right(self, token: str) -> bool:
        return self._token is not None and hmac.compare_digest(token.encode(errors="surrogateescape"), self._token)

    def _mark(self, until: str) -> str:
        return hmac.new(self._key, until.encode(), hashlib.sha256).hexdigest()

    async def login(self, request: web.Request) -> web.StreamResponse:
        """``POST /login {"token": …}``: a session's cookie for the right one."""
        try:
            given = await request.json()
        except ValueError:
            return problem(400, "the body is no JSON")
        token = given.get("token") if isinstance(given, dict) else None
        if not isinstance(token, str) or not self._right(token.strip()):
            async with self._trying:
                await asyncio.sleep(_WRONG_SECONDS)
            return problem(401, "that is not the token")
        until = str(int(time.time()) + SESSION_SECONDS)
        response = web.json_response({"until": int(until)})
        response.set_cookie(
            COOKIE,
            f"{until}.{self._mark(until)}",
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="Strict",
            secure=request.secure,
        )
        return response


def problem(status: int, message: str) -> web.Response:
    """An error as the page shows it."""
    return web.json_response({"error": message}, status=status)


def _foreign(request: web.Request) -> web.StreamResponse | None:
    """Whether another site's page asks: it may link here, but has no scripts, frames and forms with us."""
    site = request.headers.get("Sec-Fetch-Site", "none")
    navigates = request.headers.get("Sec-Fetch-Mode") == "navigate" and request.method == "GET"
    if site not in ("none", "same-origin") and not navigates:
        return problem(403, "asked for by another site")
    if request.method == "POST" and request.content_type != "application/json":
        return problem(415, "the body must be application/json")
    return None


def _host(request: web.Request) -> str:
    host = request.host
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
