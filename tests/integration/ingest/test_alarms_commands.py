"""Operators' commands about alarms, and the lists that they are shown."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

from core.config.model import AlarmOptions
from core.errors import OperationError
from core.paths import State
from core.timestamps import now_us
from ingest.alarms import checkpoint, command_socket
from ingest.alarms.conditions import Condition, Conditions
from ingest.alarms.evaluator import AlarmEvaluator
from ingest.alarms.operator_api import AlarmCommand, CommandAction, OperatorApi
from ingest.spool.append import Spool
from ops.cli import alarms as client
from tests.alarms import IDS, SECOND, SOURCE, source, tag
from tests.integration.ingest.test_alarms_evaluator import batch_of, spool
from tests.memory_appender import MemoryAppender

__all__ = ["spool"]  # fixtures


async def do(evaluator: AlarmEvaluator, action: CommandAction, channel: str, **more: object) -> list[str]:
    command = AlarmCommand(action, channel, "ann", **more)  # type: ignore[arg-type]
    outcome = await OperatorApi(lambda: [evaluator], AlarmOptions(max_shelving=3600.0)).execute(command)
    return outcome.lines(action, channel, command.limit)


async def test_operators_acknowledge_and_shelve() -> None:
    appender = MemoryAppender()
    evaluator = AlarmEvaluator(SOURCE, IDS, 1, appender)
    at = now_us()
    await evaluator.append(batch_of(9.5, at))
    with pytest.raises(OperationError, match="no channel matches x"):
        await do(evaluator, "ack", "x")
    with pytest.raises(OperationError, match="legal: lolo"):
        await do(evaluator, "ack", "a/level", limit="high")
    with pytest.raises(OperationError, match="nothing to ack: a/flow hi is normal"):
        await do(evaluator, "ack", "a/flow")
    assert await do(evaluator, "ack", "a/*") == ["a/level hi: acknowledged_active", "a/level hihi: acknowledged_active"]
    for seconds in (None, 0.0, 3601.0):
        with pytest.raises(OperationError, match="at most 1h"):
            await do(evaluator, "shelve", "a/level", limit="hi", why="work", seconds=seconds)
    with pytest.raises(OperationError, match="requires a reason"):
        await do(evaluator, "shelve", "a/level", limit="hi", seconds=60.0)
    assert await do(evaluator, "shelve", "a/level", limit="hi", why="work", seconds=60.0) == ["a/level hi: shelved"]
    assert await do(evaluator, "unshelve", "a/level") == ["a/level hi: unacknowledged_active"]
    assert await do(evaluator, "out-of-service", "a/level", limit="lo", why="calibration") == [
        "a/level lo: out_of_service"
    ]
    assert await do(evaluator, "suppress", "a/flow", why="stopped") == ["a/flow hi: suppressed_by_design"]
    states = {(a["channel"], a["limit"]): a["state"] for a in OperatorApi(lambda: [evaluator], AlarmOptions()).alarms()}
    assert states["a/level", "lo"] == "out_of_service"
    again = AlarmEvaluator(SOURCE, IDS, 1, appender)  # another process
    assert {
        (a["channel"], a["limit"]): a["state"] for a in OperatorApi(lambda: [again], AlarmOptions()).alarms()
    } == states
    assert await do(again, "in-service", "a/level") == ["a/level lo: normal"]
    assert await do(again, "unsuppress", "a/flow") == ["a/flow hi: normal"]
    alarm_log = appender.events("alarm")
    assert {e.detail["who"] for e in alarm_log if e.detail["action"] not in ("raised", "returned")} == {"ann"}
    shelved = next(e for e in alarm_log if e.detail["action"] == "shelved")
    assert (shelved.detail["why"], shelved.detail["shelved_until"] - shelved.time) == ("work", 60 * SECOND)


async def test_shelving_ends_also_while_stopped() -> None:
    appender = MemoryAppender()
    evaluator = AlarmEvaluator(SOURCE, IDS, 1, appender)
    await evaluator.append(batch_of(8.5, now_us()))
    await do(evaluator, "shelve", "a/level", limit="hi", why="short", seconds=0.001)
    running = asyncio.create_task(AlarmEvaluator(SOURCE, IDS, 1, appender).run())
    await appender.until(lambda: appender.events("alarm")[-1].detail["action"] == "unshelved")
    running.cancel()
    last, shelved = appender.events("alarm")[-1], appender.events("alarm")[-2]
    assert (last.text, last.detail["who"]) == ("unacknowledged_active", "plantlog")
    assert last.time == shelved.detail["shelved_until"]


async def test_alarm_command_reaches_the_collector_of_the_channel(spool: Spool, tmp_path: Path) -> None:
    evaluator = AlarmEvaluator(SOURCE, IDS, 1, spool)
    state = State(tmp_path)
    with pytest.raises(OperationError, match="no collector is running"):
        await asyncio.to_thread(client.list_alarms, state, False)
    await evaluator.append(batch_of(9.5, now_us()))
    ask = {"action": "ack", "channel": "a/level", "limit": "hihi", "who": "Ann"}
    async with (
        command_socket.serve(command_socket.socket_path(tmp_path, "opcua"), OperatorApi(lambda: [], AlarmOptions())),
        command_socket.serve(
            command_socket.socket_path(tmp_path, "modbus"), OperatorApi(lambda: [evaluator], AlarmOptions())
        ),
    ):
        assert command_socket.socket_path(tmp_path, "modbus").stat().st_mode & 0o777 == 0o600
        active = await asyncio.to_thread(client.list_alarms, state, False)
        assert [(a["channel"], a["limit"]) for a in active] == [("a/level", "hi"), ("a/level", "hihi")]
        assert len(await asyncio.to_thread(client.list_alarms, state, True)) == 7
        assert await asyncio.to_thread(client.execute, state, ask) == ["a/level hihi: acknowledged_active"]
        with pytest.raises(OperationError, match="hihi is acknowledged_active"):
            await asyncio.to_thread(client.execute, state, ask)
        with pytest.raises(OperationError, match="invalid command"):
            await asyncio.to_thread(client.execute, state, {"action": "destroy", "channel": "a/level"})
        listed = await _listed(tmp_path)
        assert [(a["limit"], a["state"]) for a in listed] == [
            ("hi", "unacknowledged_active"),
            ("hihi", "acknowledged_active"),
        ]
    assert not command_socket.socket_path(tmp_path, "modbus").exists()
    acknowledged = json.loads(spool.notes[checkpoint.note_name(IDS["a/level"])])["watches"]["hihi"]["alarm"]
    assert acknowledged["acknowledged_by"].startswith("Ann (")


async def test_alarm_command_says_what_it_did_not_do(spool: Spool, tmp_path: Path) -> None:
    """Alarms of limits and conditions of one channel; a collector without conditions is asked first."""
    await spool.note({"condition:1:i=1": json.dumps(asdict(_condition(IDS["a/level"])))})
    conditions = Conditions("plc", 1, spool.notes)  # its server is not connected
    evaluator = AlarmEvaluator(SOURCE, IDS, 1, spool)
    conditions.configure(evaluator.names)
    await evaluator.append(batch_of(8.5, now_us()))
    refused = "a/level TempHigh is not acknowledged: source plc is not connected: acknowledge it again once it is"
    api = OperatorApi(lambda: [evaluator], AlarmOptions(), lambda: [conditions])
    run = partial(command_socket.socket_path, tmp_path)
    async with (
        command_socket.serve(run("modbus"), OperatorApi(lambda: [], AlarmOptions())),
        command_socket.serve(run("opcua"), api),
    ):
        ask = partial(_ask, State(tmp_path))
        assert await ask("a/level", "TempHigh") == (refused, ())
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ops", "alarms", "ack", "a/level"),
            env={"PLANTLOG_STATE": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        output = await process.communicate()
        assert output == (b"a/level hi: acknowledged_active\n", f"plantlog: {refused}\n".encode())
        assert process.returncode == 1
        assert await ask("a/*", None) == (refused, ())
        reason, _ = await ask("a/flow", "TempHigh")
        assert reason.startswith("no channel matches a/flow with alarm limit TempHigh; legal: lolo")
        assert await ask("a/flow", "hi") == ("nothing to ack: a/flow hi is normal", ())


async def _ask(state: State, channel: str, limit: str | None) -> tuple[str, tuple[str, ...]]:
    """Why a command failed, and what was done."""
    with pytest.raises(OperationError) as failed:
        await asyncio.to_thread(
            client.execute, state, {"action": "ack", "channel": channel, "limit": limit, "who": "Ann"}
        )
    return str(failed.value), getattr(failed.value, "done", ())


def _condition(channel_id: int) -> Condition:
    return Condition(
        key="i=1",
        condition_id="i=1",
        name="TempHigh",
        source_name="Temp",
        channel_id=channel_id,
        state="unacknowledged_active",
        active=True,
        since=now_us(),
    )


async def _listed(state: Path) -> list[dict[str, object]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ops", "alarms", "--json", env={"PLANTLOG_STATE": str(state)}, stdout=subprocess.PIPE
    )
    alarm_log, _ = await process.communicate()
    assert process.returncode == 0
    found: list[dict[str, object]] = json.loads(alarm_log)
    return found


async def test_listed_alarms_have_units(spool: Spool, tmp_path: Path) -> None:
    limits = {"alarm_hi": 8.0, "alarm_rate": 5.0, "alarm_stale": "20s", "alarm_bad": True}
    evaluator = AlarmEvaluator(source(tag("a/level", unit="m", **limits)), IDS, 1, spool)
    await evaluator.append(batch_of(9.5, now_us()))
    api = OperatorApi(lambda: [evaluator], AlarmOptions())
    async with command_socket.serve(command_socket.socket_path(tmp_path, "modbus"), api):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ops", "alarms", "--all"),
            env={"PLANTLOG_STATE": str(tmp_path)},
            stdout=subprocess.PIPE,
        )
        table = (await process.communicate())[0].decode()
    values_begin = next(line.index("value") - 2 for line in table.splitlines() if "threshold" in line)
    rows = [line for line in table.splitlines() if "a/level" in line]
    assert {row.split()[2]: row[values_begin:].split() for row in rows} == {
        "hi": ["9.5", "m", "8", "m"],
        "rate": ["5", "m/s"],
        "stale": ["20", "s"],
        "bad": [],
    }
