"""The program behind ``./plantlog``."""

from __future__ import annotations

import subprocess
import sys

from core.paths import CHECKOUT

_PROGRAM = """
import os, runpy, sys
sys.argv = ["plantlog", "ask"]
try:
    runpy.run_module("ops", run_name="__main__")
except SystemExit:
    pass
before = len(os.listdir("/proc/self/task"))
import numpy
numpy.linalg.eigh(numpy.random.default_rng(1).normal(size=(300, 300)))
print(len(os.listdir("/proc/self/task")) - before, "more threads")
"""


def test_matrices_are_computed_by_one_thread() -> None:
    """Commands import numpy after its libraries have been told so."""
    ended = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        cwd=CHECKOUT,
        env={"PYTHONPATH": str(CHECKOUT)},
    )
    assert "first_mover" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "0 more threads"
