"""People are told: over real HTTP and SMTP, at least once, whatever is away, restarts or is killed."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from aiohttp import ClientError, ClientSession, web

from core.batch import Event
from core.config.model import NotifyOptions
from ingest.writer.transaction.rows import write_alarms
from ops.notifier.process import Notifier
from ops.notifier.receivers import receivers
from schema.queries import load
from tests.config_in_force import activate
from tests.database import Database, add_sources, connected
from tests.ports import free_ports
from tests.samples import T0
from tests.waiting import until

SECRET = "a secret of the webhook"


class Hook:
    """An HTTP server that takes messages, or behaves otherwise."""

    def __init__(self) -> None:
        self.port = free_ports(1)  # where it comes back to
        self.got: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.status = 200
        self.requests = 0
        self.silent_from: int | None = None  # this request and all after it get no answer
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.add_routes([web.post("/alarms", self._take)])
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _take(self, request: web.Request) -> web.Response:
        self.requests += 1
        body = await request.read()
        if self.status == 200:
            self.bodies.append(body)
            self.headers.append(dict(request.headers))
            self.got.append(json.loads(body))
        if self.silent_from is not None and self.requests >= self.silent_from:
            await asyncio.Event().wait()  # until who asks is gone
        return web.Response(status=self.status)

    def ids(self) -> set[str]:
        return {message["id"] for message in self.got}


@pytest.fixture
async def hook() -> AsyncIterator[Hook]:
    server = Hook()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def ingest(owner: asyncpg.Connection, ingest: asyncpg.Connection) -> asyncpg.Connection:
    await add_sources(owner, "plc", kind="modbus")
    await owner.execute(
        "INSERT INTO plant.channel (id, name, source_id, address, kind, unit) OVERRIDING SYSTEM VALUE"
        " SELECT i, 'area/unit' || i % 5 || '/c' || i, 1, '', 'analog', 'bar' FROM generate_series(0, 999) i"
    )
    return ingest


def alarm(
    channel: int, at: int = 0, state: str = "unacknowledged_active", action: str = "raised", **more: Any
) -> Event:
    time = T0 + at
    detail = {
        "limit": "hi",
        "action": action,
        "state": state,
        "active": action == "raised",
        "since": time,
        "value": 9.5,
        "threshold": 8.0,
        "priority": "medium",
        "revision": time,
        **more,
    }
    return Event("alarm", time, channel, text=state, detail=detail)


async def happen(connection: asyncpg.Connection[Any], *events: Event) -> None:
    """Write alarms like the writer."""
    async with connection.transaction():
        await write_alarms(connection, [(1, event) for event in events])


@asynccontextmanager
async def notifying(database: Database, options: NotifyOptions) -> AsyncIterator[Notifier]:
    notifier = Notifier("demo", options, database.ingest_dsn, receivers(options))
    running = asyncio.create_task(notifier.run())
    try:
        yield notifier
    finally:
        running.cancel()
        await asyncio.wait((running,))
        if not running.cancelled() and (error := running.exception()) is not None:
            raise error


def to(hook: Hook, **more: Any) -> NotifyOptions:
    return NotifyOptions(webhook=f"http://127.0.0.1:{hook.port}/alarms", **more)


async def test_a_message_has_an_id_and_a_signature_and_is_on_record(
    database: Database, ingest: asyncpg.Connection[Any], hook: Hook, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    await happen(ingest, alarm(7))
    await happen(ingest, alarm(7))  # a replay
    async with notifying(database, to(hook, webhook_secret_file=tmp_path / "secret")):
        await until(lambda: recorded(ingest, 1))
    (message,) = hook.got
    assert (message["kind"], message["alarm"]["channel"], message["alarm"]["value"]) == ("alarm", "area/unit2/c7", 9.5)
    digest = hmac.new(SECRET.encode(), hook.bodies[0], hashlib.sha256).hexdigest()
    assert hook.headers[0]["X-Plantlog-Signature"] == f"sha256={digest}"
    assert hook.headers[0]["X-Plantlog-Id"] == message["id"]
    assert hook.requests == 1


async def test_messages_older_than_a_year_are_deleted(
    database: Database, ingest: asyncpg.Connection[Any], hook: Hook
) -> None:
    await ingest.execute(
        "INSERT INTO plant.notification (created_at, kind, subject, body)"
        " SELECT now() - days * INTERVAL '1 day', 'alarm', days::text, '{}' FROM unnest(ARRAY[364, 366]) AS d (days)"
    )
    await happen(ingest, alarm(7))
    async with notifying(database, to(hook)):
        await until(lambda: recorded(ingest, 1))
    kept = await ingest.fetch("SELECT m.subject FROM plant.notification AS m ORDER BY m.created_at")
    assert [row["subject"] for row in kept][:-1] == ["364"]


async def recorded(connection: asyncpg.Connection[Any], deliveries: int) -> bool:
    query = "SELECT count(*) FROM plant.notification_delivery WHERE delivered_at IS NOT NULL"
    return bool(await connection.fetchval(query) == deliveries)


async def test_unreachable_receiver_gets_the_message_later(
    database: Database, ingest: asyncpg.Connection[Any], hook: Hook
) -> None:
    await hook.stop()
    await happen(ingest, *(alarm(channel) for channel in range(5)))
    async with notifying(database, to(hook)) as first:
        await until(lambda: "webhook" in first.failing)
    await happen(ingest, alarm(5))  # while no notifier runs
    async with notifying(database, to(hook)) as second:
        await until(lambda: "webhook" in second.failing and second.waiting["webhook"] == 6)
        hook.status = 503
        await hook.start()
        await until(lambda: hook.requests >= 2)
        hook.status = 200
        await until(lambda: recorded(ingest, 6))
        assert not second.failing
    assert {message["alarm"]["channel"] for message in hook.got} == {f"area/unit{c % 5}/c{c}" for c in range(6)}
    assert len(hook.got) == len(hook.ids()) == 6
    assert await ingest.fetchval("SELECT max(attempts) FROM plant.notification_delivery") > 1


async def test_flood_is_one_message_and_the_rest_is_held_back(
    database: Database, ingest: asyncpg.Connection[Any], hook: Hook
) -> None:
    await happen(ingest, *(alarm(channel, -channel) for channel in range(500)))
    async with notifying(database, to(hook)):
        await until(lambda: recorded(ingest, 1))
        await happen(ingest, *(alarm(channel) for channel in range(500, 520)))
        await happen(ingest, alarm(600, state="shelved"), alarm(601, priority="low"))
        (flood,) = hook.got
        assert (flood["kind"], flood["alarms"]) == ("flood", 500)
        assert flood["first_out"]["channel"] == "area/unit4/c499"
        assert flood["by_unit"] == {f"area/unit{unit}": 100 for unit in range(5)}
        await age(database)
        await until(lambda: recorded(ingest, 2))
    assert [(message["kind"], message["alarms"]) for message in hook.got] == [("flood", 500), ("flood", 21)]
    outcomes = await ingest.fetch("SELECT outcome, count(*)::int AS n FROM plant.alarm_notice GROUP BY outcome")
    assert {row["outcome"]: row["n"] for row in outcomes} == {"sent": 521}


async def age(database: Database) -> None:
    """Eleven minutes pass for what was queued and sent."""
    async with connected(database.owner_dsn) as owner, owner.transaction():
        await owner.execute("UPDATE plant.notification SET created_at = created_at - INTERVAL '11 minutes'")
        await owner.execute("UPDATE plant.alarm_notice SET queued_at = queued_at - INTERVAL '11 minutes'")


async def test_alarm_that_chatters_is_summed_up_and_others_get_through(
    database: Database, ingest: asyncpg.Connection[Any], hook: Hook
) -> None:
    def raised(channel: int, numbers: range, seconds: int = 25) -> list[Event]:
        """At these seconds, and returned in between: less than three times a minute does not chatter."""
        return [
            alarm(channel, n * seconds * 1_000_000 + (action == "returned"), state, action)
            for n in numbers
            for state, action in (("unacknowledged_active", "raised"), ("return_to_normal_unacknowledged", "returned"))
        ]

    await happen(ingest, *raised(7, range(29)), *raised(8, range(3), 31))
    async with notifying(database, to(hook, returns=False)):
        await until(lambda: recorded(ingest, 4))
        assert sorted(message["subject"] for message in hook.got) == [
            "[demo] medium: area/unit2/c7 above its high limit × 29",
            *["[demo] medium: area/unit3/c8 above its high limit"] * 3,
        ]
        await happen(ingest, *raised(7, range(29, 50)), *(alarm(channel) for channel in range(20, 25)))
        await until(lambda: recorded(ingest, 9))
        assert {message["kind"] for message in hook.got} == {"alarm"}
        held = "SELECT count(*) FROM plant.alarm_notice WHERE outcome IS NULL AND channel_id = 7 AND kind = 'alarm'"
        assert await ingest.fetchval(held) == 21
        await age(database)
        await until(lambda: recorded(ingest, 10))
    assert hook.got[-1]["alarm"]["channel"] == "area/unit2/c7"
    assert hook.got[-1]["alarm"]["times"] == 21


async def test_alarms_from_before_notifications_were_enabled_are_not_sent(
    database: Database, ingest: asyncpg.Connection[Any], hook: Hook
) -> None:
    queries, own = load("installation"), uuid4()
    async with connected(database.owner_dsn) as owner:
        await owner.execute(queries["upsert_installation"], own, "demo", False, None)
        await owner.execute(queries["adopt"], own)
        await owner.execute(queries["update_notifies_from"], own, False)
        await happen(ingest, alarm(1))
        await owner.execute(queries["update_notifies_from"], own, True)
        await happen(ingest, alarm(2))
        await owner.execute(queries["update_notifies_from"], own, True)  # the next `up` changes nothing
        async with notifying(database, to(hook)):
            await until(lambda: recorded(ingest, 1))
            await owner.execute(queries["update_notifies_from"], own, False)
            await happen(ingest, alarm(3))
            await owner.execute(queries["update_notifies_from"], own, True)
            await happen(ingest, alarm(4))
            await until(lambda: recorded(ingest, 2))
    assert [message["alarm"]["channel"][-2:] for message in hook.got] == ["c2", "c4"]
    outcomes = "SELECT n.outcome FROM plant.alarm_notice AS n ORDER BY n.channel_id"
    assert [row["outcome"] for row in await ingest.fetch(outcomes)][::2] == ["notifications were disabled"] * 2


async def test_alarm_shelved_meanwhile_is_not_sent(
    database: Database, ingest: asyncpg.Connection[Any], hook: Hook
) -> None:
    await happen(ingest, alarm(1), alarm(2), alarm(3))
    await happen(ingest, alarm(1, 1, state="shelved", action="shelved"))
    await happen(ingest, alarm(2, 1, state="return_to_normal_unacknowledged", action="returned"))
    async with notifying(database, to(hook, returns=True)):
        await until(lambda: recorded(ingest, 3))
    assert sorted((m["kind"], m["alarm"]["channel"][-2:]) for m in hook.got) == [
        ("alarm", "c2"), ("alarm", "c3"), ("return", "c2"),
    ]  # fmt: skip
    why = await ingest.fetchval("SELECT outcome FROM plant.alarm_notice WHERE channel_id = 1")
    assert why == "shelved"


@pytest.mark.slow
async def test_notifier_killed_before_recording_sends_again(
    database: Database, ingest: asyncpg.Connection[Any], hook: Hook, tmp_path: Path
) -> None:
    notify = f'[notify]\nwebhook = "http://127.0.0.1:{hook.port}/alarms"\nflood = 100\n'
    command = configured(tmp_path, notify, free_ports(8), database.ingest_dsn)
    await happen(ingest, *(alarm(channel) for channel in range(20)))
    for count in (3, 9):
        hook.silent_from = count
        process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        await until(lambda count=count: hook.requests >= count)
        process.kill()
        assert await process.wait() == -signal.SIGKILL
    assert not await recorded(ingest, 20)
    hook.silent_from = None
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    await until(lambda: recorded(ingest, 20))
    process.terminate()
    assert await process.wait() == 0
    assert len(hook.ids()) == 20, "each was sent, and none is another one when it comes again"
    assert {m["alarm"]["channel"] for m in hook.got} == {f"area/unit{c % 5}/c{c}" for c in range(20)}


def configured(folder: Path, notify: str, port: int, dsn: str) -> tuple[str, ...]:
    """The command of a notifier."""
    (folder / "tags.csv").write_text("name,address\na,holding:0\n")
    (folder / "plant.toml").write_text(
        f'[plant]\nname = "demo"\n[health]\nport = {port}\n{notify}'
        '[[source]]\nname = "s"\nkind = "modbus"\naddress = "tcp://h:1"\ntags = "tags.csv"\n'
    )
    (folder / "secrets").mkdir()
    (folder / "secrets" / "ingest.dsn").write_text(dsn)
    activate(folder, folder / "plant.toml")
    return (sys.executable, "-m", "ops.notifier", "--state", str(folder))


async def test_notifier_without_receivers_says_so_and_waits(database: Database, tmp_path: Path) -> None:
    """A container that ended would be started for ever."""
    port = free_ports(8)
    command = configured(tmp_path, "", port, database.ingest_dsn)
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)

    async def healthy() -> bool:
        try:
            async with ClientSession() as http, http.get(f"http://127.0.0.1:{port + 6}/health") as answer:
                body = await answer.json()
        except ClientError:
            return False
        return answer.status == 200 and body["note"] == "no [notify]"

    await until(healthy)
    assert process.returncode is None
    process.terminate()
    assert await process.wait() == 0


async def test_an_installation_sends_its_own_messages_only(
    database: Database, owner: asyncpg.Connection[Any], ingest: asyncpg.Connection[Any], hook: Hook
) -> None:
    ids = [uuid4(), uuid4()]
    for number, installation in enumerate(ids):
        query = "INSERT INTO plant.installation (id, plant, class_prefix, number) VALUES ($1, 'p', $2, $3)"
        await owner.execute(query, installation, str(number), number + 1)
    await owner.execute("UPDATE plant.source SET installation_id = $1", ids[1])
    options = to(hook)
    await happen(ingest, alarm(7))
    for installation, sent in zip(ids, (0, 1), strict=True):
        notifier = Notifier("demo", options, database.ingest_dsn, receivers(options), installation)
        async with connected(database.ingest_dsn) as connection:
            await notifier._make_messages(connection)
            assert await connection.fetchval("SELECT count(*) FROM plant.notification") == sent
    for installation, delivered in zip(ids, (0, 1), strict=True):
        notifier = Notifier("demo", options, database.ingest_dsn, receivers(options), installation)
        async with connected(database.ingest_dsn) as connection:
            await notifier._deliver(connection, notifier._receivers[0])
        assert (notifier.delivered, len(hook.got)) == (delivered, delivered)
