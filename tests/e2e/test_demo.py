"""The demo plant as a newcomer sees it: all channels, texts too, a device that fails and comes back."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from core.config.sources import OpcuaTag
from core.config.tags import read_tags
from core.errors import Problem
from core.paths import CHECKOUT
from core.timestamps import now_us
from simulator.opcua_server import NAMESPACE
from tests import docs
from tests.e2e.appliance import Appliance, running
from tests.e2e.prometheus import ask, firing, health, running_prometheus, series
from tests.ports import free_ports
from tests.prometheus_rules import ALERTS, RECORDS
from tests.waiting import PATIENCE, until_sync

SECOND = 1_000_000  # µs
PORT = free_ports(13)


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    with running(tmp_path_factory.mktemp("demo") / "state", "--port", str(PORT)) as up:
        yield up


def control(command: str, **parameters: object) -> None:
    body = json.dumps(parameters).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/{command}", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert answer.status == 200


@pytest.mark.gate
async def test_every_channel_equals_the_truth(appliance: Appliance) -> None:
    start = now_us() + SECOND
    result = await appliance.compared(start, start + 5 * SECOND)
    total = result["all"]
    # On a busy machine a poll may come too late: then it is on record.
    assert (total.invented, total.altered, total.missing_silent) == (0, 0, 0), result
    assert result["opcua"].published == result["opcua"].stored
    silent = await appliance.fetchval(
        "SELECT count(*) FROM plant.channel c WHERE NOT EXISTS (SELECT FROM plant.samples s WHERE s.channel_id = c.id)"
        " AND NOT EXISTS (SELECT FROM plant.event e WHERE e.channel_id = c.id AND e.type = 'text')"
    )
    assert silent == 0


async def test_failed_device_is_recorded_and_comes_back(appliance: Appliance) -> None:
    control("fault", target="conveyor-plc", fault="close_connections", seconds=3600)

    def state() -> str:
        return str(next(s["state"] for s in appliance.status()["sources"] if s["name"] == "conveyor-plc"))

    until_sync(lambda: state() in ("disconnected", "connecting"))
    control("clear")
    until_sync(lambda: state() == "connected")
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


def test_every_process_serves_health_and_metrics(appliance: Appliance) -> None:
    output = {}
    for port in (PORT + 1, PORT + 2, PORT + 3):
        for path in ("health/live", "health"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=PATIENCE) as answer:
                assert json.loads(answer.read())["alive"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
            output[port] = answer.read().decode()
    assert 'plantlog_samples_total{source="demo-opcua"}' in output[PORT + 1]
    assert 'plantlog_source_up{source="meters"} 1.0' in output[PORT + 2]
    assert 'plantlog_written_rows_total{method="copy"}' in output[PORT + 3]
    assert "plantlog_lag_seconds_bucket" in output[PORT + 3]


@pytest.mark.slow
def test_maintenance_runs_and_records_its_jobs(appliance: Appliance) -> None:
    def jobs() -> dict[str, str | None]:
        return {job["name"]: job["outcome"] for job in appliance.status()["jobs"]}

    until_sync(lambda: bool(jobs()) and all(jobs().values()))
    assert {name for name, outcome in jobs().items() if outcome == "failed"} == set()
    listed = json.loads(appliance.plantlog("admin", "maintenance", "--json"))
    assert [job["job"] for job in listed] == list(jobs())
    assert {job["job"]: job["outcome"] for job in listed if job["job"] in ("compress", "retain", "ahead")} == {
        "compress": "ok",
        "retain": "ok",
        "ahead": "ok",
    }
    assert "analyze: ok" in appliance.plantlog("admin", "maintenance", "run", "analyze")
    planned = json.loads(appliance.plantlog("admin", "retention", "--json"))
    assert (planned["slices"], planned["disk_budget"]) == ([], None)
    assert "compress" in appliance.plantlog("status", "--once")
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT + 5}/metrics", timeout=PATIENCE) as answer:
        output = answer.read().decode()
    assert 'plantlog_job_last_success_timestamp_seconds{job="compress"}' in output
    assert "plantlog_storage_days_left" in output


def test_second_up_changes_nothing(appliance: Appliance) -> None:
    before = {p["name"]: p["pid"] for p in appliance.status()["processes"]}
    appliance.plantlog("up")
    assert {p["name"]: p["pid"] for p in appliance.status()["processes"]} == before


def test_broken_configuration_file_does_not_stop_restarted_processes(appliance: Appliance) -> None:
    file = appliance.root / "plant" / "plant.toml"
    text = file.read_text()
    try:
        file.write_text("[plant")
        killed = appliance.kill("writer")
        until_sync(
            lambda: any(p["name"] == "writer" and p["ready"] and p["pid"] != killed for p in processes(appliance))
        )
        output = appliance.status()["configuration"]
        assert (output["file"], output["differs"], len(output["problems"])) == (str(file), True, 1)
    finally:
        file.write_text(text)
    assert appliance.status()["configuration"]["problems"] == []


def processes(appliance: Appliance) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = appliance.status()["processes"]
    return found


def test_its_dashboards_are_served(appliance: Appliance) -> None:
    output = appliance.plantlog("up")
    (address,) = [line.split()[1] for line in output.splitlines() if line.split()[:1] == ["dashboards"]]
    with urllib.request.urlopen(f"{address}api/dashboards", timeout=PATIENCE) as answer:
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


@pytest.mark.slow
async def test_edits_of_a_running_configuration_lose_nothing(appliance: Appliance, tmp_path: Path) -> None:
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


def test_discover_prints_a_valid_tag_list(appliance: Appliance, tmp_path: Path) -> None:
    command = [str(CHECKOUT / "plantlog"), "source", "discover", "demo-opcua", "--output", str(tmp_path / "found.csv")]
    environment = {**os.environ, "PLANTLOG_STATE": str(appliance.root)}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert run.returncode == 0, run.stderr
    assert "timeout" not in run.stderr, "libraries say nothing on the terminal"
    problems: list[Problem] = []
    found = {tag.address for tag, _ in read_tags(tmp_path / "found.csv", OpcuaTag, problems)}
    assert problems == []
    query = "SELECT address FROM channel WHERE source_id = (SELECT id FROM source WHERE name = 'demo-opcua')"
    addresses = appliance.plantlog("psql", "-Atc", query).splitlines()
    assert found == {address.replace("ns=2;", f"nsu={NAMESPACE};") for address in addresses}


# What the documentation says can be run, on a running appliance

# What makes, ends or measures something, or needs what is not here: other tests run it, and tests/unit/test_docs.py
# checks its words.
GROUPS = {"config", "source", "evidence", "admin", "lab"}
NOT_RUN = {
    *("up", "down", "user", "test", "config apply", "config rename", "config diff", "config revert"),
    *("source discover", "source import-tags", "source token", "evidence export", "evidence delete"),
    *("admin backup", "admin bundle", "admin certificate", "admin database", "admin init", "admin prepare"),
    *("admin restore", "admin service", "lab bench", "lab chaos"),
    *GROUPS,  # named alone
}
LINKED = ("plantlog", "ops", "dashboards")  # what commands name relative to the checkout


def names(blocks: list[docs.Block]) -> set[str]:
    """The commands of plantlog in some blocks."""
    lines = [words for block in blocks for words in docs.simple_commands(block.text)]
    return {name(words[1:]) for words in lines if words[0] == "./plantlog"}


def name(words: Sequence[str]) -> str:
    """The command of a command line, with its group."""
    return " ".join(words[: 2 if words[0] in GROUPS else 1])


def test_every_documented_command_is_run_by_a_test() -> None:
    run = names(docs.scripts()) | NOT_RUN | {"--help", "--version"}
    assert {name(words) for words in docs.plantlog()} | names(docs.blocks("sh no_run")) <= run


@pytest.mark.slow
@pytest.mark.parametrize("block", docs.scripts(), ids=str)
def test_documented_script_runs(appliance: Appliance, block: docs.Block, tmp_path: Path) -> None:
    for name in LINKED:
        (tmp_path / name).symlink_to(CHECKOUT / name)
    (tmp_path / ".state").symlink_to(appliance.root)
    (tmp_path / "script.sh").write_text(block.text)
    environment = {**os.environ, "PLANTLOG_STATE": str(appliance.root)}
    command = ["bash", "-euo", "pipefail", "script.sh"]
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=240
    )
    assert run.returncode == (1 if block.language == "sh fails" else 0), run.stdout + run.stderr


def test_readme_kill_command_hits_only_this_writer(appliance: Appliance) -> None:
    (script,) = [block.text for block in docs.blocks("sh no_run") if block.text.startswith("pkill -9 -f ")]
    pattern = script.split('"')[1].replace("$PWD/.state", str(appliance.root))
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=True).stdout
    assert [int(pid) for pid in found.split()] == [
        process["pid"] for process in appliance.status()["processes"] if process["name"] == "writer"
    ]


@pytest.mark.parametrize("block", docs.blocks("sql"), ids=str)
def test_documented_query_runs(appliance: Appliance, block: docs.Block) -> None:
    appliance.plantlog("psql", "-v", "ON_ERROR_STOP=1", "-c", block.text)


@pytest.mark.parametrize("block", docs.blocks("sql owner"), ids=str)
async def test_documented_owner_statement_runs(appliance: Appliance, block: docs.Block) -> None:
    connection = await asyncpg.connect((appliance.root / "secrets" / "owner.dsn").read_text().strip())
    try:
        for statement in block.statements():
            await connection.execute(statement)
    finally:
        await connection.close()


def test_every_table_is_documented(appliance: Appliance) -> None:
    page = CHECKOUT / "docs" / "sql.md"
    query = "SELECT relname FROM pg_class WHERE relnamespace = 'plant'::regnamespace AND relkind IN ('r', 'v')"
    there = set(appliance.plantlog("psql", "-Atc", query).split())
    assert there - set(docs.spans(page)) == set()
    headings = ("Plant", "Samples", "Rollups", "Counts", "Alarms", "Evidence and maintenance")
    assert {name for heading in headings for name in docs.names(page, heading)} - there == set()


def test_every_documented_function_exists(appliance: Appliance) -> None:
    query = "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'plant'::regnamespace"
    there = set(appliance.plantlog("psql", "-Atc", query).split())
    named = {name.partition("(")[0] for name in docs.names(CHECKOUT / "docs" / "sql.md", "Functions")}
    assert named
    assert named - there == set()


# Prometheus beside it: it finds every process, rules are evaluated, an alert reaches somebody


@pytest.fixture(scope="module")
def prometheus(appliance: Appliance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_prometheus(appliance, tmp_path_factory.mktemp("prometheus")) as address:
        yield address


def test_every_process_is_scraped_and_every_rule_evaluated(appliance: Appliance, prometheus: str) -> None:
    started = {load["labels"]["process"] for load in json.loads(appliance.plantlog("admin", "targets"))}
    assert {"writer", "collector-opcua", "collector-modbus", "maintenance"} <= started
    expected = dict.fromkeys(started, "up")
    until_sync(lambda: health(prometheus) == expected)
    for record in RECORDS:
        until_sync(lambda record=record: bool(series(prometheus, record)))
    groups = ask(prometheus, "rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(RECORDS) + len(ALERTS)
    assert [rule for rule in rules if rule["health"] == "err"] == []
    (rate,) = [result["value"][1] for result in series(prometheus, "sum(plantlog:samples:rate1m)")]
    assert float(rate) > 0
    (days,) = [one["value"][1] for one in series(prometheus, 'plantlog:certificate_left:days{certificate="own.der"}')]
    assert 1800 < float(days) <= 1825  # ours are made for five years


@pytest.mark.slow
def test_alert_fires_only_while_a_collector_is_stopped(appliance: Appliance, prometheus: str) -> None:
    down = ("PlantlogProcessDown", "collector-modbus")
    until_sync(lambda: health(prometheus).get("collector-modbus") == "up")
    until_sync(lambda: down not in firing(prometheus))
    appliance.supervisor.stop_programs("collector-modbus")
    until_sync(lambda: {alert for alert in firing(prometheus) if alert[0] == down[0]} == {down})
    appliance.supervisor.start_program("collector-modbus")
    until_sync(lambda: down not in firing(prometheus))
