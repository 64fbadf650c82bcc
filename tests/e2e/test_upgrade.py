"""An upgrade under load: an earlier release runs, this one takes its state folder over from another directory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from core.paths import CHECKOUT, State
from core.timestamps import now_us
from ops.appliance import orphans
from tests.e2e.appliance import Appliance
from tests.peer_builds import root_of_1_0
from tests.ports import free_ports
from tests.processes import command_line, environment
from tests.releases import commit_of, releases

SECOND = 1_000_000  # µs
RATE = 2_000  # samples/s


@pytest.fixture(scope="module", params=releases(), ids=lambda release: release.name.removesuffix(".tar.xz"))
def earlier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release in a directory of its own; it shares our virtual environment where that has what it needs."""
    folder = tmp_path_factory.mktemp("earlier")
    archive = ["git", "archive", commit_of(request.param)]
    content = subprocess.run(archive, cwd=CHECKOUT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=content, check=True)
    if _pinned(folder / "requirements.lock") <= _pinned(CHECKOUT / "requirements-dev.lock"):
        shutil.copy(CHECKOUT / "requirements.lock", folder)  # so that it installs nothing
        (folder / ".venv").symlink_to(CHECKOUT / ".venv")
    return folder


def _pinned(lock: Path) -> set[str]:
    return set(re.findall(r"^[\w.-]+==\S+", lock.read_text(), re.MULTILINE))


@pytest.fixture
def appliance(earlier: Path, tmp_path: Path) -> Iterator[Appliance]:
    """The earlier version, running, under load."""
    appliance = Appliance(tmp_path / "state")
    command = [str(earlier / "plantlog"), "up", "--channels", str(RATE * 11 // 10), "--port", str(free_ports(13))]
    try:
        environment = {**os.environ, "PLANTLOG_STATE": str(appliance.root), "PLANTLOG_ROOTFS": str(root_of_1_0())}
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
        assert run.returncode == 0, run.stdout + run.stderr
        yield appliance
    finally:
        appliance.plantlog("down", "--wipe", "--yes")


@pytest.mark.slow
async def test_nothing_is_lost_without_a_gap(appliance: Appliance, earlier: Path) -> None:
    start = now_us() + SECOND
    await appliance.until_stored(start + 2 * SECOND)
    before = now_us()
    output = appliance.plantlog("up")
    assert "another plantlog version is running" in output
    assert "not ready" not in output
    after = now_us()
    result = await appliance.compared(start, after + 2 * SECOND)
    total = result["all"]
    assert (total.invented, total.altered, total.missing_silent) == (0, 0, 0), result
    assert (await appliance.compared(start, before - SECOND))["all"].published > 0
    later = (await appliance.compared(after, after + 2 * SECOND))["opcua"]
    assert later.stored == later.published > RATE

    for name, processes in orphans.find(State(appliance.root)).items():
        for process in processes:
            assert not _of(earlier, process), name
    assert all(process["ready"] is not False for process in appliance.status()["processes"])

    running = {process["name"]: process["pid"] for process in appliance.status()["processes"]}
    assert "another plantlog" not in appliance.plantlog("up")
    assert {process["name"]: process["pid"] for process in appliance.status()["processes"]} == running


def _of(folder: Path, process: psutil.Process) -> bool:
    words = [*command_line(process), environment(process).get("PYTHONPATH", "")]
    return any(str(folder) in word for word in words)
