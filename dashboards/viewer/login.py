"""Logins to the viewer: by a page and a cookie, or by HTTP Basic authentication (RFC 7617) for programs."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from aiohttp import web

from core import metrics
from core.errors import OperationError
from core.servers.http import client_network
from core.users import passwords
from core.users.directory import User, UserDirectory
from ingest.spool import audit

log = logging.getLogger(__name__)

_MAX_FAILURES = 10  # wrong passwords before the next attempt has to wait
_RETRY_SECONDS = 2.0  # per further attempt
_MAX_KEYS = 10_000  # remembered

COOKIE = "plantlog-viewer"
SESSION_SECONDS = 12 * 3600
_HASHES = 2  # passwords that are checked at a time, each with 64 MiB
_MAX_WAITING = 300  # passwords that wait for that
_BASIC_SECONDS = 600.0  # for which a program's password is not checked again
_MAX_BASIC = 1000  # programs


class Refused(Exception):  # noqa: N818  (an answer, not a fault)
    """A request is not answered; ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {"Retry-After": str(math.ceil(wait))} if wait else {}


class Login:
    """The users, and their sessions. A session ends with any change of its user."""

    def __init__(self, state: Path, proxies: Collection[str] = ()) -> None:
        """``proxies``: addresses that say in X-Forwarded-For whose requests they pass on."""
        self._state = state
        self._directory = UserDirectory(state)
        self._proxies = proxies
        self._attempts = LoginAttempts()
        self._unknown = LoginAttempts()  # of names that are no user's: they don't crowd out what is kept of users
        self._guesses = LoginAttempts()  # the same, whatever the name: passwords that are checked for nothing
        self._check_seconds = 0.0  # that the last check took
        self._threads = ThreadPoolExecutor(_HASHES, "argon2")
        self._waiting = 0
        self._key = secrets.token_bytes()
        self._programs: OrderedDict[bytes, float] = OrderedDict()  # digest of name and password → monotonic s

    def users(self) -> Mapping[str, User]:
        """The users by name. Raises Refused."""
        try:
            return self._directory.users()
        except OperationError as error:
            log.error("%s", error)
            raise Refused(503, "the users can't be read: see the log of the viewer") from error

    async def user_of(self, request: web.Request, users: Mapping[str, User]) -> User:
        """User who sent the request. Raises Refused."""
        if (user := _in_session(request, users)) is not None:
            return user
        scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "basic":
            raise Refused(401, "log in first")
        try:
            name, colon, password = base64.b64decode(credentials, validate=True).decode().partition(":")
        except ValueError:
            colon = ""
        if not colon:
            raise Refused(400, "Authorization: found no base64 of NAME:PASSWORD")
        digest = hmac.digest(self._key, f"{users.get(name)}\0{password}".encode(), "sha256")
        if self._programs.get(digest, 0.0) > time.monotonic():
            return users[name]
        user = await self.check(request, users, name, password)
        self._programs[digest] = time.monotonic() + _BASIC_SECONDS
        if len(self._programs) > _MAX_BASIC:
            self._programs.popitem(last=False)
        return user

    async def check(self, request: web.Request, users: Mapping[str, User], name: str, password: str) -> User:
        """The user with this name and password. Raises Refused; for a name that is unknown after the same time."""
        address, user = client_network(self.client(request)), users.get(name)
        attempts = self._unknown if user is None else self._attempts
        if wait := attempts.wait(address, name):
            raise Refused(429, "too many failed attempts: try again later", wait)
        if self._waiting >= _MAX_WAITING:
            raise Refused(503, "too many logins at once: try again", 1.0)
        attempts.record_failure(address, name)  # until it is none: others may be on their way
        if user is None and self._guesses.wait(address, ""):
            right = False
            await asyncio.sleep(self._check_seconds)
        else:
            if user is None:
                self._guesses.record_failure(address, "")
            right = await self._matches(user, password)
        if user is None or not right or not user.enabled:
            metrics.wrong_tokens.labels(endpoint="viewer").inc()
            log.warning("failed login from %s", self.client(request))
            why = "disabled" if user is not None and right else "wrong name or password"
            await self.record(request, user, "viewer login", "refused", why)
            raise Refused(401, "wrong name or password")
        attempts.withdraw_failure(address, name)
        await self.record(request, user, "viewer login")
        return user

    async def _matches(self, user: User | None, password: str) -> bool:
        started = time.monotonic()
        self._waiting += 1
        try:
            loop, stored = asyncio.get_running_loop(), None if user is None else user.password
            return await loop.run_in_executor(self._threads, passwords.matches, stored, password)
        finally:
            self._waiting -= 1
            self._check_seconds = time.monotonic() - started

    def client(self, request: web.Request) -> str:
        """The address that a request comes from; of one by a trusted proxy, the last that is none (RFC 7239, 5.2)."""
        hops = [request.remote or ""]
        hops += [hop.strip() for hop in reversed(request.headers.get("X-Forwarded-For", "").split(","))]
        return next((hop for hop in hops if hop not in self._proxies and hop), hops[0])

    async def record(
        self,
        request: web.Request,
        user: User | None,
        action: str,
        outcome: audit.Outcome = "done",
        error: str = "",
        arguments: Mapping[str, str] | None = None,
    ) -> bool:
        """Put an action into the audit trail. Returns whether that worked; if not, the log has it."""
        name, role = (None, None) if user is None else (user.name, user.role)
        person = audit.Person(name, role, None, self.client(request))
        try:
            done = audit.Action(action, arguments or {}, outcome, error)
            await asyncio.to_thread(audit.record, self._state, person, done)
        except OperationError as problem:
            log.error("%s: %s: %s by %s from %s", problem, action, outcome, person.user, person.host)
            return False
        return True

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def session(user: User) -> tuple[str, int]:
    """The value of a new session's cookie, and when it ends (s since 1970)."""
    until = int(time.time()) + SESSION_SECONDS
    return f"{until}.{user.name.encode().hex()}.{_signature(user, str(until))}", until


def _in_session(request: web.Request, users: Mapping[str, User]) -> User | None:
    until, _, rest = request.cookies.get(COOKIE, "").partition(".")
    name, _, signature = rest.partition(".")
    if not until.isdecimal() or len(until) > 12 or int(until) < time.time():
        return None
    try:
        user = users.get(bytes.fromhex(name).decode())
    except ValueError:
        return None
    if user is None or not user.enabled:
        return None
    right = hmac.compare_digest(signature.encode(errors="replace"), _signature(user, until).encode())
    return user if right else None


def _signature(user: User, until: str) -> str:
    """Sign a session. Its key is the user with the hash of the password: if either changes, the session ends."""
    key = hashlib.sha256(f"plantlog viewer session {user!r}".encode()).digest()
    return hmac.new(key, until.encode(), hashlib.sha256).hexdigest()


class LoginAttempts:
    """Wrong passwords by address and name, so that nobody locks out others who share an address.

    Who has to wait cannot log in with the right password either, so learns nothing.
    """

    def __init__(self) -> None:
        self._wrong: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()  # used attempts, monotonic s

    def wait(self, address: str, name: str) -> float:
        """Seconds until the next attempt; 0: now."""
        return max(0.0, (self._used((address, name)) - _MAX_FAILURES + 1) * _RETRY_SECONDS)

    def record_failure(self, address: str, name: str) -> None:
        """Count a wrong password, or one that is not checked yet."""
        key = address, name
        self._wrong[key] = self._used(key) + 1, time.monotonic()
        self._wrong.move_to_end(key)
        if len(self._wrong) > _MAX_KEYS:
            self._wrong.popitem(last=False)

    def withdraw_failure(self, address: str, name: str) -> None:
        """The last one was right."""
        key = address, name
        if key in self._wrong:
            self._wrong[key] = max(0.0, self._used(key) - 1), time.monotonic()

    def _used(self, key: tuple[str, str]) -> float:
        used, at = self._wrong.get(key, (0.0, 0.0))
        return max(0.0, used - (time.monotonic() - at) / _RETRY_SECONDS)
