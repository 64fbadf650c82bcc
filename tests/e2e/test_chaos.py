"""``plantlog chaos`` as a user runs it, against a server that is not ours."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from ops.paths import CHECKOUT
from tests.peers import install


def test_node_opcua_survived(tmp_path: Path) -> None:
    install()
    figures, before = tmp_path / "figures.json", mounts()
    command: list[str | Path] = [
        CHECKOUT / "plantlog",
        "chaos",
        "--server",
        "node-opcua",
        "--seconds",
        "30",
        "--seed",
        "3",
    ]
    run = subprocess.run([*command, "--json", figures], capture_output=True, text=True, check=False, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    said = json.loads(figures.read_text())
    assert said["published"] > said["stored"] * 0.9 > 1000
    assert [said[key] for key in ("duplicated", "invented", "altered", "missing_silent", "failures")] == [
        0,
        0,
        0,
        0,
        [],
    ]
    assert sum(said["faults"].values()) >= 5
    assert mounts() <= before, "the disk is unmounted"


def mounts() -> set[str]:
    return {line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if "plantlog-chaos-" in line}


def test_a_server_that_is_not_installed_is_named(tmp_path: Path) -> None:
    command: list[str | Path] = [CHECKOUT / "plantlog", "chaos", "--server", "none"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 2
    assert "'simulator', 'node-opcua'" in run.stderr
