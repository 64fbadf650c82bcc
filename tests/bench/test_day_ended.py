"""A simulated day that is ended leaves nothing behind, whenever that is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from core.paths import CHECKOUT
from tests.waiting import until_sync


def _of(state: str) -> list[str]:
    """The commands of the processes that work on a state folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("PLANTLOG_STATE") == state and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except (psutil.Error, OSError):
            continue
    return found


@pytest.mark.slow
def test_day_that_is_ended_while_it_starts_leaves_nothing() -> None:
    command = [sys.executable, "-P", "-m", "ops", "bench", "day", "--channels", "4", "--minutes", "1"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as bench:
        children = psutil.Process(bench.pid).children

        def states() -> list[str]:
            environments = [child.environ() for child in children() if child.status() != psutil.STATUS_ZOMBIE]
            return [one["PLANTLOG_STATE"] for one in environments if "plantlog-bench-" in one.get("PLANTLOG_STATE", "")]

        until_sync(states)
        [state] = states()
        bench.terminate()
        until_sync(lambda: any("down" in child.cmdline() for child in children()) or bench.poll() is not None)
        bench.terminate()  # twice, as who is impatient does
        _, errors = bench.communicate()
    assert (bench.returncode, "Traceback" in errors) == (1, False), errors
    assert errors.endswith("terminated before it was finished\n")
    assert _of(state) == []
    assert not Path(state).parent.exists()
