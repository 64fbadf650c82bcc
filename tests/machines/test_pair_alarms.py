"""Alarms of a redundant pair: what an operator did at one member holds at both, also after a take-over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from core.config.model import AlarmOptions
from ingest.alarms import command_socket
from ingest.alarms.evaluator import AlarmEvaluator
from ingest.alarms.operator_api import AlarmCommand, OperatorApi
from ingest.spool.audit import Action, Person, record
from tests.alarms import IDS, SOURCE
from tests.database import Database, rows
from tests.samples import batch
from tests.users import recorded_actions
from tests.waiting import until
from tests.writer_pair import Member, add_plant, holds, pair

NOTICES = "SELECT count(*) FROM plant.alarm_notice WHERE kind = 'alarm'"


@pytest.fixture(autouse=True)
async def registered_channels(owner: asyncpg.Connection) -> None:
    await add_plant(owner, "plc", channels=list(IDS.values()))


@dataclass
class Collector:
    """Evaluates what a member receives; an operator may command it."""

    evaluator: AlarmEvaluator
    operator: OperatorApi

    async def sample(self, at: int, value: float) -> None:
        await self.evaluator.append(batch([(1, at, value, 0)]))

    def state(self, limit: str = "hi") -> str:
        [state] = [a["state"] for a in self.operator.alarms() if (a["channel"], a["limit"]) == ("a/level", limit)]
        return str(state)

    async def until_state(self, state: str) -> None:
        await until(lambda: self.state() == state, show=self.operator.alarms)


@asynccontextmanager
async def collecting(member: Member) -> AsyncIterator[Collector]:
    evaluator = AlarmEvaluator(SOURCE, IDS, 1, member.spool)
    operator = OperatorApi(lambda: [evaluator], AlarmOptions())
    async with command_socket.serve(member.folder.parent / "run" / "opcua.alarms", operator):
        yield Collector(evaluator, operator)


async def test_what_an_operator_did_at_one_member_holds_at_both(database: Database, tmp_path: Path) -> None:
    async with (
        pair(database, tmp_path) as (plant, first, second),
        collecting(first) as one,
        collecting(second) as two,
    ):
        plant.stopping = True
        for collector in (one, two):
            await collector.sample(1, 8.5)
        await two.operator.execute(AlarmCommand("ack", "a/level", "kim"))  # at the standby
        await one.until_state("acknowledged_active")
        await one.operator.execute(AlarmCommand("shelve", "a/level", "lee", "hi", "calibration", 60.0))
        await two.until_state("shelved")

        assert await rows(database, NOTICES) == [(1,)]
        states = "SELECT text, detail ->> 'who' FROM plant.event WHERE type = 'alarm' ORDER BY time"
        expected = [("unacknowledged_active", None), ("acknowledged_active", "kim"), ("shelved", "lee")]
        assert await rows(database, states) == expected

        first.kill()
        await until(lambda: holds(database, 2))
        await two.sample(2, 8.6)
        await two.operator.execute(AlarmCommand("unshelve", "a/level", "lee", "hi"))
        await until(lambda: _has(database, NOTICES, 2))
        assert [text for text, _ in await rows(database, states)] == [
            *(text for text, _ in expected),
            "unacknowledged_active",
        ]


async def test_alarm_that_one_member_alone_has_read_is_not_raised_again(database: Database, tmp_path: Path) -> None:
    """As of a device that only the member that writes polls; a collector that was just started gets the state, too."""
    async with pair(database, tmp_path) as (plant, first, second):
        plant.stopping = True
        async with collecting(first) as one:
            await one.sample(1, 8.5)
            await until(lambda: _has(database, NOTICES, 1))
            for _ in range(2):
                async with collecting(second) as two:
                    await two.until_state("unacknowledged_active")
                    await second.spool.note({"alarm:1": None})
            first.kill()
            await until(lambda: holds(database, 2))
            async with collecting(second) as two:
                await two.until_state("unacknowledged_active")
                await two.sample(5, 8.6)
                await two.sample(6, 5.0)
                await two.until_state("return_to_normal_unacknowledged")
                await until(lambda: _has(database, "SELECT count(*) FROM plant.event WHERE type = 'alarm'", 2))
                assert await rows(database, NOTICES) == [(1,)]


async def test_actions_of_people_at_both_members_are_recorded_once(database: Database, tmp_path: Path) -> None:
    recorded = "SELECT count(*) FROM plant.event WHERE type = 'user_action'"
    async with pair(database, tmp_path) as (plant, first, second):
        plant.stopping = True
        for member, name in ((first, "anna"), (second, "otto")):
            person = Person(name, "engineer", None, "here")
            await asyncio.to_thread(record, member.folder.parent, person, Action("apply", {}, "done"))
        await until(lambda: _has(database, recorded, 2))
        await until(lambda: recorded_actions(second.folder.parent) == [])
        assert await holds(database, 1)  # nobody was missing anything
        first.kill()
        await until(lambda: holds(database, 2))
        await asyncio.to_thread(record, second.folder.parent, person, Action("down", {}, "done"))
        await until(lambda: _has(database, recorded, 3))


async def _has(database: Database, query: str, number: int) -> bool:
    return await rows(database, query) == [(number,)]
