"""``plantlog lab bench overload`` in its smallest form: it recovers from each strain, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from core.paths import CHECKOUT


def test_appliance_recovers_from_each_overload(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    short = ("--seconds", "2", "--window", "1", "--before", "1", "--warm-up", "0")
    small = ("--channels", "1100", "--hz", "1", "--busy", "3", "--database", "", "--load", "2", *short)
    command: list[str | Path] = [CHECKOUT / "plantlog", "lab", "bench", "overload", *small, "--json", file]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
    cases = json.loads(file.read_text())["overload"]
    assert [case["name"] for case in cases] == ["3 busy", "load × 2"]
    for case in cases:
        assert case["lost"] == 0, case
        assert case["recovered"] is not None, case
        assert case["samples"] > 500, case
        assert case["gaps"] <= case["gap_rows"] == sum(rows for rows, _ in case["gap_reasons"].values()), case
        assert case["cpu_before"] > 0 < case["cpu_after"], case
        assert case["name"] in run.stdout
    flood = cases[-1]["gateway"]
    assert flood["offered"] >= flood["stored"] >= flood["taken"] > 0, "what was not answered in time may be stored, too"
    assert "wrong" not in flood
    assert cases[-1]["samples_during"] > cases[-1]["samples"], "the flood is written beside the plant's"
