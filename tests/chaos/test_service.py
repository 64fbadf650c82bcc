"""``plantlog admin service`` under a real systemd: it starts, restarts what fails, and starts at boot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.paths import State
from core.timestamps import now_us
from ops.appliance.database import psql_command
from tests.booted import Machine, machine
from tests.e2e.appliance import NEWEST
from tests.waiting import until_sync

_LONG = 300.0  # s: a start of the whole appliance


@pytest.fixture
def booted(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path) as one:
        yield one


def until_collecting(booted: Machine) -> None:
    """Wait until the service is active, and every source has samples from now on in the table."""
    start = now_us()

    def collects() -> bool:
        if booted.show("ActiveState") != "active":
            return False
        psql, environment = psql_command(State(booted.state))  # `plantlog psql` would start another Python each second
        password = f"PGPASSWORD={environment['PGPASSWORD']}"
        newest = booted.run("env", password, *psql, "-At", "-c", NEWEST, code=None).strip()
        return newest.isdigit() and int(newest) > start

    until_sync(collects, _LONG, 1.0, booted.journal)


def until_restarted(booted: Machine, main: str) -> None:
    """Wait until systemd has started it again, no longer with the process ``main``, and it collects."""
    until_sync(lambda: booted.show("MainPID") not in (main, "0"), _LONG, 1.0, booted.journal)
    until_collecting(booted)


@pytest.mark.timeout(1800)
def test_service_is_restarted_by_systemd(booted: Machine) -> None:
    output = booted.plantlog("admin", "service", "install")
    assert "start plantlog" in output
    assert booted.run("systemctl", "is-enabled", "plantlog").strip() == "enabled"
    until_collecting(booted)
    assert "unchanged" in booted.plantlog("admin", "service", "install"), "it goes on"
    assert "NRestarts=0" in booted.run("systemctl", "show", "plantlog", "--property=NRestarts")
    main = booted.show("MainPID")

    booted.plantlog("up")  # beside it
    until_collecting(booted)
    assert booted.show("MainPID") == main

    supervisor = (booted.state / "run" / "supervisord.pid").read_text().strip()
    booted.run("kill", "-KILL", supervisor)
    until_restarted(booted, main)

    booted.run("mkdir", "-p", "/etc/systemd/system/plantlog.service.d")
    booted.run("sh", "-c", "printf '[Service]\\nWatchdogSec=20\\n' > /etc/systemd/system/plantlog.service.d/test.conf")
    booted.run("systemctl", "daemon-reload")
    booted.run("systemctl", "restart", "plantlog")
    main = booted.show("MainPID")
    booted.run("kill", "-STOP", main)
    until_restarted(booted, main)
    assert "Fatal Python error: Aborted" in booted.journal(), "the watchdog's signal"


@pytest.mark.timeout(1800)
def test_service_beside_up_and_down_and_at_boot(booted: Machine) -> None:
    booted.plantlog("admin", "service", "install")
    for _ in range(2):  # while it runs, and while it starts
        booted.plantlog("down")
        until_sync(lambda: booted.show("ActiveState") == "inactive", show=booted.journal)
        assert booted.show("Result") == "success"
        booted.run("systemctl", "start", "--no-block", "plantlog")
        until_sync(lambda: booted.show("StatusText") == "starting", show=booted.journal)
    booted.plantlog("down")
    assert "systemctl restart plantlog" in booted.plantlog("up"), "it says that this is not the service"
    booted.run("systemctl", "restart", "plantlog")
    until_collecting(booted)
    assert "started outside of this service" in booted.journal()

    booted.reboot()
    until_collecting(booted)

    booted.plantlog("admin", "service", "uninstall")
    assert booted.run("systemctl", "is-enabled", "plantlog", code=1).strip() != "enabled"
    assert "stopped" in booted.plantlog("down")
    assert (booted.state / "registry.json").exists()
