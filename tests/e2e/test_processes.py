"""The collectors become more and fewer under way, and are killed meanwhile: nothing is lost, or there twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from core.config.processes import is_collector
from core.paths import CHECKOUT
from core.timestamps import now_us
from tests.e2e.appliance import Appliance, running
from tests.ports import free_ports
from tests.waiting import until

SECOND = 1_000_000  # µs
_NO_OPEN_GAP = "SELECT count(*) = 0 FROM plant.gap AS g WHERE g.to_time IS NULL AND g.reason <> 'bad'"


class SplitDemoPlant:
    """The demo plant, its OPC UA server read as two sources."""

    def __init__(self, folder: Path) -> None:
        first = free_ports(30)  # as `up --port` has them
        ports = [("health", 1), ("viewer", 7), ("opcua", 8), ("modbus", 9)]
        told = [text for name, offset in ports for text in (f"--{name}-port", str(first + offset))]
        command = [sys.executable, "-m", "simulator", "export", str(folder), *told]
        subprocess.run(command, check=True, cwd=CHECKOUT, stdout=subprocess.DEVNULL)
        self.file = folder / "plant.toml"
        header, *rows = (folder / "tags" / "opcua.csv").read_text().splitlines(keepends=True)
        (folder / "tags" / "opcua.csv").write_text("".join((header, *rows[::2])))
        (folder / "tags" / "opcua2.csv").write_text("".join((header, *rows[1::2])))
        text = self.file.read_text()
        source = next(part for part in text.split("[[source]]") if "opcua.csv" in part)
        second = source.replace("opcua.csv", "opcua2.csv").replace("demo-opcua", "demo-opcua2")
        self._text = f"{text}\n[[source]]{second}"

    def configure(self, processes: int) -> None:
        """To be read by so many."""
        self.file.write_text(f"{self._text}\n[collectors]\nprocesses = {processes}\n")


def _readers(appliance: Appliance) -> list[int]:
    return [process.pid for process in appliance.supervisor.processes() if is_collector(process.name) and process.pid]


async def _up_beside_a_kill(appliance: Appliance, chance: random.Random) -> None:
    """Apply the configuration; a collector is killed once others run than before."""
    before = _readers(appliance)
    following = asyncio.create_task(asyncio.to_thread(appliance.plantlog, "up"))

    def changed() -> bool | list[int]:
        readers = _readers(appliance)
        return following.done() or (readers if readers != before else [])

    readers = await until(changed, every=0.5)
    if not following.done():
        with suppress(ProcessLookupError):  # `up` may have ended it
            os.kill(chance.choice(readers), signal.SIGKILL)
    try:
        await following
    except AssertionError:  # it says so where a process ended under its eyes
        appliance.plantlog("up")


@pytest.mark.slow
async def test_changed_number_of_collectors_loses_nothing(tmp_path: Path) -> None:
    plant, chance = SplitDemoPlant(tmp_path / "plant"), random.Random(5)
    plant.configure(1)
    with running(tmp_path / "state", "--config", str(plant.file), "--simulator") as appliance:
        start = now_us() + SECOND
        await appliance.until_stored(start + SECOND)
        for processes in (3, 1):
            plant.configure(processes)
            await _up_beside_a_kill(appliance, chance)
            await appliance.until_stored(now_us() + SECOND)
            await until(partial(appliance.fetchval, _NO_OPEN_GAP), every=0.5)
            body = json.loads(appliance.plantlog("status", "--json"))
            names = sorted(process["name"] for process in body["processes"] if is_collector(process["name"]))
            assert names == sorted(
                f"collector-{kind}" + (f"-{k}" if k > 1 else "")
                for kind, most in (("opcua", 2), ("modbus", 3))
                for k in range(1, min(processes, most) + 1)
            )
            assert sorted(source["name"] for source in body["sources"]) == [
                "conveyor-plc",
                "demo-opcua",
                "demo-opcua2",
                "meters",
                "tankfarm-plc",
            ], "each is read by one"
            assert set(body["spools"]) == {"opcua", "modbus"}
            assert len(json.loads(appliance.plantlog("admin", "targets"))) == len(names) + 3
        result = await appliance.compared(start, now_us() + SECOND)
        total = result["all"]
        assert (total.invented, total.altered, total.missing_silent) == (0, 0, 0), result
        assert result["opcua"].stored > 0.9 * result["opcua"].published, "subscriptions go along"
        assert result["modbus"].stored > 0
        assert {path.name for path in (tmp_path / "state" / "spool").glob("*.sqlite")} == {
            "modbus.sqlite",
            "opcua.backfill.sqlite",
            "opcua.sqlite",
        }
