"""The lease of a redundant pair: which of its two members writes. It is a row of ``plant.writer_lease``.

Each take-over increases the token, which every transaction of the holder checks (``Fence``). So a holder that
slept, or that was cut off, commits nothing after the other one has taken over, whatever the clocks say.

A member also notices that the database lost what the other member wrote. What this member itself wrote is compared by
its keys (``restored``). What the other one wrote has keys of its own; this member received it, too, and has it in its
journal. So it compares heartbeats: the database says when it saw this member before. If that is earlier than what it
said last, or said on another timeline, all that was committed since then may be lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from core import metrics
from core.database import FAILURES, bounded, connect
from core.errors import LeaseLost
from core.files import write_atomically
from core.timestamps import now_us
from ingest.journal.replay import replay
from ingest.spool.member import LEASE_SECONDS, read_token, stands_by, write_holder, write_token
from ingest.writer.transaction.write import Fence, session_prefix
from schema.queries import load

log = logging.getLogger(__name__)

RENEW_SECONDS = 0.4
_POLL_SECONDS = 0.1
_TIMEOUT = 2.0  # for connecting, and for a statement
_LOCK_SECONDS = 0.3  # if a transaction of the former holder takes longer: its sessions are ended
_CONNECTION_ERRORS = (*FAILURES, TimeoutError)
_SEEN_FILE = "seen"  # in the spool folder: timeline, and when the database had seen this member (µs)
_SEEN_MARGIN_US = 60_000_000  # that is looked up, too


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The lease as the database has it."""

    member: int
    token: int
    expired: bool
    backlog_seconds: float  # age of the oldest batch in the holder's spools
    seconds_since_taken: float


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The answer to a heartbeat. Times are µs, by the database's clock."""

    away: bool  # the other member
    timeline: str
    before: int | None  # when this member was seen before; None: never
    now: int


class Lease:
    """A member's view of the lease, on a connection of its own.

    A token is higher than all that the members have seen, also in a database that was restored from a backup: those in
    ``spool`` are remembered.
    """

    def __init__(self, dsn: str, installation: UUID, member: int, spool: Path | None = None) -> None:
        self._dsn = dsn
        self._installation = installation
        self.member = member
        self._spool = spool
        self._token = 0 if spool is None else read_token(spool)
        self._connection: asyncpg.Connection[Any] | None = None
        self._statement = asyncio.Lock()
        self.fence: Fence | None = None  # None: this member is the standby
        self.took_over = False  # from the other member, when the lease was taken last
        self.state: LeaseState | None = None  # as last seen

    async def acquire(self) -> Fence:
        """Wait until the lease is free, and take it. No former holder has a session any more."""
        while True:
            try:
                if (fence := await self._try()) is not None:
                    self.fence = fence
                    return fence
            except _CONNECTION_ERRORS as error:
                log.info("lease: %s: %s", type(error).__name__, error)
                self.state = None
                self.disconnect()
            await asyncio.sleep(_POLL_SECONDS)

    async def _try(self) -> Fence | None:
        queries = load("lease")
        state = await self._see()
        if state is None:
            await self._run("execute", queries["insert_lease"], self._installation, self.member)
        elif state.member != self.member and not state.expired:
            self._set_role(is_holder=False)
            return None
        try:
            taken = await self._run(
                "fetchrow", queries["take_lease"], self._installation, self.member, LEASE_SECONDS, self._token
            )
        except asyncpg.LockNotAvailableError:
            await self._end_sessions()
            return None  # tried again at once
        if taken is None:
            return None
        # They can commit nothing, but may hold locks on samples.
        while not await self._end_sessions():
            log.warning("lease: waiting for the sessions of member %d to end", taken["former"])
        self._set_role(is_holder=True)
        self.took_over = taken["former"] != self.member
        self._remember(taken["token"])
        if taken["former"] != self.member and taken["token"] > 1:
            await self._record_take_over(taken)
        log.info("lease: taken with token %d; former holder: member %d", taken["token"], taken["former"])
        return Fence(self._installation, self.member, taken["token"])

    async def _end_sessions(self) -> bool:
        prefix = session_prefix(self._installation)
        return bool(await self._run("fetchval", load("lease")["end_sessions"], prefix))

    async def _see(self) -> LeaseState | None:
        row = await self._run("fetchrow", load("lease")["select_lease"], self._installation)
        self.state = None if row is None else LeaseState(**row)
        if self.state is not None:
            self._remember(self.state.token)
        return self.state

    def _remember(self, token: int) -> None:
        if token > self._token:
            self._token = token
            if self._spool is not None:
                with suppress(OSError):  # a full disk is reported by the collectors
                    write_token(self._spool, token)

    def _set_role(self, *, is_holder: bool) -> None:
        if self._spool is not None and is_holder == stands_by(self._spool):
            with suppress(OSError):  # as above
                write_holder(self._spool, is_holder)

    async def _record_take_over(self, taken: Any) -> None:
        metrics.take_over.set_to_current_time()
        with suppress(*_CONNECTION_ERRORS):  # the log has it
            query = load("lease")["record_take_over"]
            await self._run("execute", query, self._installation, self.member, taken["former"], taken["token"])

    async def renew(self, backlog_seconds: float) -> bool:
        """Renew once. Returns whether the other member asks for the lease. Raises LeaseLost if it has it."""
        fence = self.fence
        if fence is None:
            raise LeaseLost("not the holder")
        try:
            row = await self._run(
                "fetchrow",
                load("lease")["renew_lease"],
                self._installation,
                fence.token,
                LEASE_SECONDS,
                backlog_seconds,
            )
        except _CONNECTION_ERRORS as error:
            log.info("lease: %s: %s", type(error).__name__, error)
            self.disconnect()
            return False
        if row is None:
            self.fence = None
            raise LeaseLost("the other member of the pair has taken over")
        return bool(row["wanted"])

    async def release(self) -> None:
        """Let the other member take over at once."""
        fence, self.fence = self.fence, None
        if fence is not None:
            with suppress(*_CONNECTION_ERRORS):  # then it expires
                await self._run("execute", load("lease")["release_lease"], self._installation, fence.token)

    async def request(self) -> None:
        """Ask the holder for the lease."""
        if self.state is not None and self.state.member != self.member:
            with suppress(*_CONNECTION_ERRORS):
                await self._run("execute", load("lease")["want_lease"], self._installation, self.state.token)

    async def heartbeat(self, folder: UUID, rows: int, receiving: Collection[int]) -> Heartbeat | None:
        """Heartbeat of this member, whose state folder has this identity, and whose spools have so many rows.

        ``receiving``: the sources that it received samples of since its start.
        None: the database does not answer.
        """
        with suppress(*_CONNECTION_ERRORS):
            query = load("lease")["member_seen"]
            row = await self._run("fetchrow", query, self._installation, self.member, folder, rows, [*receiving])
            return Heartbeat(**row)
        return None

    async def fetch(self, query: str, *parameters: object) -> list[asyncpg.Record]:
        """The rows of a query, on the connection of the lease. Raises what the database raises."""
        rows: list[asyncpg.Record] = await self._run("fetch", query, *parameters)
        return rows

    async def _run(self, method: str, query: str, *parameters: object) -> Any:
        async with self._statement:
            if self._connection is None or self._connection.is_closed():
                # Renewals wait for no disk: a server that crashes forgets at most the last ones.
                settings = {
                    "synchronous_commit": "off",
                    "statement_timeout": f"{_TIMEOUT * 1000:.0f}",
                    "lock_timeout": f"{_LOCK_SECONDS * 1000:.0f}",
                    "tcp_user_timeout": f"{_TIMEOUT * 1000:.0f}",
                }
                self._connection = await connect(self._dsn, "plantlog lease", settings, _TIMEOUT)
            return await bounded(self._connection, 0, getattr(self._connection, method)(query, *parameters))

    def disconnect(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


def request_lost(spool: Path, heartbeat: Heartbeat) -> int:
    """Request that what the other member wrote is looked up, and written again, if the database may have lost it.

    How many batches these are. Raises OSError.
    """
    path, before = spool / _SEEN_FILE, heartbeat.before or 0
    try:
        timeline, time = path.read_text().split()
        newest_seen = int(time)
    except (OSError, ValueError):  # nothing was seen yet
        timeline, newest_seen = heartbeat.timeline, before
    batches = 0
    if timeline != heartbeat.timeline or before < newest_seen:
        since = min(before, newest_seen) + now_us() - heartbeat.now  # by the clock of the journal
        batches = replay(spool, since - _SEEN_MARGIN_US, by_other=True).batches
    write_atomically(path, f"{heartbeat.timeline} {before}\n")
    return batches
