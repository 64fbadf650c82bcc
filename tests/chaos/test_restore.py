"""The appliance is killed and loses its database: after ``plantlog admin restore``, nothing published is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core.paths import CHECKOUT, State
from core.timestamps import now_us
from ops.backup.repository import backups
from tests import supervised
from tests.e2e.appliance import running
from tests.folders import enterable_tmp_path  # noqa: F401  (a fixture)
from tests.ports import free_ports
from tests.waiting import until

SECOND = 1_000_000  # µs

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="installing pgBackRest needs root")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The demo plant with ``[backup]``."""
    first = free_ports(13)
    ports = {"health": first + 1, "viewer": first + 7, "opcua": first + 8, "modbus": first + 9}
    options = [f"--{name}-port={port}" for name, port in ports.items()]
    command = [sys.executable, "-P", "-m", "simulator", "export", str(tmp_path / "plant"), *options]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(CHECKOUT)})
    (tmp_path / "repository").mkdir()
    passphrase = tmp_path / "passphrase"
    passphrase.touch(0o600)
    passphrase.write_text("correct-horse-battery-staple\n")
    path = tmp_path / "plant" / "plant.toml"
    with path.open("a") as file:
        file.write(f'\n[backup]\nrepository = "{tmp_path}/repository"\npassphrase_file = "{passphrase}"\n')
    return path


async def test_restore_after_the_loss_of_the_database(config: Path, tmp_path: Path) -> None:
    with running(tmp_path / "state", "--config", str(config), "--simulator") as appliance:
        state = State(appliance.root)
        await until(lambda: backups(state), every=0.5)  # the first one is due at once
        start = now_us() + SECOND
        await appliance.until_stored(start + 3 * SECOND)
        supervised.end(state)
        shutil.rmtree(appliance.root / "postgres" / "cluster" / "data")
        appliance.plantlog("admin", "restore")
        total = (await appliance.compared(start, now_us() + SECOND))["all"]
        assert (total.duplicated, total.invented, total.altered, total.missing_silent) == (0, 0, 0, 0)
        assert total.stored > 1000
