"""Prometheus beside a living appliance: it finds every process, rules are evaluated, an alert reaches somebody."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from ops.ports import free_ports
from ops.prometheus.alerts import ALERTS, RECORDS
from tests.e2e.appliance import Appliance, running, until
from tests.e2e.watching import watching

PORT = free_ports(13)


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    with running(tmp_path_factory.mktemp("watched") / "state", "--port", str(PORT)) as up:
        yield up


@pytest.fixture(scope="module")
def prometheus(appliance: Appliance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with watching(appliance, tmp_path_factory.mktemp("prometheus")) as address:
        yield address


def ask(server: str, path: str, **query: str) -> Any:
    """What Prometheus' API answers; None while it starts."""
    try:
        with urllib.request.urlopen(f"{server}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.loads(answer.read())["data"]
    except OSError:
        return None


def series(server: str, query: str) -> list[Any]:
    said = ask(server, "query", query=query)
    return [] if said is None else list(said["result"])


def health(server: str) -> dict[str, str]:
    said = ask(server, "targets", state="active")
    return {} if said is None else {one["labels"]["process"]: one["health"] for one in said["activeTargets"]}


def firing(server: str) -> set[tuple[str, str]]:
    said = ask(server, "alerts")
    return {
        (one["labels"]["alertname"], one["labels"].get("process", ""))
        for one in said["alerts"]
        if one["state"] == "firing"
    }


def test_every_process_is_scraped_and_every_rule_evaluated(appliance: Appliance, prometheus: str) -> None:
    started = {one["labels"]["process"] for one in json.loads(appliance.plantlog("targets"))}
    assert {"writer", "collector-opcua", "collector-modbus", "maintenance"} <= started
    expected = dict.fromkeys(started, "up")
    until(lambda: health(prometheus) == expected)
    for record in RECORDS:
        until(lambda record=record: bool(series(prometheus, record.record)))  # type: ignore[misc]
    groups = ask(prometheus, "rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) == len(RECORDS) + len(ALERTS)
    assert [rule for rule in rules if rule["health"] == "err"] == []
    (rate,) = [one["value"][1] for one in series(prometheus, "sum(plantlog:samples:rate1m)")]
    assert float(rate) > 0
    (days,) = [one["value"][1] for one in series(prometheus, 'plantlog:certificate_left:days{certificate="own.der"}')]
    assert 1800 < float(days) <= 1825  # ours are made for five years


def test_an_alert_fires_while_a_collector_is_stopped_and_not_longer(appliance: Appliance, prometheus: str) -> None:
    down = ("PlantlogProcessDown", "collector-modbus")
    until(lambda: health(prometheus).get("collector-modbus") == "up")
    assert firing(prometheus) == set()
    appliance.supervisor.stop_program("collector-modbus")
    until(lambda: down in firing(prometheus))
    assert {name for name, process in firing(prometheus) if process == "writer"} == set()
    appliance.supervisor.start_program("collector-modbus")
    until(lambda: down not in firing(prometheus))
