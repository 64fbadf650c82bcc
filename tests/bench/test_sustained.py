"""``bench sustained`` in a small form: an appliance of its own holds a rate, and its last samples are compared."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from core.paths import CHECKOUT
from tests.ports import free_ports


@pytest.mark.timeout(600)
def test_sustained_rate_is_held_and_reported(tmp_path: Path) -> None:
    file, plot = tmp_path / "figures.json", tmp_path / "curve.svg"
    short = ("--rates", "1100", "--seconds", "5", "--warm-up", "1", "--hours", "0", "--limit", "60")
    command = [str(CHECKOUT / "plantlog"), "lab", "bench", "sustained", *short, "--port", str(free_ports(13))]
    command += ["--plot", str(plot), "--json", str(file)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=560, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    (step,) = json.loads(file.read_text())["sustained"]
    assert step["compared"] > 4_000, "both protocols' ground truth is known"
    assert step["silent"] == 0
    assert step["run"]["channels"] * step["run"]["hz"] == 1100
    assert 0 < step["run"]["oldest_p50"] <= step["run"]["oldest_p99"]
    assert 10 < step["bytes_per_sample"] < 1000
    assert {"simulator", "collector-opcua", "collector-modbus", "writer"} <= step["run"]["processes"].keys()
    assert "<!-- bytes per sample -->" in plot.read_text()
