"""What a newcomer sees: the demo plant, all channels, texts too, a device that fails and comes back."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator

import pytest

from ingest.batch import now_us
from ops.ports import free_ports
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


def test_its_dashboards_are_served(appliance: Appliance) -> None:
    said = appliance.plantlog("up")
    (address,) = [line.split()[1] for line in said.splitlines() if line.split()[:1] == ["dashboards"]]
    with urllib.request.urlopen(f"{address}api/dashboards", timeout=10) as answer:
        assert len(json.loads(answer.read())) == 6
