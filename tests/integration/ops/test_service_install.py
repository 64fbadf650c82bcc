"""The service: messages to its manager, stuck processes, who runs an appliance, and installations that are refused."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.errors import OperationError
from core.paths import CHECKOUT, State
from ops.appliance import service
from ops.appliance.supervisor import ProcessState
from ops.service import install
from ops.service.foreground import ServiceManager, StuckProcesses
from ops.service.unit import MARK
from tests.command import run
from tests.waiting import PATIENCE, until_sync

_HOLD = """
import sys, time
from pathlib import Path
from ops.appliance.service import attend
from core.paths import State
with attend(State(Path(sys.argv[1])), "mill"):
    print(flush=True)
    time.sleep(600)
"""
_IDLE = "import time\nwhile True: time.sleep(600)"
_BUSY = "text = bytes(2**24); file = open('/dev/null', 'wb', 0)\nwhile True: file.write(text)"


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket of a service manager, which NOTIFY_SOCKET names."""
    address = str(tmp_path / "notify") if request.param == "path" else f"@plantlog-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address.replace("@", "\0", 1) if request.param == "abstract" else address)
        listening.settimeout(PATIENCE)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        yield listening


def test_messages_reach_the_manager(manager: socket.socket) -> None:
    sender = ServiceManager.take()
    sender.send("READY=1", "STATUS=all is well: 3 µm")
    assert manager.recv(4096).decode() == "READY=1\nSTATUS=all is well: 3 µm"
    with sender.extending():
        assert manager.recv(4096).decode().startswith("EXTEND_TIMEOUT_USEC=")
    assert "NOTIFY_SOCKET" not in os.environ, "PostgreSQL would write to it, too"


def test_manager_that_is_gone_or_absent_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for address in (str(tmp_path / "nobody"), "@plantlog-nobody", ""):
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        ServiceManager.take().send("READY=1")


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [("20000000", "ours", 20.0), ("500000", "", 0.5), ("500000", "1", None), ("", "", None)],
)
def test_watchdog_is_that_of_this_process(
    usec: str, pid: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()) if pid == "ours" else pid)
    assert ServiceManager.take().watchdog_seconds == seconds


@contextmanager
def child(code: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=CHECKOUT, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_process_that_neither_answers_nor_works_is_stuck() -> None:
    with child(_IDLE) as idle, child(_BUSY) as busy:
        states = [ProcessState(name, "RUNNING", pid, 0.0, "") for name, pid in (("idle", idle.pid), ("busy", busy.pid))]
        check = StuckProcesses(seconds=3.0)
        found: set[str] = set()

        def observed() -> set[str]:
            found.update(process.name for process in check.find(states, {"idle": None, "busy": None}))
            return found

        until_sync(observed)
        assert found == {"idle"}
        impatient = StuckProcesses(seconds=0.0)
        impatient.find(states, {"idle": None})
        assert [process.name for process in impatient.find(states, {"idle": None})] == ["idle"]
        assert impatient.find(states, {"idle": {"ready": False}}) == [], "it waits for a database, say"
        assert impatient.find(states, {}) == [], "processes without a health page"


def test_other_commands_see_the_service_while_it_runs(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.run.mkdir()
    assert service.running(state) is None
    with child(_HOLD, str(tmp_path)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert service.running(state) == service.Service("mill", process.pid)
        with (
            pytest.raises(OperationError, match=rf"another service runs .*: mill \(process {process.pid}\)"),
            service.attend(state, "x"),
        ):
            pass
        with pytest.raises(OperationError, match="the service mill runs another version of plantlog"):
            service.check_none(state)
    assert service.running(state) is None
    service.check_none(state)
    with service.attend(state, "own"):
        assert service.running(state) is None
        assert service.last(state) == service.Service("own", os.getpid())


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of units on a machine that seems to run systemd; a command that needs it fails the test."""
    units = tmp_path / "units"
    units.mkdir()
    monkeypatch.setattr(service, "UNITS", units)
    monkeypatch.setattr(install, "_BOOTED", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(install, "_output", lambda *command: "")
    return units


def refusal(tmp_path: Path, *words: str) -> str:
    """Message with which ``service install`` refuses; nothing is written."""
    before = sorted(tmp_path.rglob("*"))
    result = run(tmp_path / "state", "admin", "service", "install", *words)
    assert result.code == 1, result
    assert sorted(tmp_path.rglob("*")) == before
    return result.err


def test_machine_without_systemd_is_refused(tmp_path: Path, systemd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_BOOTED", tmp_path / "none")
    assert "run `plantlog admin service run`, which stays in the foreground" in refusal(tmp_path)


def test_who_is_not_root_is_refused(tmp_path: Path, systemd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "run this command as root; --user names who runs plantlog" in refusal(tmp_path)


def test_user_that_does_not_exist_is_refused(tmp_path: Path, systemd: Path) -> None:
    output = refusal(tmp_path, "--user", "nobody-of-that-name")
    assert "the user nobody-of-that-name does not exist: `useradd --system --home-dir" in output


@pytest.mark.skipif(os.getuid() != 0, reason="requires root")
class TestAsRoot:
    """Installation with folders of several users."""

    def test_configuration_with_errors_is_refused(self, tmp_path: Path, systemd: Path) -> None:
        (tmp_path / "plant.toml").write_text("[plnt]\n")
        output = refusal(tmp_path, "--config", str(tmp_path / "plant.toml"))
        assert "as the user root: " in output
        assert "plant.toml:1: plnt: found" in output

    def test_state_folder_of_another_user_is_refused(self, tmp_path: Path, systemd: Path) -> None:
        (tmp_path / "state").mkdir()
        os.chown(tmp_path / "state", 1, 1)
        output = refusal(tmp_path, "--user", "root")
        assert (
            f"{tmp_path / 'state'} belongs to the user daemon, not root: choose --user daemon or set PLANTLOG_STATE"
            in output
        )

    def test_user_who_cannot_read_the_configuration_is_refused(
        self, tmp_path: Path, systemd: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(State, "has_external_database", True)  # which any user can run with, on any Debian
        (tmp_path / "plant.toml").write_text("[plant]\n")
        (tmp_path / "plant.toml").chmod(0o600)
        state = tmp_path / "state"
        state.mkdir()
        os.chown(state, 1, 1)
        output = refusal(tmp_path, "--user", "daemon", "--config", str(tmp_path / "plant.toml"))
        assert "the user daemon has no access to" in output or "as the user daemon: " in output

    def test_unit_that_is_not_ours_is_refused(self, tmp_path: Path, systemd: Path) -> None:
        unit = systemd / "plantlog.service"
        unit.write_text("[Service]\nExecStart=/bin/true\n")
        assert "was not made by `plantlog admin service install`: choose another --name" in refusal(tmp_path)
        unit.write_text(f"{MARK}\nEnvironment=PLANTLOG_STATE=/srv/other\n")
        assert f"{unit} is that of another appliance: choose another --name" in refusal(tmp_path)

    def test_second_unit_of_an_appliance_is_refused(self, tmp_path: Path, systemd: Path) -> None:
        state = State(tmp_path / "state")
        state.claim()
        with service.attend(state, "first"):
            pass
        (systemd / "first.service").write_text(MARK)
        output = refusal(tmp_path, "--name", "second")
        assert "first.service runs this appliance: choose --name first" in output

    def test_dsn_is_not_written_into_a_unit(
        self, tmp_path: Path, systemd: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PLANTLOG_DSN", "postgresql://o:secret@db/plantlog")
        output = refusal(tmp_path)
        assert "run `PLANTLOG_DSN=… ./plantlog up` once" in output
        assert "secret" not in output

    def test_uninstall_leaves_foreign_units(self, tmp_path: Path, systemd: Path) -> None:
        (systemd / "mine.service").write_text("[Service]\n")
        (systemd / "ours.service").write_text(MARK)
        assert "was not made by" in run(tmp_path / "state", "service", "uninstall", "--name", "mine").err
        result = run(tmp_path / "state", "service", "uninstall")
        assert "plantlog.service does not exist: installed: ours" in result.err
        assert len(list(systemd.iterdir())) == 2


def test_down_asks_the_service_to_stop(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.claim()
    with child(_HOLD, str(tmp_path)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        result = run(tmp_path, "down")
        assert (result.code, "stop service mill" in result.out) == (0, True), result
        assert process.wait() == -signal.SIGTERM
