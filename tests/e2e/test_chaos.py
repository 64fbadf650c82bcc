"""``plantlog chaos`` as a user runs it, against a server that is not ours."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from ops.paths import CHECKOUT
from tests.peer_builds import node
from tests.waiting import PATIENCE


def test_node_opcua_survived() -> None:
    node("opcua-server.js")
    command: list[str | Path] = [
        CHECKOUT / "plantlog",
        "chaos",
        "--server",
        "node-opcua",
        "--seconds",
        "15",
        "--seed",
        "70",
    ]
    run = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    said = json.loads(run.stdout)
    assert said["published"] > said["stored"] * 0.9 > 1000
    assert [said[key] for key in ("duplicated", "invented", "altered", "missing_silent", "failures")] == [
        0,
        0,
        0,
        0,
        [],
    ]
    assert sum(said["faults"].values()) >= 5
    assert {"OPC UA server killed and restarted", "collector-opcua killed"} <= said["faults"].keys()


def test_an_unknown_server_is_named() -> None:
    command: list[str | Path] = [CHECKOUT / "plantlog", "chaos", "--server", "none"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert run.returncode == 2
    assert "node-opcua" in run.stderr


def test_sigterm_ends_the_whole_chaos_run() -> None:
    command: list[str | Path] = [CHECKOUT / "plantlog", "chaos", "--seconds", "600", "--channels", "50"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        while " s  " not in (line := running.stdout.readline()):
            assert line, "it ended before the first fault"
        running.terminate()
        said, _ = running.communicate(timeout=120)
    assert running.returncode == 2
    assert "chaos failed: terminated" in said
    folder = said.rsplit(" ", maxsplit=1)[-1].strip()
    assert folder not in Path("/proc/mounts").read_text()
    assert folder not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    shutil.rmtree(folder)
