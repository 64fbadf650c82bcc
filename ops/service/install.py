"""``plantlog admin service install`` and ``uninstall``: make a unit of systemd, and remove it."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from core.accounts import account_name
from core.config.load import load
from core.errors import OperationError, PlantlogError
from core.paths import CHECKOUT, State
from ops.appliance import service, up
from ops.appliance.steps import Steps
from ops.appliance.up import UpOptions, deployment_for
from ops.deployment import Deployment
from ops.postgres.binaries import PGBACKREST, chosen_cache, provide
from ops.postgres.membership import check_appliance
from ops.service.unit import MARK, Service, check_name

_BOOTED = Path("/run/systemd/system")  # sd_booted(3)
_FIRST_USER = 1000  # uid; below, users are the system's (Debian Policy 9.2.2)
_LOG_LINES = "15"


def install(config: Path | None, user: str | None, name: str, dry_run: bool, console: Console) -> None:
    """Make the unit, enable and start it. Safe to repeat: what changed takes effect. Checks everything first."""
    check_name(name)
    if not dry_run:
        _check_root()
    state = State.current()
    check_appliance(state)
    account = _account(user, state)
    deployment = deployment_for(state, UpOptions(config=config))
    _check_state(state, account)
    _check_as(account, state, deployment.config)
    named = () if config is None else (str(config.absolute()),)
    _python_as(account, state, "from ops.service.install import check_start; check_start(*sys.argv[1:])", *named)
    unit_service = Service(
        name,
        account.pw_name,
        state.root,
        deployment.config,
        load(deployment.config),
        str(chosen_cache(state.root) or ""),
    )
    unit = unit_service.render()
    if dry_run:
        console.file.write(unit)
        return
    _check_unit(unit_service, state)
    steps = Steps(console)
    with steps.step("prepare") as step:
        _warn(account, step.note)
        changed = deployment != Deployment.load(state)
        _make_state(state, account, *named)
        if not state.has_external_database:
            binaries = provide(state.root, step.note)
            if unit_service.plant.backup.repository is not None:
                binaries.check(PGBACKREST)
    path = service.UNITS / f"{name}.service"
    with steps.step(f"install {path}") as step:
        changed |= not path.exists() or path.read_text() != unit
        path.write_text(unit)
        path.chmod(0o644)
        _systemctl("daemon-reload")
        _systemctl("enable", name)
        step.result = "" if changed else "unchanged"
    with steps.step(f"start {name}"):
        if _systemctl("restart" if changed else "start", name, check=False):
            output = _output("systemctl", "status", "--no-pager", "--full", "--lines", _LOG_LINES, name)
            raise OperationError(
                f"{name} does not start, and is tried again and again; `journalctl -u {name}`:\n{output}"
            )
    console.print(f"systemctl status {name}    journalctl -u {name}", highlight=False)


def uninstall(name: str, console: Console) -> None:
    """Stop the service and remove its unit. The state folder stays."""
    check_name(name)
    _check_root()
    path = service.UNITS / f"{name}.service"
    if not path.exists():
        raise OperationError(f"{path} does not exist: {_installed()}")
    _check_mark(path)
    steps = Steps(console)
    with steps.step(f"stop {name}"):
        _systemctl("disable", "--now", name)
    with steps.step(f"remove {path}"):
        path.unlink()
        _systemctl("daemon-reload")


def _check_root() -> None:
    if not _BOOTED.is_dir():
        raise OperationError(
            "systemd does not run here. Let what starts processes run `plantlog admin service run`, which stays in "
            "the foreground, and stops the appliance on SIGTERM"
        )
    if os.geteuid() != 0:
        raise OperationError(
            "units of systemd belong to root: run this command as root; --user names who runs plantlog"
        )


def _account(user: str | None, state: State) -> pwd.struct_passwd:
    """The user who runs plantlog. Raises OperationError where there is none, or where PostgreSQL needs another."""
    try:
        if user is not None:
            account = pwd.getpwnam(user)
        else:
            account = pwd.getpwuid((state.root if state.root.exists() else CHECKOUT).stat().st_uid)
    except KeyError:
        name = user or "plantlog"
        raise OperationError(
            f"the user {name} does not exist: `useradd --system --home-dir {state.root} {name}` creates it"
        ) from None
    if "PLANTLOG_DSN" in os.environ and not state.external_database_marker.exists():
        raise OperationError(
            f"PLANTLOG_DSN: as {account.pw_name}, run `PLANTLOG_DSN=… ./plantlog up` once, which keeps it in the state "
            "folder: everyone can read a unit"
        )
    return account


def _check_state(state: State, account: pwd.struct_passwd) -> None:
    """Raise OperationError if the state folder is another user's, or can't be one."""
    if state.root.exists():
        if (owner := state.root.stat().st_uid) != account.pw_uid:
            raise OperationError(
                f"{state.root} belongs to the user {_name(owner)}, not {account.pw_name}: choose --user {_name(owner)} "
                "or set PLANTLOG_STATE to another folder"
            )
    elif not state.root.parent.is_dir():
        raise OperationError(f"{state.root.parent} does not exist: create it, or set PLANTLOG_STATE to another folder")
    folder = state.root if state.root.exists() else state.root.parent
    if _run_as(account, "test", "-x", str(folder)).returncode:
        raise OperationError(
            f"the user {account.pw_name} has no access to {folder}: set PLANTLOG_STATE to another folder"
        )


def _check_as(account: pwd.struct_passwd, state: State, config: Path) -> None:
    """Let the user check the configuration, with all files that it names. Raises OperationError with its message."""
    _python_as(account, state, "from ops.cli.app import main; sys.exit(main())", "config", "check", str(config))


def _python_as(account: pwd.struct_passwd, state: State, code: str, *arguments: str) -> None:
    command = [sys.executable, "-P", "-c", f"import sys; {code}", *arguments]
    run = _run_as(account, *command, PYTHONPATH=str(CHECKOUT), PLANTLOG_STATE=str(state.root))
    if run.returncode:
        raise OperationError(f"as the user {account.pw_name}: {run.stderr.strip()}")


def _run_as(account: pwd.struct_passwd, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user, if this is root."""
    become = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--init-groups"]
    return subprocess.run(
        [*(become if os.geteuid() == 0 else ()), *command],
        env={**os.environ, **environment}, cwd="/", capture_output=True, text=True, check=False,
    )  # fmt: skip


def _check_unit(unit_service: Service, state: State) -> None:
    """Raise OperationError if a unit of this name is not ours, or another appliance's, or if it has another name."""
    path = service.UNITS / f"{unit_service.name}.service"
    if not path.exists():  # a package's has the same mark
        path = Path(_output("systemctl", "show", "--property", "FragmentPath", "--value", unit_service.name).strip())
    if path.is_file():
        _check_mark(path)
        if unit_service.environment_of_state() not in path.read_text().splitlines():
            raise OperationError(f"{path} is that of another appliance: choose another --name")
    last = service.installed(state)
    if last is not None and last.name != unit_service.name:
        raise OperationError(
            f"{last.unit} runs this appliance: choose --name {last.name}, or first run `plantlog admin service "
            f"uninstall --name {last.name}`"
        )


def _check_mark(path: Path) -> None:
    if not path.read_text().startswith(MARK):
        raise OperationError(
            f"{path} was not made by `plantlog admin service install`: choose another --name, or remove it"
        )


def _installed() -> str:
    units = [path.stem for path in service.UNITS.glob("*.service") if path.read_text().startswith(MARK)]
    return f"installed: {', '.join(sorted(units)) or 'none'}"


def _warn(account: pwd.struct_passwd, note: Callable[[str], None]) -> None:
    if account.pw_uid >= _FIRST_USER:
        note(
            f"{account.pw_name} is no system user: systemd removes the shared memory of PostgreSQL when it logs out, "
            "unless /etc/systemd/logind.conf has RemoveIPC=no"
        )


def _make_state(state: State, account: pwd.struct_passwd, *config: str) -> None:
    """The state folder of the user. What is in it is written as the user, who may have put links there."""
    if not state.root.exists():
        state.root.mkdir(mode=0o700)
        os.chown(state.root, account.pw_uid, account.pw_gid)
    _python_as(account, state, "from ops.service.install import choose; choose(*sys.argv[1:])", *config)


def check_start(config: str | None = None) -> None:
    """Check as the service's user: exit with the reason if ``up`` would refuse the configuration.

    ``config``: None: that of the last ``up``.
    """
    try:
        up.check_start(State.current(), _options(config))
    except PlantlogError as error:
        sys.exit(str(error))


def choose(config: str | None = None) -> None:
    """Choose as the service's user: let the next ``up`` start this configuration; None: that of the last one."""
    state = State.current()
    state.claim()
    deployment_for(state, _options(config)).save(state)
    (state.root / "postgres").mkdir(exist_ok=True)  # before root installs PostgreSQL


def _options(config: str | None) -> UpOptions:
    return UpOptions(config=None if config is None else Path(config))


def _name(uid: int) -> str:
    return account_name(uid) or str(uid)


def _systemctl(*arguments: str, check: bool = True) -> int:
    run = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    if check and run.returncode:
        raise OperationError(f"systemctl {' '.join(arguments)}: {run.stderr.strip()}")
    return run.returncode


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
