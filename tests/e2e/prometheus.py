"""Prometheus beside an appliance, by the native recipe."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.paths import CHECKOUT
from tests.e2e.appliance import Appliance
from tests.ports import free_ports
from tests.waiting import PATIENCE


@contextmanager
def running_prometheus(appliance: Appliance, folder: Path) -> Iterator[str]:
    """The address of a Prometheus with our configuration, in a hurry: what takes minutes takes seconds."""
    program = shutil.which("prometheus")
    assert program is not None, "prometheus is missing: apt-get install prometheus"
    recipe = CHECKOUT / "ops" / "prometheus"
    shutil.copytree(recipe, folder, ignore=shutil.ignore_patterns("*.json"), dirs_exist_ok=True)
    rules = folder / "rules" / "plantlog.yml"
    rules.write_text(re.sub(r"for: \d+[mh]", "for: 2s", rules.read_text()))
    config = (recipe / "prometheus.yml").read_text()
    (folder / "prometheus.yml").write_text(config.replace("interval: 15s", "interval: 1s"))
    (folder / "targets" / "native.json").write_text(appliance.plantlog("admin", "targets"))
    port = free_ports(1)
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [
                *(program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"),
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)


def ask(server: str, path: str, **query: str) -> Any:
    """Response of Prometheus' API; None while it starts."""
    try:
        with urllib.request.urlopen(
            f"{server}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=PATIENCE
        ) as answer:
            return json.loads(answer.read())["data"]
    except OSError:
        return None


def series(server: str, query: str) -> list[Any]:
    reply = ask(server, "query", query=query)
    return [] if reply is None else list(reply["result"])


def health(server: str) -> dict[str, str]:
    reply = ask(server, "targets", state="active")
    return {} if reply is None else {target["labels"]["process"]: target["health"] for target in reply["activeTargets"]}


def firing(server: str) -> set[tuple[str, str]]:
    reply = ask(server, "alerts")
    return {
        (alert["labels"]["alertname"], alert["labels"].get("process", ""))
        for alert in reply["alerts"]
        if alert["state"] == "firing"
    }
