"""What a newcomer sees: the demo plant, all channels, texts too, a device that fails and comes back."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest.batch import now_us
from ingest.config.model import OpcuaTag
from ingest.config.tags import read_tags
from ingest.errors import Problem
from ops.paths import CHECKOUT
from ops.ports import free_ports
from tests import readme
from tests.e2e.appliance import Appliance, running, until

SECOND = 1_000_000  # µs
PORT = free_ports(13)


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    with running(tmp_path_factory.mktemp("demo") / "state", "--port", str(PORT)) as up:
        yield up


def fault(**asked: object) -> None:
    body = json.dumps(asked).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/fault", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


async def test_every_channel_is_there_and_equals_the_truth(appliance: Appliance) -> None:
    start = now_us() + SECOND
    result = await appliance.compared(start, start + 15 * SECOND)
    total = result["all"]
    # On a busy machine a poll may come too late: then it is on record.
    assert (total.invented, total.altered, total.missing_silent) == (0, 0, 0), result
    assert result["opcua"].published == result["opcua"].stored
    silent = await appliance.fetchval(
        "SELECT count(*) FROM plant.channel c WHERE NOT EXISTS (SELECT FROM plant.samples s WHERE s.channel_id = c.id)"
        " AND NOT EXISTS (SELECT FROM plant.event e WHERE e.channel_id = c.id AND e.type = 'text')"
    )
    assert silent == 0


async def test_a_device_that_fails_is_on_record_and_comes_back(appliance: Appliance) -> None:
    fault(target="conveyor-plc", fault="close_connections", seconds=8)  # `status` has to look meanwhile

    def state() -> str:
        return str(next(s["state"] for s in appliance.status()["sources"] if s["name"] == "conveyor-plc"))

    until(lambda: state() in ("disconnected", "connecting"))
    until(lambda: state() == "connected")
    back = now_us()
    await appliance.until_stored(back + SECOND)
    states = await appliance.fetchval(
        "SELECT array_agg(e.text ORDER BY e.time) FROM plant.event e JOIN plant.source s ON s.id = e.source_id"
        " WHERE s.name = 'conveyor-plc' AND e.type = 'source_state'"
    )
    assert states == ["connected", "disconnected", "connected"]
    gaps = "SELECT count(*) FROM plant.gap g JOIN plant.source s ON s.id = g.source_id WHERE s.name = 'conveyor-plc'"
    assert await appliance.fetchval(f"{gaps} AND g.channel_id IS NULL AND g.reason = 'disconnected'") == 1
    assert await appliance.fetchval(f"{gaps} AND g.to_time IS NULL") == 0
    assert (await appliance.compared(back - 60 * SECOND, back))["all"].missing_silent == 0


def test_psql_answers_as_the_reader(appliance: Appliance) -> None:
    assert appliance.plantlog("psql", "-Atc", "SELECT current_user").strip() == "plantlog_reader"


def test_every_process_tells_its_health_and_metrics(appliance: Appliance) -> None:
    said = {}
    for port in (PORT + 1, PORT + 2, PORT + 3):
        for path in ("health/live", "health"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
                assert json.loads(answer.read())["alive"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            said[port] = answer.read().decode()
    assert 'plantlog_samples_total{source="demo-opcua"}' in said[PORT + 1]
    assert 'plantlog_source_up{source="meters"} 1.0' in said[PORT + 2]
    assert 'plantlog_written_rows_total{lane="copy"}' in said[PORT + 3]
    assert "plantlog_lag_seconds_bucket" in said[PORT + 3]


def test_maintenance_runs_by_itself_and_says_what_it_did(appliance: Appliance) -> None:
    def jobs() -> dict[str, str | None]:
        return {job["name"]: job["outcome"] for job in appliance.status()["jobs"]}

    until(lambda: bool(jobs()) and all(jobs().values()))
    assert {name for name, outcome in jobs().items() if outcome == "failed"} == set()
    listed = json.loads(appliance.plantlog("maintenance", "--json"))
    assert [job["job"] for job in listed] == list(jobs())
    assert {job["job"]: job["outcome"] for job in listed if job["job"] in ("compress", "retain", "ahead")} == {
        "compress": "ok",
        "retain": "ok",
        "ahead": "ok",
    }
    assert "analyze: ok" in appliance.plantlog("maintenance", "run", "analyze")
    planned = json.loads(appliance.plantlog("retention", "--json"))
    assert (planned["slices"], planned["disk_budget"]) == ([], None)
    assert "compress" in appliance.plantlog("status", "--once")
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT + 5}/metrics", timeout=10) as answer:
        said = answer.read().decode()
    assert 'plantlog_job_last_success_timestamp_seconds{job="compress"}' in said
    assert "plantlog_storage_days_left" in said


def test_up_again_is_harmless(appliance: Appliance) -> None:
    before = {p["name"]: p["pid"] for p in appliance.status()["processes"]}
    appliance.plantlog("up")
    assert {p["name"]: p["pid"] for p in appliance.status()["processes"]} == before


def test_a_configuration_that_was_broken_stops_no_process_that_is_started_anew(appliance: Appliance) -> None:
    file = appliance.root / "plant" / "plant.toml"
    text = file.read_text()
    try:
        file.write_text("[plant")
        killed = appliance.kill("writer")
        until(lambda: any(p["name"] == "writer" and p["ready"] and p["pid"] != killed for p in processes(appliance)))
        said = appliance.status()["configuration"]
        assert (said["file"], said["differs"], len(said["problems"])) == (str(file), True, 1)
    finally:
        file.write_text(text)
    assert appliance.status()["configuration"]["problems"] == []


def processes(appliance: Appliance) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = appliance.status()["processes"]
    return found


def test_its_dashboards_are_served(appliance: Appliance) -> None:
    said = appliance.plantlog("up")
    (address,) = [line.split()[1] for line in said.splitlines() if line.split()[:1] == ["dashboards"]]
    with urllib.request.urlopen(f"{address}api/dashboards", timeout=10) as answer:
        assert len(json.loads(answer.read())) == 6


def edited(plant: Path, name: str, interval: str, step: int, chance: random.Random) -> None:
    """Every ``step``-th tag of a list gets this interval, and all rows another order."""
    header, *rows = csv.reader((plant / "tags" / name).read_text().splitlines())
    if "interval" not in header:
        header, rows = [*header, "interval"], [[*row, ""] for row in rows]
    for row in rows[::step]:
        row[header.index("interval")] = interval
    chance.shuffle(rows)
    with (plant / "tags" / name).open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


async def test_edits_of_a_running_plant_lose_nothing(appliance: Appliance, tmp_path: Path) -> None:
    plant, chance = tmp_path / "plant", random.Random(18)
    shutil.copytree(appliance.root / "plant", plant)
    appliance.plantlog("up", "--config", str(plant / "plant.toml"), "--simulator")
    before = {p["name"]: p["pid"] for p in appliance.status()["processes"]}
    start = now_us() + SECOND
    for interval in ("250ms", "2s", ""):
        edited(plant, "opcua.csv", interval, 3, chance)
        edited(plant, "tankfarm-plc.csv", interval, 1, chance)  # or blocks read through others' registers, which counts
        appliance.plantlog("up")
    result = (await appliance.compared(start, now_us() + SECOND))["all"]
    assert result.published > 0
    assert (result.invented, result.altered, result.duplicated, result.missing_silent) == (0, 0, 0, 0), result
    since = f"to_timestamp({start} / 1e6)"
    reasons = await appliance.fetchval(f"SELECT array_agg(DISTINCT reason) FROM plant.gap WHERE opened_at > {since}")
    assert set(reasons or ()) <= {"poll_missed"}, "which a busy machine may have, whatever is edited"
    restarts = f"SELECT count(*) FROM plant.event WHERE type = 'restart' AND time > {since}"
    assert await appliance.fetchval(restarts) == 0
    assert {p["name"]: p["pid"] for p in appliance.status()["processes"]} == before


# What README says can be run, on a running appliance

# How what only reads is run where README's words leave something open.
RUN: dict[str, list[list[str]]] = {
    "alarms": [[]],
    "ask": [[]],
    "certificate": [["list"]],
    "check": [[]],
    "discover": [["demo-opcua"]],
    "logs": [[], ["postgres"]],
    "maintenance": [[]],
    "psql": [["-c", "SELECT 1"]],
    "retention": [[]],
    "seal": [[], ["--public-key"]],
    "simulator": [["compare"]],
    "spool": [["show"], ["quarantine"]],
    "status": [["--once"], ["--json"], ["--channels"]],
    "targets": [[]],
    "verify": [["rollups"]],
}
# What makes, ends or measures something: other tests run it, tests/unit/test_readme.py asks each for its help.
NOT_RUN = {"bench", "chaos", "down", "export", "init", "prepare", "rename", "test", "up"}
AS_IT_STANDS = [words for words in readme.plantlog() if words[0] in ("psql", "simulator", "ask") and len(words) > 2]


def test_every_command_of_readme_can_be_run() -> None:
    assert {words[0] for words in readme.plantlog()} <= RUN.keys() | NOT_RUN


@pytest.mark.parametrize("words", AS_IT_STANDS, ids=lambda words: " ".join(words)[:60])
def test_a_command_as_readme_has_it(appliance: Appliance, words: list[str]) -> None:
    appliance.plantlog(*words)


@pytest.mark.parametrize("command", RUN)
def test_a_command_of_readme(appliance: Appliance, command: str) -> None:
    for arguments in RUN[command]:
        assert appliance.plantlog(command, *arguments).strip(), arguments


def test_what_discover_prints_is_a_tag_list_of_what_is_served(appliance: Appliance, tmp_path: Path) -> None:
    command = [str(CHECKOUT / "plantlog"), "discover", "demo-opcua", "--output", str(tmp_path / "found.csv")]
    environment = {**os.environ, "PLANTLOG_STATE": str(appliance.root)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert run.returncode == 0, run.stderr
    assert "timeout" not in run.stderr, "libraries say nothing on the terminal"
    problems: list[Problem] = []
    found = {tag.address for tag, _ in read_tags(tmp_path / "found.csv", OpcuaTag, problems)}
    assert problems == []
    query = "SELECT address FROM channel WHERE source_id = (SELECT id FROM source WHERE name = 'demo-opcua')"
    assert found == set(appliance.plantlog("psql", "-Atc", query).splitlines())


@pytest.mark.parametrize("statement", readme.statements())
def test_a_query_of_readme(appliance: Appliance, statement: str) -> None:
    call = re.fullmatch(r"CALL plant\.(\w+)\(.*\)", statement)
    if call is not None:  # the owner's to call: it is there
        statement = f"SELECT proname FROM pg_proc WHERE pronamespace = 'plant'::regnamespace AND proname = '{call[1]}'"
        assert call[1] in appliance.plantlog("psql", "-Atc", statement)
    else:
        appliance.plantlog("psql", "-v", "ON_ERROR_STOP=1", "-c", statement)
