"""Who may look: on loopback whoever is on this machine, elsewhere who has the token; and what a browser is told."""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import time

from aiohttp import web

from dashboards.viewer.guesses import Guesses
from ingest import metrics
from ingest.config.contradictions import is_loopback
from ingest.http import Handler, foreign, host_of, network

log = logging.getLogger(__name__)

COOKIE = "plantlog-viewer"
SESSION_SECONDS = 12 * 3600
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
        self._guesses = Guesses()

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
            named = is_loopback(host_of(request))
            return None if named else problem(403, "a page on loopback is asked for by a loopback name")
        if request.path.startswith(_OPEN) or self._in_session(request):
            return None
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._tried(request, token)
        if request.path.startswith("/api/"):
            return problem(401, "a token is needed")
        return web.Response(status=303, headers={"Location": "/login"})

    def _in_session(self, request: web.Request) -> bool:
        until, _, mark = request.cookies.get(COOKIE, "").partition(".")
        if not until.isdecimal() or len(until) > 12 or int(until) < time.time():
            return False
        return hmac.compare_digest(mark.encode(errors="replace"), self._mark(until).encode())

    def _tried(self, request: web.Request, token: str) -> web.StreamResponse | None:
        """Refuse a wrong token, and any token of an address that has tried too often."""
        address = network(request.remote or "")
        if wait := self._guesses.wait(address):
            refused = problem(429, "too many wrong tokens: wait")
            refused.headers["Retry-After"] = str(math.ceil(wait))
            return refused
        if self._right(token.strip()):
            return None
        self._guesses.wrong(address)
        metrics.wrong_tokens.labels(endpoint="viewer").inc()
        log.warning("a wrong token from %s", request.remote)
        return problem(401, "that is not the token")

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
        refused = self._tried(request, token if isinstance(token, str) else "")
        if refused is not None:
            return refused
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
    """What another site's page is told."""
    if foreign(request):
        return problem(403, "asked for by another site")
    if request.method == "POST" and request.content_type != "application/json":
        return problem(415, "the body must be application/json")
    return None
