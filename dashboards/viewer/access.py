"""Access control: no authentication on loopback, a token elsewhere; and security headers."""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import time

from aiohttp import web

from dashboards.viewer.login_attempts import LoginAttempts
from ingest import metrics
from ingest.addresses import is_loopback
from ingest.http import Handler, client_network, host_of, is_cross_site

log = logging.getLogger(__name__)

COOKIE = "plantlog-viewer"
SESSION_SECONDS = 12 * 3600
_OPEN = ("/login", "/static/")  # paths without authentication

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
    """Checks every request. ``token`` None: loopback without authentication."""

    def __init__(self, token: bytes | None) -> None:
        self._token = token
        self._key = hashlib.sha256(b"plantlog viewer session " + (token or b"")).digest()
        self._attempts = LoginAttempts()

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject unauthorized requests; add security headers to every response."""
        refused = self._refused(request)
        try:
            response = refused or await handler(request)
        except web.HTTPException as error:
            response = error_response(error.status, error.reason)
        response.headers.update(HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    def _refused(self, request: web.Request) -> web.StreamResponse | None:
        cross_site = _refuse_cross_site(request)
        if cross_site is not None:
            return cross_site
        if self._token is None:
            # Another site's name that resolves to loopback must not get access (DNS rebinding).
            named = is_loopback(host_of(request))
            return None if named else error_response(403, "use a loopback name or address, such as localhost")
        if request.path.startswith(_OPEN) or self._in_session(request):
            return None
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._check_token(request, token)
        if request.path.startswith("/api/"):
            return error_response(401, "a token is required")
        return web.Response(status=303, headers={"Location": "/login"})

    def _in_session(self, request: web.Request) -> bool:
        until, _, signature = request.cookies.get(COOKIE, "").partition(".")
        if not until.isdecimal() or len(until) > 12 or int(until) < time.time():
            return False
        return hmac.compare_digest(signature.encode(errors="replace"), self._signature(until).encode())

    def _check_token(self, request: web.Request, token: str) -> web.StreamResponse | None:
        """Reject wrong tokens, and any token of an address with too many attempts."""
        address = client_network(request.remote or "")
        if wait := self._attempts.wait(address):
            refused = error_response(429, "too many failed attempts: try again later")
            refused.headers["Retry-After"] = str(math.ceil(wait))
            return refused
        if self._is_token(token.strip()):
            return None
        self._attempts.record_failure(address)
        metrics.wrong_tokens.labels(endpoint="viewer").inc()
        log.warning("invalid token from %s", request.remote)
        return error_response(401, "invalid token")

    def _is_token(self, token: str) -> bool:
        return self._token is not None and hmac.compare_digest(token.encode(errors="surrogateescape"), self._token)

    def _signature(self, until: str) -> str:
        return hmac.new(self._key, until.encode(), hashlib.sha256).hexdigest()

    async def login(self, request: web.Request) -> web.StreamResponse:
        """``POST /login {"token": …}``: sets a session cookie if the token is correct."""
        try:
            body = await request.json()
        except ValueError:
            return error_response(400, "the request body is not valid JSON")
        token = body.get("token") if isinstance(body, dict) else None
        refused = self._check_token(request, token if isinstance(token, str) else "")
        if refused is not None:
            return refused
        until = str(int(time.time()) + SESSION_SECONDS)
        response = web.json_response({"until": int(until)})
        response.set_cookie(
            COOKIE,
            f"{until}.{self._signature(until)}",
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="Strict",
            secure=request.secure,
        )
        return response


def error_response(status: int, message: str) -> web.Response:
    """A JSON error response for the page."""
    return web.json_response({"error": message}, status=status)


def _refuse_cross_site(request: web.Request) -> web.StreamResponse | None:
    """The response to cross-site requests."""
    if is_cross_site(request):
        return error_response(403, "cross-site request refused")
    if request.method == "POST" and request.content_type != "application/json":
        return error_response(415, "the content type must be application/json")
    return None
