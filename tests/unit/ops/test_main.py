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
import numpy
print(len(os.listdir("/proc/self/task")))
"""


def threads(**environment: str) -> int:
    """Number of threads after a command, in an environment."""
    ended = subprocess.run(
        [sys.executable, "-P", "-c", _PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(CHECKOUT), **environment},
    )
    return int(ended.stdout.splitlines()[-1])


def test_matrices_are_computed_by_one_thread() -> None:
    assert threads() == threads(OPENBLAS_NUM_THREADS="1")
