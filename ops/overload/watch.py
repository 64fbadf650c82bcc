"""Looks once a second, says what it finds, and puts the begin and the end of an overload on record."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import asyncpg

from ingest import metrics
from ingest.config.model import HealthOptions
from ops.overload.measure import Pressure, look
from ops.overload.state import Look, Overload, figures
from ops.paths import State
from schema.queries import load

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 5.0  # before an event that could not be written is tried again
_BEGUN, _ENDED = "overloaded", "good"

Connect: TypeAlias = Callable[[], Awaitable["asyncpg.Connection[Any]"]]


class Watch:
    """One appliance's overload."""

    def __init__(self, state: State, polling: Sequence[str], options: HealthOptions, connect: Connect) -> None:
        """``polling``: the collectors that do; ``connect``: to the database, as the login for maintenance."""
        self._spool = state.spool
        self._polling = polling
        self._options = options
        self._connect = connect
        self._pressure = Pressure()
        self._unsaid: deque[tuple[datetime, str, dict[str, Any]]] = deque()
        self._more = asyncio.Event()
        self.overload = Overload()

    async def run(self, told: Callable[[Look], None], reachable: Callable[[], bool]) -> None:
        """Look until cancelled; ``told`` takes each look."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._record())
            while True:
                seen = await asyncio.to_thread(look, self._spool, self._pressure, self._polling, self._options)
                self.take(seen, reachable())
                told(seen)
                await asyncio.sleep(_LOOK_SECONDS)

    def take(self, seen: Look, reachable: bool) -> None:
        """A look; what begins or ends with it is said, and waits to be written down."""
        before = self.overload.since
        changed = self.overload.take(seen, reachable)
        since = self.overload.since
        metrics.overloaded.set(since is not None)
        if not changed:
            return
        if since is not None:
            log.warning("ingest is overloaded: %s", figures(seen))
            self._say(since, _BEGUN, figures(seen))
        elif before is not None:
            lasted = seen.at - before
            log.info("ingest is overloaded no more, after %.0f s", lasted)
            self._say(seen.at, _ENDED, {"seconds": round(lasted, 1), **figures(self.overload.worst)})

    def _say(self, at: float, what: str, detail: dict[str, Any]) -> None:
        self._unsaid.append((datetime.fromtimestamp(at, UTC), what, detail))
        self._more.set()

    async def _record(self) -> None:
        """What was said goes into the database as events, in order, however long that is away."""
        resumed = False
        while True:
            try:
                connection = await self._connect()
                try:
                    if not resumed:
                        await self._resume(connection)
                        resumed = True
                    while self._unsaid:
                        at, what, detail = self._unsaid[0]
                        await connection.execute(load("maintenance")["overload"], at, what, json.dumps(detail))
                        self._unsaid.popleft()
                finally:
                    connection.terminate()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log.debug("overload: not on record yet: %s", error)
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            self._more.clear()
            await self._more.wait()

    async def _resume(self, connection: asyncpg.Connection[Any]) -> None:
        """One that has no end on record goes on, until it is seen to be over: this process was away meanwhile."""
        newest = await connection.fetchrow(load("maintenance")["newest_overload"])
        if newest is None or newest["text"] != _BEGUN:
            return
        if self._unsaid and self._unsaid[0][1] == _BEGUN:
            self._unsaid.popleft()
        self.overload.resume(newest["time"].timestamp())
