"""The rules of Prometheus, as promtool sees them."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.prometheus_rules import ALERTS, FOLDER, RECORDS, RULES


def promtool(*arguments: str) -> str:
    program = shutil.which("promtool")
    assert program is not None, "promtool is missing: apt-get install prometheus"
    environment = {**os.environ, "GOGC": "1000"}  # collects garbage less often: a quarter less CPU time
    run = subprocess.run(
        [program, *arguments], env=environment, capture_output=True, text=True, check=False, cwd=FOLDER
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_promtool_accepts_configuration_and_rules() -> None:
    assert f"{len(ALERTS) + len(RECORDS)} rules found" in promtool("check", "rules", str(RULES))
    promtool("check", "config", "prometheus.yml")


@pytest.mark.slow
def test_each_alert_fires_exactly_when_expected() -> None:
    cases = (FOLDER / "rules_test.yml").read_text()
    for alert in ALERTS:
        assert f'alertname="{alert}"' in cases, f"{alert} has no case in which it fires"
    promtool("test", "rules", "rules_test.yml")
