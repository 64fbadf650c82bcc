"""A running plant is edited again and again by ``plantlog config apply``: channels that no edit names lose nothing.

``PLANTLOG_TEST_EDITS=1000 PLANTLOG_TEST_CHANNELS=5500`` makes as many edits, at 5,000 samples/s by OPC UA and 500 by
Modbus. It needs a machine of its own: there no poll may come late, either. Figures go to standard output (``-s``).
"""

from __future__ import annotations

import asyncio
import csv
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pytest
from rich.console import Console

from core.paths import CHECKOUT, State
from core.timestamps import now_us
from ops.appliance.apply import apply_plan, plan_for
from ops.appliance.plan import Plan
from ops.appliance.up import UpOptions
from ops.registration.redefined_tags import TagDecisions
from simulator.compare import compare
from simulator.compare_samples import Comparison
from tests.e2e.appliance import Appliance, running
from tests.ports import free_ports
from tests.waiting import until_sync

IS_STRICT = "PLANTLOG_TEST_EDITS" in os.environ
EDITS = int(os.environ.get("PLANTLOG_TEST_EDITS", "12"))
CHANNELS = int(os.environ.get("PLANTLOG_TEST_CHANNELS", "330"))
COMPARED_EDITS = 100  # after so many, the table is compared with the truth
_SECOND = 1_000_000  # µs
_GAPS = """
SELECT s.kind, s.name, c.name AS channel, g.reason, g.detail, g.from_time, g.to_time
FROM plant.gap AS g
JOIN plant.source AS s ON s.id = g.source_id
LEFT JOIN plant.channel AS c ON c.id = g.channel_id
WHERE (c.id IS NULL OR c.name = ANY ($1)) AND g.from_time >= to_timestamp($2::float8 / 1e6)
  AND g.to_time IS DISTINCT FROM g.from_time
"""
_SOURCES = """
[[source]]
name = "second-opcua"
kind = "opcua"
address = "{address}"
insecure = true
publishing_interval = "500ms"
tags = "tags/second.csv"
"""
_COLUMNS = ("name", "address", "kind", "unit", "lo", "hi", "deadband", "interval", "description")
_MODBUS_COLUMNS = (*_COLUMNS, "type", "word_order", "scale", "offset")


class TagLists:
    """The tag lists of two OPC UA sources of one server, and of a Modbus device. Some of their tags are edited."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._random = random.Random(15)
        opcua, modbus = self._read("opcua"), self._read("load1")
        self._rows = {"opcua": opcua, "second": opcua[::20], "load1": modbus}
        self._rows["opcua"] = [row for i, row in enumerate(opcua) if i % 20]
        # Of OPC UA every third tag. Of the device the last registers: what is read beside them is not read twice.
        edited = [
            *(row for source in ("opcua", "second") for row in self._rows[source][::3]),
            *modbus[-len(modbus) // 3 :],
        ]
        self._names = {row["name"] for row in edited}
        self._addresses = {source: [r["address"] for r in rows if r in edited] for source, rows in self._rows.items()}
        self._removed: list[tuple[str, dict[str, str]]] = []
        self.untouched = {row["name"] for rows in self._rows.values() for row in rows} - self._names
        self.kinds: Counter[str] = Counter()
        self._write()

    def _read(self, name: str) -> list[dict[str, str]]:
        with (self._folder / f"{name}.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    def _write(self) -> None:
        for name, rows in self._rows.items():
            with (self._folder / f"{name}.csv").open("w", newline="") as file:
                columns = _MODBUS_COLUMNS if name == "load1" else _COLUMNS
                writer = csv.DictWriter(file, columns, extrasaction="ignore")
                writer.writeheader()
                writer.writerows(rows)

    def edit(self) -> None:
        """Change one to seven tags, each in its own way."""
        for _ in range(self._random.randint(1, 7)):
            source = self._random.choice(("opcua", "opcua", "second", "load1"))
            rows = self._rows[source]
            [row] = self._random.sample([row for row in rows if row["name"] in self._names], 1)
            kind = self._random.choice(
                ("add", "remove", "rename", "address", "range", "deadband", "unit", "interval")
                + (("scale", "scale") if source == "load1" else ("move", "move"))
            )
            self._change(kind, source, row)
            self.kinds[kind] += 1
        self._write()

    def _change(self, kind: str, source: str, row: dict[str, str]) -> None:
        number = self._random.randrange(10**9)
        match kind:
            case "add":  # what was removed, or another channel of the same address
                source, added = self._removed.pop() if self._removed else (source, {**row, "name": f"new/c{number}"})
                self._names.add(added["name"])
                self._rows[source].append(added)
            case "remove":
                self._rows[source].remove(row)
                self._removed.append((source, row))
            case "rename":
                row["name"] = f"{row['name'].partition('_')[0]}_{number}"
                self._names.add(row["name"])
            case "address":
                row["address"] = self._random.choice(self._addresses[source])
            case "range":
                row |= {"lo": "-1000", "hi": str(1_000_000 + number)}
            case "deadband":
                row["deadband"] = str(number / 1e9)
            case "unit":
                row["unit"] = f"u{number}"
            case "interval":
                row["interval"] = f"{self._random.randrange(1_000, 9_000)}ms"
            case "scale":
                row |= {"scale": str(1 + number / 1e9), "offset": str(number % 100)}
            case "move":
                self._rows[source].remove(row)
                self._rows["second" if source == "opcua" else "opcua"].append(row)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The configuration of a plant, ``plant``, and the ground truth of its simulator, ``simulator``."""
    folder, port = tmp_path_factory.mktemp("e2e"), free_ports(13)
    load = ["--channels", str(CHANNELS), "--hz", "1", "--insecure"]
    devices = [f"--opcua-port={port + 8}", f"--modbus-port={port + 9}"]
    pages = [f"--health-port={port + 1}", f"--viewer-port={port + 7}"]
    simulator = [sys.executable, "-P", "-m", "simulator"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    export = [*simulator, "export", str(folder / "plant"), *load, *devices, *pages]
    subprocess.run(export, cwd=CHECKOUT, env=environment, check=True)
    with (folder / "plant" / "plant.toml").open("a") as file:  # the last source is the device
        file.write('time_out = "30s"  # a slow machine leaves no gap\n')
        file.write(_SOURCES.format(address=f"opc.tcp://127.0.0.1:{port + 8}/plantlog/simulator"))
    state = ["--state", str(folder / "simulator"), "--control-port", str(port)]
    with subprocess.Popen([*simulator, "run", *state, *load, *devices], cwd=CHECKOUT, env=environment) as process:
        yield folder
        process.terminate()


@pytest.fixture(scope="module")
def tags(folder: Path) -> TagLists:
    return TagLists(folder / "plant" / "tags")


@pytest.fixture(scope="module")
def appliance(folder: Path, tags: TagLists) -> Iterator[Appliance]:
    with running(folder / "state", "--config", str(folder / "plant" / "plant.toml")) as up:
        yield up


def apply_edit(state: State, tags: TagLists) -> tuple[Plan, float]:
    """Apply an edit like ``plantlog config apply --yes``, in this process. Returns the plan, and how many s it took."""
    output = StringIO()
    options, console = UpOptions(choice=TagDecisions(same_quantity=("*",))), Console(file=output)
    began = time.monotonic()
    while not (plan := plan_for(state, options, console)):  # edits may cancel each other out
        tags.edit()
        began = time.monotonic()
    apply_plan(state, plan, options, console)
    assert "apply to collectors" in output.getvalue(), "nothing else was done"
    return plan, time.monotonic() - began


@pytest.mark.timeout(900 + 60 * EDITS)
async def test_channels_that_no_edit_names_lose_nothing(
    appliance: Appliance, folder: Path, tags: TagLists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTLOG_STATE", str(appliance.root))
    dsn = (appliance.root / "secrets" / "reader.dsn").read_text().strip()
    await appliance.until_stored(now_us())
    start, total, seconds = now_us(), Comparison(), []
    compared = start
    for edit in range(1, EDITS + 1):
        tags.edit()
        plan, took = await asyncio.to_thread(apply_edit, State(appliance.root), tags)
        seconds.append(took)
        assert (plan.restarted, plan.stopped, plan.reconnected) == ([], [], [])
        if edit % COMPARED_EDITS == 0 or edit == EDITS:
            end = now_us()
            await appliance.until_stored(end + _SECOND)
            part = await compare(folder / "simulator" / "truth", dsn, compared, end, names=tags.untouched)
            total.add(part["all"])
            compared = end
            times = f"{np.median(seconds):.1f} s, at most {max(seconds):.1f} s"
            print(f"{edit} applied in {(end - start) / 1e6:.0f} s, each in {times}: {total}", flush=True)
            print(f"{tags.kinds.total()} edits: {dict(tags.kinds)}", flush=True)
    connection = await asyncpg.connect(dsn)
    try:
        gaps = await connection.fetch(_GAPS, list(tags.untouched), start)
    finally:
        await connection.close()
    assert total.published > len(tags.untouched), "values went on while the plant was edited"
    assert (total.missing, total.duplicated, total.invented, total.altered) == (0, 0, 0, 0), total.examples
    late = [gap for gap in gaps if (gap["kind"], gap["reason"]) == ("modbus", "poll_missed")]
    print(f"polls came late on this machine: {len({gap['from_time'] for gap in late})} times")
    assert [tuple(gap) for gap in gaps if IS_STRICT or gap not in late][:10] == []


def test_what_does_not_run_is_started(appliance: Appliance, tags: TagLists) -> None:
    def applied() -> str:
        """Output of ``apply`` for an edit."""
        output = "no changes"
        while output.startswith("no changes"):
            tags.edit()
            output = appliance.plantlog("config", "apply", "--yes", "--same-quantity", "*")
        return output

    appliance.supervisor.stop_programs("viewer")
    assert "start database" in applied()
    assert {process.state for process in appliance.supervisor.processes()} <= {"STARTING", "RUNNING"}
    until_sync(lambda: {process.state for process in appliance.supervisor.processes()} == {"RUNNING"})
    assert "start database" not in applied()


def test_an_earlier_configuration_is_restored_and_applied(appliance: Appliance, folder: Path) -> None:
    def newest() -> dict[str, Any]:
        [revision] = json.loads(appliance.plantlog("config", "log", "--json", "-n", "1"))
        return dict(revision)

    before, path = newest(), folder / "plant" / "tags" / "second.csv"
    content = path.read_bytes()
    path.write_bytes(content + b"new/of-a-revision,ns=2;s=load.area000.c00000\r\n")
    appliance.plantlog("config", "apply", "--yes")
    assert newest()["added"] == 1
    output = appliance.plantlog("config", "revert", str(before["number"]), "--apply", "--yes")
    assert "- new/of-a-revision: retired from second-opcua" in output
    assert path.read_bytes() == content
    after = newest()
    assert (after["number"], after["files"], after["retired"]) == (before["number"] + 2, before["files"], 1)


def test_nothing_is_applied_without_confirmation(appliance: Appliance, folder: Path) -> None:
    plant = folder / "plant" / "plant.toml"
    before = plant.read_text()
    plant.write_text(f"{before}\n[writer]\nconnections = 3\n")
    environment = {**os.environ, "PLANTLOG_STATE": str(appliance.root)}
    command = [str(CHECKOUT / "plantlog"), "config", "apply"]
    run = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert run.returncode == 3
    assert "[writer] connections: 2 → 3\nrestarts: writer" in run.stdout
    assert "use --yes" in run.stderr
    plant.write_text(before)
    assert appliance.plantlog("config", "apply", "--yes").startswith("no changes")
