"""``plantlog lab chaos``: what it refuses, and how it is ended. CI runs it as a user does."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from core.paths import CHECKOUT
from tests.waiting import PATIENCE


def test_an_unknown_server_is_named() -> None:
    command: list[str | Path] = [CHECKOUT / "plantlog", "lab", "chaos", "--server", "none"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert run.returncode == 2
    assert "node-opcua" in run.stderr


def test_sigterm_ends_the_whole_chaos_run() -> None:
    command: list[str | Path] = [CHECKOUT / "plantlog", "lab", "chaos", "--seconds", "600", "--channels", "50"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        while " s  " not in (line := running.stdout.readline()):
            assert line, "it ended before the first fault"
        running.terminate()
        output, _ = running.communicate(timeout=PATIENCE)
    assert running.returncode == 2
    assert "chaos failed: terminated" in output
    folder = output.rsplit(" ", maxsplit=1)[-1].strip()
    assert folder not in Path("/proc/mounts").read_text()
    assert folder not in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    shutil.rmtree(folder)
