"""The unit of the service: golden files of a user's and of root's, and what paths and devices become in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from core.config import token_file
from core.config.load import load
from core.errors import OperationError
from core.paths import CHECKOUT, EXAMPLE
from ops.service.unit import MARK, Service, check_name, device_kinds

GOLDEN = CHECKOUT / "tests" / "unit" / "golden" / "service"
EXAMPLE_PLANT = load(EXAMPLE)
_DRIVERS = """\
Character devices:
  1 mem
  4 /dev/vc/0
  4 tty
  4 ttyS
188 ttyUSB

Block devices:
188 sd
"""
_PLANT = """
[plant]
name = "mill"
[push]
port = 443
[[source]]
name = "meter"
kind = "modbus"
address = "serial:///dev/serial/by-id/none-is-plugged-in?baud=9600"
tags = "tags.csv"
[backup]
repository = "/mnt/backup of the mill"
passphrase_file = "/etc/plantlog/passphrase"
[archive]
location = "/mnt/archive"
"""


def unit_of(folder: Path, text: str, user: str, state: str, cache: str = "") -> str:
    """The unit, without what differs from machine to machine."""
    (folder / "tags.csv").write_text("name,address\na,holding:0\n")
    (folder / "plant.toml").write_text(text.replace("/etc/plantlog", str(folder)))
    for name in ("passphrase", "token"):  # the hash of a token is as good a passphrase
        token_file.write(folder / name, "0123456789abcdef0123456789abcdef")
    plant = load(folder / "plant.toml")
    service = Service("plantlog", user, Path(state), folder / "plant.toml", plant, cache)
    unit = service.render().replace(str((CHECKOUT / ".venv").resolve()), "CHECKOUT/.venv")
    assert unit.splitlines()[0] == MARK
    unit = re.sub(r"\n(ProtectHome|PrivateTmp)=.*", r"\n\1=DEPENDS", unit).replace(" /tmp /var/tmp\n", "\n")
    return unit.replace(str(CHECKOUT), "CHECKOUT")


def golden(name: str) -> str:
    return (GOLDEN / name).read_text()


def test_unit_of_a_user_with_a_serial_line_and_a_low_port(tmp_path: Path) -> None:
    assert unit_of(tmp_path, _PLANT, "plantlog", "/var/lib/plantlog") == golden("user.service")


def test_unit_of_root(tmp_path: Path) -> None:
    plant = (
        '[plant]\nname = "mill"\n[[source]]\nname = "edge"\nkind = "push"\ntoken_file = "token"\nunknown = "create"\n'
    )
    assert unit_of(tmp_path, plant, "root", "/srv/plant 1/50%", "/srv/cache") == golden("root.service")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="without systemd-analyze")
@pytest.mark.parametrize("name", ["user.service", "root.service"])
def test_systemd_understands_every_line(name: str, tmp_path: Path) -> None:
    unit = tmp_path / "plantlog.service"
    for folder in ("a 50%", "state"):
        (tmp_path / folder).mkdir()
    text = (
        golden(name).replace("CHECKOUT", str(CHECKOUT)).replace("DEPENDS", "yes").replace("User=plantlog", "User=root")
    )
    unit.write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "plantlog.service" not in run.stderr, run.stderr
    unit.write_text(text.replace("KillMode=mixed", "KillMode=kindly"))
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "kill mode" in run.stderr, "a mistake is seen"


@pytest.mark.parametrize(
    ("folder", "protection"), [("/home/me/plant", "read-only"), ("/srv/plant", "yes"), ("/run/user/1/p", "read-only")]
)
def test_home_folders_are_hidden_unless_something_lies_there(
    folder: str, protection: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/usr/bin/python3")
    monkeypatch.setattr("ops.service.unit._HOMES", (Path("/home"), Path("/run/user")))
    places = Path(folder), Path("/etc/plantlog/plant.toml")
    unit = Service("plantlog", "me", *places, EXAMPLE_PLANT, checkout=tmp_path / "opt").render()
    assert f"\nProtectHome={protection}\n" in unit


@pytest.mark.parametrize(
    ("folder", "private"), [("/tmp/plant", False), ("/var/tmp/plant", False), ("/srv/plant", True)]
)
def test_temporary_files_are_private_unless_something_lies_there(
    folder: str, private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/usr/bin/python3")
    places = Path(folder), Path("/etc/plantlog/plant.toml")
    unit = Service("plantlog", "me", *places, EXAMPLE_PLANT, checkout=Path("/opt/plantlog")).render()
    assert f"\nPrivateTmp={'yes' if private else 'no'}\n" in unit
    assert (" /tmp /var/tmp\n" in unit) is not private


def test_path_that_a_unit_cannot_hold_is_refused() -> None:
    service = Service("plantlog", "me", Path("/srv/a\nUser=root"), Path("/p"), EXAMPLE_PLANT)
    with pytest.raises(OperationError, match="choose a path without control characters"):
        service.render()


def test_serial_devices_are_allowed_by_their_driver(tmp_path: Path) -> None:
    """So that one which is plugged in later, or again, is allowed."""
    drivers = tmp_path / "devices"
    drivers.write_text(_DRIVERS)
    assert device_kinds(tmp_path / "ttyUSB7", drivers) == ("ttyUSB",)
    assert device_kinds(tmp_path / "ttyAMA10", drivers) == ("ttyAMA",)
    assert device_kinds(Path("/dev/serial/by-id/none"), drivers) == ("ttyUSB", "ttyACM")
    link = tmp_path / "line"
    link.symlink_to("/dev/null")
    assert device_kinds(link, drivers) == ("mem",)
    primary, secondary = os.openpty()
    try:
        drivers.write_text(f"Character devices:\n{os.major(os.fstat(secondary).st_rdev)} pts\n")
        assert device_kinds(Path(os.ttyname(secondary)), drivers) == ("pts",)
    finally:
        os.close(primary)
        os.close(secondary)


@pytest.mark.parametrize("name", ["", "a b", "../x", "plantlog.service", "-x", "a@b", "x" * 101])
def test_names_that_a_unit_cannot_have_are_refused(name: str) -> None:
    with pytest.raises(OperationError, match="legal: letters, digits"):
        check_name(name)


def test_names_of_units() -> None:
    for name in ("plantlog", "plant-2", "line_1.north"):
        check_name(name)
