"""Measures overload once a second, logs it, and records its start and end as events."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import asyncpg

from core import metrics
from core.config.model import HealthOptions
from core.database import FAILURES
from core.installation import installation_of
from core.paths import State
from ops.maintenance.overload.measure import Pressure, measure
from ops.maintenance.overload.state import Indicators, Overload, to_json
from schema.queries import load

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
_RETRY_SECONDS = 5.0  # before an event that could not be written is tried again
_OVERLOADED, _GOOD = "overloaded", "good"

Connect: TypeAlias = Callable[[], Awaitable["asyncpg.Connection[Any]"]]


class OverloadMonitor:
    """Monitor of an appliance's overload."""

    def __init__(self, state: State, polling: Sequence[str], options: HealthOptions, connect: Connect) -> None:
        """``polling``: the collectors that do; ``connect``: to the database, as the login for maintenance."""
        self._spool = state.spool
        self._installation = installation_of(state.root)
        self._polling = polling
        self._options = options
        self._connect = connect
        self._pressure = Pressure()
        self._pending_events: deque[tuple[datetime, str, dict[str, Any]]] = deque()
        self._event_queued = asyncio.Event()
        self.overload = Overload()

    async def run(self, on_indicators: Callable[[Indicators], None], reachable: Callable[[], bool]) -> None:
        """Measure until cancelled; ``on_indicators`` gets each measurement."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._record())
            while True:
                indicators = await asyncio.to_thread(measure, self._spool, self._pressure, self._polling, self._options)
                self.update(indicators, reachable())
                on_indicators(indicators)
                await asyncio.sleep(_POLL_SECONDS)

    def update(self, indicators: Indicators, reachable: bool) -> None:
        """Take a measurement: log an overload that begins or ends with it, and queue its event."""
        before = self.overload.since
        changed = self.overload.update(indicators, reachable)
        since = self.overload.since
        metrics.overloaded.set(since is not None)
        if not changed:
            return
        if since is not None:
            measured = ", ".join(f"{name} {value}" for name, value in to_json(indicators).items())
            log.warning("ingest is overloaded: %s", measured)
            self._queue_event(since, _OVERLOADED, to_json(indicators))
        elif before is not None:
            lasted = indicators.at - before
            log.info("ingest is no longer overloaded, after %.0f s", lasted)
            self._queue_event(indicators.at, _GOOD, {"seconds": round(lasted, 1), **to_json(self.overload.worst)})

    def _queue_event(self, at: float, text: str, detail: dict[str, Any]) -> None:
        self._pending_events.append((datetime.fromtimestamp(at, UTC), text, detail))
        self._event_queued.set()

    async def _record(self) -> None:
        """Record messages in the database as events, in order, however long that is away."""
        resumed = False
        while True:
            try:
                connection = await self._connect()
                try:
                    if not resumed:
                        await self._resume(connection)
                        resumed = True
                    while self._pending_events:
                        at, text, detail = self._pending_events[0]
                        await connection.execute(
                            load("maintenance")["record_overload"], at, text, self._to_json(detail)
                        )
                        self._pending_events.popleft()
                finally:
                    connection.terminate()
            except FAILURES as error:
                log.debug("overload event not recorded yet: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            self._event_queued.clear()
            await self._event_queued.wait()

    def _to_json(self, detail: dict[str, Any]) -> str:
        owner = {} if self._installation is None else {"installation": str(self._installation)}
        return json.dumps(detail | owner)

    async def _resume(self, connection: asyncpg.Connection[Any]) -> None:
        """Resume an overload that has no end on record until it is over: this process was away meanwhile."""
        newest = await connection.fetchrow(load("maintenance")["select_newest_overload"], str(self._installation))
        if newest is None or newest["text"] != _OVERLOADED:
            return
        if self._pending_events and self._pending_events[0][1] == _OVERLOADED:
            self._pending_events.popleft()
        self.overload.resume(newest["time"].timestamp())
