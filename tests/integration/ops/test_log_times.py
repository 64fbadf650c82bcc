"""Every process writes times in UTC to its log, with their zone and in one form, wherever the machine is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from core.paths import CHECKOUT
from lab.chaos.soak import unexplained
from ops.appliance.supervisor import Supervisor
from ops.postgres.server import Server
from tests.states import claimed
from tests.supervised import end

_TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) Z ")


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")


def check(text: str, began: datetime) -> None:
    """There are lines, and all have such a time, which is now."""
    lines = text.splitlines()
    assert lines
    for line in lines:
        found = _TIME.match(line)
        assert found is not None, line
        assert timedelta(seconds=-1) < datetime.fromisoformat(f"{found[1]}+00:00") - began < timedelta(hours=1)


def test_own_processes() -> None:
    began = datetime.now(UTC)
    program = "import logging; from core import log; log.configure(); logging.warning('a'); logging.info('b')"
    run = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    check(run.stderr, began)
    assert len(run.stderr.splitlines()) == 2


def test_supervisord(tmp_path_factory: pytest.TempPathFactory) -> None:
    began, umask = datetime.now(UTC), os.umask(0o077)  # which `claim` sets, and which a server of tests must not have
    state = claimed(tmp_path_factory.mktemp("s"))
    try:
        Supervisor(state).start([])
        check((state.log / "supervisord.log").read_text(), began)
    finally:
        end(state)
        os.umask(umask)


def test_postgresql(server: str, tmp_path: Path) -> None:
    """``server`` is asked for because it sees to the programs being there."""
    assert server
    began = datetime.now(UTC)
    with Server(tmp_path, log=tmp_path / "postgres.log"):
        pass
    lines = [line for line in (tmp_path / "postgres.log").read_text().splitlines() if not line.startswith("\t")]
    check("\n".join(lines), began)
    with (tmp_path / "postgres.log").open("a") as log:
        log.write(lines[-1].replace("LOG:", "ERROR:") + "\n")
    now = datetime.now(UTC).timestamp()
    assert any("ERROR:" in line for line in unexplained(tmp_path, now - 3600, now + 1, []))
