"""A running plant is edited again and again by ``plantlog apply``: channels that no edit names lose nothing.

``PLANTLOG_TEST_EDITS=1000`` makes as many edits.
"""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import numpy as np
import pytest

from ingest.timestamps import now_us
from ops.paths import CHECKOUT
from ops.ports import free_ports
from simulator.truth import read_truth
from tests.e2e.appliance import Appliance, running

SECOND = 1_000_000  # µs
EDITS = int(os.environ.get("PLANTLOG_TEST_EDITS", "12"))
_STORED = """
SELECT c.name, (extract(epoch FROM s.time) * 1000000)::int8 AS us, s.value
FROM plant.samples AS s
JOIN plant.channel AS c ON c.id = s.channel_id
WHERE c.name = ANY ($1) AND s.time >= to_timestamp($2::float8 / 1e6) AND s.time < to_timestamp($3::float8 / 1e6)
"""
_GAPS = """
SELECT count(*)
FROM plant.gap AS g
JOIN plant.source AS s ON s.id = g.source_id
LEFT JOIN plant.channel AS c ON c.id = g.channel_id
WHERE s.kind = 'opcua' AND (c.id IS NULL OR c.name = ANY ($1)) AND g.from_time >= to_timestamp($2::float8 / 1e6)
  AND g.to_time IS DISTINCT FROM g.from_time
"""


class TagList:
    """The tag list of the OPC UA source; a third of its tags are edited."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open(newline="") as file:
            self._original = list(csv.DictReader(file))
        self._rows: list[dict[str, str] | None] = [dict(row) for row in self._original]
        numeric = [i for i, row in enumerate(self._original) if row.get("kind") != "text"]
        self._edited = numeric[::3]
        self.untouched = sorted({self._original[i]["name"] for i in numeric} - {self._name(i) for i in self._edited})
        self._random = random.Random(15)

    def _name(self, i: int) -> str:
        return self._original[i]["name"]

    def edit(self) -> None:
        """Remove, add, rename or change one tag."""
        i = self._random.choice(self._edited)
        row = self._rows[i]
        if row is None:
            self._rows[i] = dict(self._original[i])
        else:
            match self._random.choice(("remove", "rename", "range", "unit", "interval")):
                case "remove":
                    self._rows[i] = None
                case "rename":
                    row["name"] = f"{self._name(i)}_{self._random.randrange(10**9)}"
                case "range":
                    row |= {"lo": "-1000", "hi": str(self._random.randrange(1_000_000, 2_000_000))}
                case "unit":
                    row["unit"] = f"u{self._random.randrange(10**9)}"
                case "interval":
                    row["interval"] = f"{self._random.randrange(1_000, 9_000)}ms"
        with self._path.open("w", newline="") as file:
            writer = csv.DictWriter(file, self._original[0])
            writer.writeheader()
            writer.writerows(row for row in self._rows if row is not None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, port = tmp_path_factory.mktemp("e2e"), free_ports(13)
    options = [
        f"--{name}-port={port + offset}" for name, offset in (("health", 1), ("viewer", 7), ("opcua", 8), ("modbus", 9))
    ]
    command = [sys.executable, "-P", "-m", "simulator", "export", str(folder / "plant"), *options]
    subprocess.run(command, cwd=CHECKOUT, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, check=True)
    return folder


@pytest.fixture(scope="module")
def appliance(folder: Path) -> Iterator[Appliance]:
    with running(folder / "state", "--config", str(folder / "plant" / "plant.toml"), "--simulator") as up:
        yield up


async def test_channels_that_no_edit_names_lose_nothing(appliance: Appliance, folder: Path) -> None:
    [path] = [p for p in (folder / "plant" / "tags").glob("*.csv") if "ns=" in p.read_text()]
    tags = TagList(path)
    await appliance.until_stored(now_us())
    start = now_us()
    for _ in range(EDITS):
        tags.edit()
        plan = json.loads(appliance.plantlog("apply", "--json", "--yes", "--same-quantity", "*"))
        assert (plan["restarts"], plan["stops"], plan["reconnects"]) == ([], [], [])
        assert sum(plan["counts"].values()) > 0
    end = now_us()
    await appliance.until_stored(end + SECOND)
    truth = read_truth(folder / "state" / "simulator" / "truth", start)
    rows = truth.rows["opcua"]
    places = [i for i, name in enumerate(truth.names) if name in set(tags.untouched)]
    rows = rows[np.isin(rows["tag"], places) & (rows["time"] >= start) & (rows["time"] < end)]
    published = {(truth.names[row["tag"]], int(row["time"])): float(row["value"]) for row in rows}
    connection = await asyncpg.connect((folder / "state" / "secrets" / "reader.dsn").read_text().strip())
    try:
        found = await connection.fetch(_STORED, tags.untouched, start, end)
        gaps = await connection.fetchval(_GAPS, tags.untouched, start)
    finally:
        await connection.close()
    stored = {(row["name"], row["us"]): row["value"] for row in found}
    assert len(published) > len(tags.untouched), "values went on while the plant was edited"
    assert len(found) == len(stored)
    assert sorted(published.keys() - stored.keys())[:5] == []
    assert sorted(stored.keys() - published.keys())[:5] == []
    assert gaps == 0


def test_nothing_is_applied_without_confirmation(appliance: Appliance, folder: Path) -> None:
    plant = folder / "plant" / "plant.toml"
    before = plant.read_text()
    plant.write_text(f"{before}\n[writer]\nconnections = 3\n")
    environment = {**os.environ, "PLANTLOG_STATE": str(appliance.root)}
    command = [str(CHECKOUT / "plantlog"), "apply"]
    run = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert run.returncode == 3
    assert "[writer] connections: 2 → 3\nrestarts: writer" in run.stdout
    assert "use --yes" in run.stderr
    plant.write_text(before)
    assert appliance.plantlog("apply", "--yes").startswith("no changes")
