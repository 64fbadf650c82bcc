"""This machine's own system, booted with a real systemd beside it, in name spaces (``booted.sh``)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from core.paths import CHECKOUT
from ops.postgres.binaries import provide
from tests.processes import command_line
from tests.waiting import PATIENCE, until_sync

STATE = Path("/var/lib/plantlog")  # in the machine
_LONGEST = 1800  # s: of a command, on a machine that is busy
_SCRIPT = Path(__file__).with_name("booted.sh")
_SYSTEMD = Path("/lib/systemd/systemd")


class Machine:
    """One that is booted. ``state`` is its folder /var/lib/plantlog, also while it is not."""

    def __init__(self, state: Path, process: subprocess.Popen[bytes], log: Path) -> None:
        self.state = state
        self._process = process
        self.log = log

    def init(self) -> psutil.Process | None:
        """The process 1 of the machine: systemd, once it is that."""
        for process in psutil.Process(self._process.pid).children(recursive=True):
            if command_line(process)[:1] == [str(_SYSTEMD)]:
                return process
        return None

    def run(self, *command: str, code: int | None = 0) -> str:
        """A command in the machine; what it printed. Fails the test if it exits otherwise than with ``code``."""
        init = self.init()
        assert init is not None, self.log.read_text()
        environment = {key: value for key, value in os.environ.items() if key != "PLANTLOG_DSN"}
        run = subprocess.run(
            ["nsenter", "--target", str(init.pid), "--all", "--wd", *command],
            env=environment | {"PLANTLOG_STATE": str(STATE)},
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST,
            umask=0o022,  # a login's, whatever tests before have left
        )
        output = run.stdout + run.stderr
        assert code in (None, run.returncode), f"{' '.join(command)}: {output}\n{self.journal()}"
        return output

    def plantlog(self, *arguments: str, code: int | None = 0) -> str:
        """``./plantlog`` with arguments."""
        return self.run(str(CHECKOUT / "plantlog"), *arguments, code=code)

    def show(self, name: str) -> str:
        """A property of the service."""
        return self.run("systemctl", "show", "plantlog", f"--property={name}", "--value").strip()

    def journal(self) -> str:
        """Journal of the service."""
        return self.run("journalctl", "--unit=plantlog", "--no-pager", code=None)

    def has_booted(self) -> bool:
        """Return whether its services are started."""
        is_active = ("systemctl", "is-active", "multi-user.target")
        return self.init() is not None and self.run(*is_active, code=None).strip() == "active"

    def waits_for(self) -> str:
        """Jobs that systemd has not done yet."""
        if self.init() is None:
            return "there is no process 1"
        return self.run("systemctl", "list-jobs", "--no-pager", "--no-legend", code=None)

    def reboot(self) -> None:
        """Shut it down and boot it again; returns when its services are started."""
        before = self.init()
        assert before is not None
        self.run("systemctl", "reboot")
        until_sync(lambda: not before.is_running(), 2 * PATIENCE, show=self.log.read_text)
        until_sync(self.has_booted, 5 * PATIENCE, show=self.log.read_text)  # with the appliance, if it starts at boot


@contextmanager
def machine(folder: Path, *others: Path) -> Iterator[Machine]:
    """A machine that is booted inside the block, with other folders at their paths.

    Skips the test where that is not possible, and says why.
    """
    if os.geteuid() != 0 or not _SYSTEMD.exists() or shutil.which("systemctl") is None:
        pytest.skip("booting a system requires root and systemd")
    work, state, log = folder / "mounts", folder / "state", folder / "boot.log"
    work.mkdir()
    state.mkdir(mode=0o700)
    programs = provide(state, print).root.parent  # there is no network in the machine
    with _control_group() as group, log.open("wb") as output:
        shared = dict.fromkeys((CHECKOUT, Path(sys.prefix).resolve(), programs, *others))
        folders = [f"{state}={STATE}", *(f"{path}={path}" for path in shared if path.exists())]
        command = ["unshare", "--mount", "--propagation", "private", str(_SCRIPT), "setup", str(work), str(group)]
        process = subprocess.Popen([*command, *folders], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        booted = Machine(state, process, log)
        try:
            with suppress(AssertionError):
                until_sync(lambda: booted.has_booted() or process.poll() is not None)
            if not booted.has_booted():
                reason = f"{log.read_text()}{booted.waits_for()}"
                pytest.skip(f"no system can be booted in name spaces here: {reason}")
            yield booted
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


@contextmanager
def _control_group() -> Iterator[Path]:
    """A control group of version 2 of its own; its processes are killed behind the block."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    roots = [Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"]
    if not roots:
        pytest.skip("no control groups of version 2 here")
    group = roots[0] / f"plantlog-test-{os.getpid()}"
    try:
        group.mkdir()
        group.chmod(0o755)  # whatever the umask is
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield group
    finally:
        (group / "cgroup.kill").write_text("1")
        until_sync(lambda: "populated 0" in (group / "cgroup.events").read_text())
        for path in sorted(group.rglob("*/"), reverse=True):
            if path.is_dir():
                path.rmdir()
        group.rmdir()
