"""The process ``notifier``: turns notices in the database into messages and delivers them, across restarts.

A message is stored before it is sent, and its delivery is stored afterwards. So a message that was delivered just
before a kill is sent again, with the same id.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from core import metrics
from core.backoff import exponential, jittered
from core.config.model import NotifyOptions
from core.config.settings import NotifierSettings
from core.database import FAILURES, connect_writer
from core.errors import DeliveryError
from core.installation import installation_of
from core.paths import State
from core.process import health_page
from core.process.entry import run_until
from core.timestamps import now_us
from ops.notifier.messages import Message, Notice, decide
from ops.notifier.receivers import Receiver, StoredMessage, receivers
from schema.queries import load

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
_RECONNECT_SECONDS = 5.0  # before reconnecting to the database
_BACKOFF = (1.0, 300.0)  # s, first and longest wait before a message is sent again
_BATCH = 50  # messages of one query
_STATEMENT_SECONDS = 30.0


class Notifier:
    """The notifications of one installation (None: all)."""

    def __init__(
        self,
        plant: str,
        options: NotifyOptions,
        dsn: str,
        receivers: list[Receiver],
        installation: UUID | None = None,
        member: int | None = None,
    ) -> None:
        """``member``: number in a redundant pair, of which the member that writes sends; None: there is no pair."""
        self._member = member
        self._plant = plant
        self._installation = installation
        self._options = options
        self._dsn = dsn
        self._receivers = receivers
        self.database = "not yet connected"
        self.failing: dict[str, str] = {}  # target → error of its last attempt
        self.waiting: dict[str, int] = {receiver.target: 0 for receiver in receivers}
        self.delivered = 0  # since start

    async def run(self) -> None:
        """Create and deliver messages until cancelled. A slow receiver does not delay others."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run_forever(self._make_messages))
            for receiver in self._receivers:
                tasks.create_task(self._run_forever(lambda c, r=receiver: self._deliver(c, r)))  # type: ignore[misc]

    async def _run_forever(self, work: Callable[[asyncpg.Connection[Any]], Awaitable[None]]) -> None:
        while True:
            try:
                connection = await connect_writer(self._dsn, _STATEMENT_SECONDS, "plantlog notifier")
                try:
                    self.database = "connected"
                    while True:
                        if await self._is_sender(connection):
                            await work(connection)
                        await asyncio.sleep(_POLL_SECONDS)
                finally:
                    connection.terminate()
            except FAILURES as error:
                self.database = f"unreachable: {type(error).__name__}: {error}"
                log.warning("database: %s", self.database)
                await asyncio.sleep(jittered(_RECONNECT_SECONDS))

    async def _is_sender(self, connection: asyncpg.Connection[Any]) -> bool:
        if self._member is None:
            return True
        lease = await connection.fetchrow(load("lease")["select_lease"], self._installation)
        return lease is not None and lease["member"] == self._member

    async def _make_messages(self, connection: asyncpg.Connection[Any]) -> None:
        """Create messages from queued notices, in one transaction."""
        queries = load("alarms")
        async with connection.transaction():
            await connection.execute(queries["lock_notifier"])
            notices = [
                Notice(**row)
                for row in await connection.fetch(
                    queries["select_pending_notices"],
                    self._installation,
                    self._options.flood_window,
                    self._options.flood,
                )
            ]
            if notices:
                recent = await connection.fetchrow(
                    queries["select_recent_alarms"], self._options.flood_window, self._installation
                )
                assert recent is not None
                decision = decide(
                    notices, recent["sent"], recent["flood_at"], recent["now"], self._plant, self._options
                )
                for message in decision.messages:
                    await self._queue_message(connection, message)
                for reason, unsent in decision.unsent.items():
                    await connection.execute(queries["update_notices"], *_keys(unsent), reason, None)
            waiting = {
                row["target"]: row["n"]
                for row in await connection.fetch(queries["count_undelivered"], self._installation)
            }
        for target in self.waiting:
            self.waiting[target] = waiting.get(target, 0)
            metrics.notifications_waiting.labels(target=target).set(self.waiting[target])

    async def _queue_message(self, connection: asyncpg.Connection[Any], message: Message) -> None:
        queries = load("alarms")
        body = json.dumps(dict(message.body))
        targets = [receiver.target for receiver in self._receivers]
        number = await connection.fetchval(
            queries["insert_notification"], message.kind, message.subject, body, targets, self._installation
        )
        await connection.execute(queries["update_notices"], *_keys(message.notices), "sent", number)
        log.info("new message %s: %s", number, message.subject)

    async def _deliver(self, connection: asyncpg.Connection[Any], receiver: Receiver) -> None:
        """Deliver due messages to one receiver; after a failure the rest waits for the next poll."""
        queries = load("alarms")
        due = await connection.fetch(queries["select_due_deliveries"], receiver.target, _BATCH, self._installation)
        for row in due:
            message = StoredMessage(row["id"], row["created_at"], row["kind"], row["subject"], json.loads(row["body"]))
            try:
                await receiver.deliver(message)
            except DeliveryError as error:
                age = now_us() / 1e6 - message.created_at.timestamp()
                wait = None if age > self._options.max_age else jittered(exponential(row["attempts"] + 1, *_BACKOFF))
                log.warning(
                    "cannot send by %s: %s: %s; %s", receiver.target, message.subject, error, _describe_retry(wait)
                )
                self.failing[receiver.target] = str(error)
                metrics.notification_failures.labels(target=receiver.target).inc()
                await connection.execute(queries["mark_failed"], message.id, receiver.target, str(error), wait)
                return
            await connection.execute(queries["mark_delivered"], message.id, receiver.target)
            self.failing.pop(receiver.target, None)
            self.delivered += 1
            metrics.notifications.labels(target=receiver.target).inc()


def _describe_retry(wait: float | None) -> str:
    return "giving up" if wait is None else f"retrying in {wait:.1f} s"


def _keys(notices: list[Notice] | tuple[Notice, ...]) -> tuple[list[Any], list[int]]:
    return [notice.time for notice in notices], [notice.event_id for notice in notices]


async def run_notifier(settings: NotifierSettings, state: Path, stop: asyncio.Event) -> None:
    """Send notifications until ``stop``. Raises OperationError if a secret cannot be read.

    Without ``[notify]``, for which `up` does not start it, it idles, as a container that exits is restarted again and
    again.
    """
    since = now_us()
    if settings.notify is None:
        log.warning("notifications are disabled: the configuration has no [notify] table")

        async def idle() -> dict[str, Any]:
            return {"process": "notifier", "ready": True, "alive": True, "since": since, "note": "no [notify]"}

        async with health_page.serve("notifier", settings, idle, state):
            await stop.wait()
        return
    options = settings.notify
    dsn, installation = State(state).dsn("ingest"), installation_of(state)
    notifier = Notifier(settings.name, options, dsn, receivers(options), installation, settings.member)

    async def report() -> dict[str, Any]:
        return {
            "process": "notifier",
            "ready": notifier.database == "connected" and not notifier.failing,
            "alive": True,
            "since": since,
            "database": notifier.database,
            "failing": notifier.failing,
            "waiting": notifier.waiting,
            "delivered": notifier.delivered,
        }

    async with health_page.serve("notifier", settings, report, state):
        await run_until(stop, notifier.run())
