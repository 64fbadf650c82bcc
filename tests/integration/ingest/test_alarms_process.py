"""A collector as a process: its alarms without a database, acknowledged by command, and the same after a SIGKILL."""

from __future__ import annotations

import asyncio
import signal
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from core.config.model import HealthOptions
from core.errors import OperationError
from core.paths import State
from core.registry import Registry
from ops import health
from ops.cli import alarms as client
from tests.alarms import spooled_events
from tests.command import plantlog
from tests.integration.ingest.test_modbus_restart import collector
from tests.modbus_wire import good_response, misbehaving_device
from tests.ports import free_ports
from tests.waiting import PATIENCE, until


class Level:
    """Value of the device's register."""

    value = 50


async def until_states(state: State, wanted: dict[str, str]) -> None:
    """Wait until the alarms are in these states, by limit."""
    socket = state.root / "run" / "modbus.alarms"

    async def reached() -> bool:
        return socket.exists() and await asyncio.to_thread(_states, state) == wanted

    await until(reached, show=lambda: _states(state))


def _states(state: State) -> dict[str, str]:
    try:
        return {alarm["limit"]: alarm["state"] for alarm in client.list_alarms(state, include_all=True)}
    except OperationError:  # it does not listen yet, or no more
        return {}


def _metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        return str(answer.read().decode())


@pytest.mark.slow
async def test_alarms_of_a_collector(tmp_path: Path) -> None:
    level, port = Level(), free_ports(3)
    state = State(tmp_path)
    async with misbehaving_device(lambda frame, number: [(0, good_response(frame, level.value))]) as device:
        (tmp_path / "plant.toml").write_text(
            f'[plant]\nname = "demo"\n[health]\nport = {port}\n[[source]]\nname = "plc"\nkind = "modbus"\n'
            f'address = "tcp://127.0.0.1:{device}"\npoll_interval = "50ms"\ntags = "tags.csv"\n'
        )
        (tmp_path / "tags.csv").write_text(
            "name,address,type,alarm_hi,alarm_hihi,alarm_delay,alarm_priority\na,holding:0,uint16,80,90,200ms,high\n"
        )
        Registry({"plc": 1}, {"plc": {"a": 1}}).save(tmp_path / "registry.json")
        async with collector(tmp_path, signal.SIGKILL):
            await until_states(state, {"hi": "normal", "hihi": "normal"})
            level.value = 85
            await until_states(state, {"hi": "unacknowledged_active", "hihi": "normal"})
            [active] = await asyncio.to_thread(client.list_alarms, state, False)
            done = await asyncio.to_thread(
                client.execute, state, {"action": "ack", "channel": "a", "limit": None, "who": "ann"}
            )
            assert done == ["a hi: acknowledged_active"]
            [known] = await asyncio.to_thread(client.list_alarms, state, False)
            assert known["since"] == active["since"] < known["acknowledged_at"]
            at = datetime.fromtimestamp(known["acknowledged_at"] // 1_000_000, UTC)
            listed = (await plantlog(tmp_path, "alarms")).out
            assert f"acknowledged {at:%Y-%m-%d %H:%M:%SZ}, ann" in listed
            report: Any = await asyncio.to_thread(health.fetch, "collector-modbus", HealthOptions(port=port), tmp_path)
            assert (report["alarms"]["high"], report["alarms"]["unacknowledged"]) == (1, 0)
            shown = await asyncio.to_thread(_metrics, port + 1)
            assert 'plantlog_alarms_active{priority="high",source="plc"} 1.0' in shown
        assert await asyncio.to_thread(_states, state) == {}, "nobody listens on the socket that the killed one left"
        async with collector(tmp_path, signal.SIGTERM):
            await until_states(state, {"hi": "acknowledged_active", "hihi": "normal"})
            level.value = 50
            await until_states(state, {"hi": "normal", "hihi": "normal"})
            level.value = 95
            await until_states(state, {"hi": "unacknowledged_active", "hihi": "unacknowledged_active"})
    events = [
        (event.detail["limit"], event.detail["action"])
        for event in spooled_events(tmp_path / "spool" / "modbus.sqlite")
    ]
    assert events[:3] == [("hi", "raised"), ("hi", "acknowledged"), ("hi", "returned")]
    assert sorted(events[3:]) == [("hi", "raised"), ("hihi", "raised")]
