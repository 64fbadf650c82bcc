"""Start and failure of a process: the first cause is the last line of its log, which `status` shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from core.process import starts
from tests.config_in_force import activate

_PROCESS = """
import asyncio, sys
from pathlib import Path
from core.errors import OperationError
from core.process.entry import run

async def fail():
    raise {error}

async def process(settings, state, stop):
    async with asyncio.TaskGroup() as outer:
        async with asyncio.TaskGroup() as inner:
            inner.create_task(fail())

sys.exit(run({name!r}, process, Path(sys.argv[1])))
"""


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        ("OperationError('the port is taken')", ["the port is taken"]),
        ("ValueError('a bug')", ["Traceback (most recent call last):", "ValueError: a bug"]),
    ],
)
def test_first_cause_is_the_last_line(tmp_path: Path, error: str, lines: list[str]) -> None:
    (tmp_path / "tags.csv").write_text("name,address\na,holding:0\n")
    (tmp_path / "plant.toml").write_text(
        '[plant]\nname = "p"\n[[source]]\nname = "s"\nkind = "modbus"\naddress = "tcp://h:1"\ntags = "tags.csv"\n'
    )
    (tmp_path / "installation").write_text("5d5f2b1c-8a1e-4c57-9d3e-0d1f3b1e9c11")
    activate(tmp_path, tmp_path / "plant.toml")
    for name in ("writer", "collector-modbus"):
        command = [sys.executable, "-c", _PROCESS.format(error=error, name=name), str(tmp_path)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        printed = ended.stderr.splitlines()
        assert (ended.returncode, printed[-1]) == (1, lines[-1])
        assert (len(printed) == 1) == (len(lines) == 1)
    assert [process for _, process, _ in starts.notes(tmp_path)] == ["writer"], "collectors record theirs by source"
