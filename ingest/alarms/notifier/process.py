"""The process ``notifier``: what waits in the database becomes messages, and these are delivered, whatever restarts.

A message is on record before it is sent and what a receiver took is on record after it. So one that was taken just
before this process was killed is sent again, with the same id.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from ingest import health, metrics
from ingest.alarms.notifier.messages import Message, Notice, decide
from ingest.alarms.notifier.receivers import Letter, Receiver, receivers
from ingest.batch import now_us
from ingest.config.model import NotifyOptions, Plant
from ingest.errors import DeliveryError
from ingest.writer.connection import connect
from schema.queries import load

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_AGAIN_SECONDS = 5.0  # before a database that failed is asked again
_BACKOFF = (1.0, 300.0)  # s, first and longest wait before a message is sent again
_AT_ONCE = 50  # messages of one look
_STATEMENT_SECONDS = 30.0
_TRIM_LOOKS = 3600


class Notifier:
    """One plant's messages."""

    def __init__(self, plant: str, options: NotifyOptions, dsn: str, to: list[Receiver]) -> None:
        self._plant = plant
        self._options = options
        self._dsn = dsn
        self._receivers = to
        self.database = "not yet connected"
        self.failing: dict[str, str] = {}  # target → why its last attempt failed
        self.waiting: dict[str, int] = {receiver.target: 0 for receiver in to}
        self.delivered = 0  # since start

    async def run(self) -> None:
        """Make messages and deliver them until cancelled; a receiver that is slow delays no other."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._forever(self._make))
            for receiver in self._receivers:
                tasks.create_task(self._forever(lambda c, r=receiver: self._deliver(c, r)))  # type: ignore[misc]

    async def _forever(self, do: Callable[[asyncpg.Connection[Any]], Awaitable[None]]) -> None:
        while True:
            try:
                connection = await connect(self._dsn, _STATEMENT_SECONDS)
                try:
                    await connection.execute(load("alarms")["session"])
                    self.database = "connected"
                    while True:
                        await do(connection)
                        await asyncio.sleep(_LOOK_SECONDS)
                finally:
                    connection.terminate()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                self.database = f"unreachable: {type(error).__name__}: {error}"
                log.warning("database: %s", self.database)
                await asyncio.sleep(_AGAIN_SECONDS * random.uniform(0.5, 1.0))

    async def _make(self, connection: asyncpg.Connection[Any]) -> None:
        """Make messages of what waits, in one transaction."""
        queries = load("alarms")
        async with connection.transaction():
            await connection.execute(queries["lock"])
            notices = [_notice(row) for row in await connection.fetch(queries["waiting"])]
            if notices:
                recent = await connection.fetchrow(queries["recent"], self._options.flood_window)
                assert recent is not None
                decided = decide(notices, recent["sent"], recent["flood_at"], recent["now"], self._plant, self._options)
                for message in decided.messages:
                    await self._keep(connection, message)
                for why, unsent in decided.unsent.items():
                    await connection.execute(queries["decided"], *_keys(unsent), why, None)
            waiting = {row["target"]: row["n"] for row in await connection.fetch(queries["undelivered"])}
        for target in self.waiting:
            self.waiting[target] = waiting.get(target, 0)
            metrics.notifications_waiting.labels(target=target).set(self.waiting[target])

    async def _keep(self, connection: asyncpg.Connection[Any], message: Message) -> None:
        queries = load("alarms")
        body = json.dumps(dict(message.body))
        targets = [receiver.target for receiver in self._receivers]
        number = await connection.fetchval(queries["message"], message.kind, message.subject, body, targets)
        await connection.execute(queries["decided"], *_keys(message.notices), "sent", number)
        log.info("message %s: %s", number, message.subject)

    async def _deliver(self, connection: asyncpg.Connection[Any], receiver: Receiver) -> None:
        """Deliver what is due to one receiver; after a failure the rest waits for the next look."""
        queries = load("alarms")
        for row in await connection.fetch(queries["due"], receiver.target, _AT_ONCE):
            letter = Letter(row["id"], row["created_at"], row["kind"], row["subject"], json.loads(row["body"]))
            try:
                await receiver.deliver(letter)
            except DeliveryError as error:
                age = now_us() / 1e6 - letter.created_at.timestamp()
                wait = None if age > self._options.max_age else backoff(row["attempts"])
                log.warning("%s: %s: %s; %s", receiver.target, letter.subject, error, _next(wait))
                self.failing[receiver.target] = str(error)
                metrics.notification_failures.labels(target=receiver.target).inc()
                await connection.execute(queries["failed"], letter.id, receiver.target, str(error), wait)
                return
            await connection.execute(queries["delivered"], letter.id, receiver.target)
            self.failing.pop(receiver.target, None)
            self.delivered += 1
            metrics.notifications.labels(target=receiver.target).inc()


def backoff(attempts: int) -> float:
    """Seconds before the next attempt: doubling, with jitter."""
    least, most = _BACKOFF
    return min(most, least * 2.0 ** min(attempts, 30)) * random.uniform(0.5, 1.0)


def _next(wait: float | None) -> str:
    return "given up" if wait is None else f"tried again in {wait:.1f} s"


def _notice(row: asyncpg.Record) -> Notice:
    return Notice(
        row["event_time"],
        row["event_id"],
        row["queued_at"],
        row["kind"],
        row["channel"],
        row["plant_unit"],
        row["unit"],
        row["limit_name"],
        row["priority"],
        row["value"],
        row["threshold"],
        row["late"],
        row["state_now"],
    )


def _keys(notices: list[Notice] | tuple[Notice, ...]) -> tuple[list[Any], list[int]]:
    return [notice.time for notice in notices], [notice.event_id for notice in notices]


async def run(plant: Plant, dsn: str, port: int, stop: asyncio.Event) -> None:
    """Tell people until ``stop``. Raises OperationError where a secret can't be read.

    Without ``[notify]`` it only says so: `up` does not start it then, but a container that ended would be started again
    and again.
    """
    since = now_us()
    if plant.notify is None:
        log.warning("nobody is told of alarms: the configuration has no [notify]")

        async def idle() -> dict[str, Any]:
            return {"process": "notifier", "ready": True, "alive": True, "since": since, "note": "no [notify]"}

        async with health.serve(plant.health.host, port, idle):
            await stop.wait()
        return
    notifier = Notifier(plant.name, plant.notify, dsn, receivers(plant.notify))

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

    async with health.serve(plant.health.host, port, report):
        telling = asyncio.create_task(notifier.run())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((telling, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if telling.done():
            telling.result()
        telling.cancel()
        await asyncio.wait((telling,))
