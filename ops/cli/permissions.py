"""Permissions to run commands, once there are users, and the record in the audit trail.

As with PostgreSQL's peer authentication, the operating system says who somebody is. It is also the barrier: whoever
owns the state folder, or is root, can change its files. This guards honest people, and the audit trail names them.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer

from core.accounts import account_name, as_owner_of
from core.errors import OperationError
from core.paths import State
from core.users.directory import OPERATORS, ROLES, ROOT, Role, User, UserDirectory

_ALL_ROLES = frozenset(ROLES)
_ENGINEER: frozenset[Role] = frozenset({"engineer"})
_AUDITOR: frozenset[Role] = frozenset({"auditor"})
_MACHINES = None  # run by systemd, the maintenance, containers, tests: a person who runs them must be an engineer


def _roles(roles: frozenset[Role] | None, group: str, *commands: str) -> dict[str, frozenset[Role] | None]:
    return {f"{group} {command}".strip(): roles for command in commands}


# Command, also with an argument, or with an option that is given alone → the roles that may run it. What every role may
# run is not recorded, but for _RECORDED. A file that a command reads shows in its errors, and may be one of root's.
COMMANDS: Mapping[str, frozenset[Role] | None] = {
    **_roles(_ALL_ROLES, "", "status", "logs", "alarms", "ask", "sql", "psql -c"),
    **_roles(_ENGINEER, "", "up", "down", "psql", "sql --table", "sql --output"),
    **_roles(_ENGINEER, "", "ask --output", "ask --plot", "ask --plants", "ask --plant", "sql --plants", "sql --plant"),
    **_roles(_MACHINES, "", "test"),
    **_roles(_ALL_ROLES, "config", "check", "log"),
    **_roles(_ENGINEER, "config", "check PLANT.TOML", "apply", "rename"),
    **_roles(_ENGINEER, "config", "show", "diff", "revert"),  # plant.toml may hold secrets
    **_roles(_ENGINEER, "source", "discover", "import-tags", "import-history"),
    **_roles(_ALL_ROLES, "source certificate", "show", "list"),
    **_roles(_ENGINEER, "source certificate", "renew", "export", "import", "trust", "add"),
    **_roles(_ALL_ROLES, "source token", "list"),
    **_roles(_ENGINEER, "source token", "list --config", "add", "remove", "hash"),
    **_roles(OPERATORS, "alarms", "ack", "shelve", "unshelve", "suppress", "unsuppress"),
    **_roles(OPERATORS, "alarms", "out-of-service", "in-service"),
    **_roles(_ALL_ROLES, "evidence", "seal --public-key"),
    **_roles(_ENGINEER, "evidence", "seal", "delete"),
    **_roles(_AUDITOR, "evidence", "verify", "export"),
    **_roles(_ALL_ROLES, "user", "list"),
    **_roles(_ENGINEER, "user", "add", "role", "password", "disable", "enable"),
    **_roles(_ALL_ROLES, "admin", "backup list", "maintenance", "retention", "spool show", "spool quarantine"),
    **_roles(_ALL_ROLES, "admin", "database status", "certificate", "targets"),
    **_roles(_ENGINEER, "admin", "backup", "backup verify", "backup take-over", "restore", "maintenance run", "bundle"),
    **_roles(_ENGINEER, "admin spool", "export", "accept-database", "retry", "replay"),
    **_roles(_ENGINEER, "admin database", "monitor", "node", "switchover", "remove"),
    **_roles(_ENGINEER, "admin service", "install", "uninstall"),
    **_roles(_ENGINEER, "admin certificate", "--cluster"),
    **_roles(_MACHINES, "admin", "service run", "backup rehearse", "init", "prepare"),
    **_roles(_ENGINEER, "lab", "simulator", "chaos"),
}
OWN_COMMANDS = frozenset({"user password"})  # what every enabled user may do to itself
_RECORDED = frozenset({"psql -c"})
_BENCHMARKS = "lab bench "
_COMPARE = ("config diff", "source discover", "evidence verify")  # exit code 1: what they compared is not the same
_EMERGENCY = ("down", "admin restore")  # run even if the audit trail can't be written
_SECRETS = re.compile(r"(?<=:)[^:/@\s]+(?=@)|(?<=password=)\S+")


def roles_of(command: str) -> frozenset[Role] | None:
    """Roles that may run it; None: machines do."""
    return _MACHINES if command.startswith(_BENCHMARKS) else COMMANDS.get(command, _ENGINEER)


def sql_only(arguments: Sequence[str]) -> list[str] | None:
    """The SQL of psql's arguments if they are nothing but ``-c SQL``; None: anything that psql itself would do.

    psql passes what ``-c`` gives on to the server as it is, unless it begins with a backslash.
    """
    statements, rest = [], list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name in ("-c", "--command") and not equals and rest:
            value = rest.pop(0)
        elif name != "--command" or not equals:
            return None
        if value.startswith("\\"):
            return None
        statements.append(value)
    return statements or None


def guard(command: Any, path: str = "") -> None:
    """Check and record each run of a command of typer, and of those below it."""
    for name, below in getattr(command, "commands", {}).items():
        guard(below, f"{path} {name}".strip())
    callback, invoke = command.callback, command.invoke
    if not path or callback is None:
        return

    def checked(context: typer.Context) -> Any:
        def run(**parameters: Any) -> Any:
            if context.invoked_subcommand is not None:  # it is checked itself
                return callback(**parameters)
            with _permitted(_entry(path, context), lambda: _arguments(context)):
                return callback(**parameters)

        command.callback = run
        return invoke(context)

    command.invoke = checked


def account(state: State) -> str:
    """Account of this command: that of the process, or who called it by sudo as root or as the folder's owner."""
    uid = os.geteuid()
    called_by = os.environ.get("SUDO_USER")
    if called_by and (uid == 0 or (state.root.exists() and state.root.stat().st_uid == uid)):
        return called_by
    return _login(uid)


def user_name(state: State) -> str | None:
    """The user who runs this command; None while there are no users."""
    return account(state) if UserDirectory(state.root).users() else None


@contextmanager
def _permitted(command: str, arguments: Callable[[], Mapping[str, str]]) -> Iterator[None]:
    """Run the block if the person may, and record it. Raises OperationError otherwise."""
    roles, state = roles_of(command), State.current()
    name = account(state)
    is_root = name == ROOT and os.geteuid() == 0
    by_sudo = name != _login(os.geteuid())
    try:
        users = UserDirectory(state.root).users()
    except OperationError:
        if not is_root and (by_sudo or roles is not None):  # root has to repair it, and machines go on
            raise
        users = {}
    user = users.get(name)
    if roles is None:
        if not users or (user is None and not by_sudo):
            yield
            return
        roles = _ENGINEER
    trail = _Trail(state, command, arguments, name, None if user is None else user.role)
    legal = _ALL_ROLES if command in OWN_COMMANDS and arguments().get("name") == name else roles
    if users and not is_root and (why := _why_not(command, name, user, legal)) is not None:
        trail.end("refused", why)
        raise OperationError(why)
    if roles == _ALL_ROLES and command not in _RECORDED:
        yield
        return
    if users:
        trail.begin()
    try:
        yield
    except (typer.Exit, SystemExit) as ended:
        code = ended.exit_code if isinstance(ended, typer.Exit) else ended.code
        if not code:
            trail.end("done", "")
        elif code == 1 and command in _COMPARE:
            trail.end("done", "found differences")
        else:
            trail.end("failed", f"exit code {code}")
        raise
    except BaseException as error:
        trail.end("failed", str(error) or type(error).__name__)
        raise
    trail.end("done", "")


@dataclass(slots=True)
class _Trail:
    """The records of one command."""

    state: State
    command: str
    arguments: Callable[[], Mapping[str, str]]
    name: str
    role: str | None
    began_at: int | None = None  # µs

    def begin(self) -> None:
        """Record that the command begins. Raises OperationError if that can't be made durable."""
        from core.timestamps import now_us

        self.began_at = now_us()
        try:
            self._record("begun", "")
        except OperationError as error:
            if self.command not in _EMERGENCY:
                raise OperationError(
                    f"{error}. `plantlog {self.command}` is refused; {' and '.join(_EMERGENCY)} are not"
                ) from error
            typer.echo(f"plantlog: {error}", err=True)

    def end(self, outcome: Any, error: str) -> None:
        """Record what became of it, if there are users (now, as the first was added), and the state folder is left."""
        try:
            if UserDirectory(self.state.root).users():
                self._record(outcome, error)
        except OperationError as problem:
            typer.echo(f"plantlog: {problem}", err=True)

    def _record(self, outcome: Any, error: str) -> None:
        # Imports numpy: 0.1 s that commands that only look need not spend.
        from ingest.spool import audit

        person = audit.Person(self.name, self.role, _login(os.geteuid()), socket.gethostname())
        began_at = None if outcome == "begun" else self.began_at
        action = audit.Action(self.command, self.arguments(), outcome, error, began_at)
        with as_owner_of(self.state.root):
            audit.record(self.state.root, person, action)


def _why_not(command: str, name: str, user: User | None, roles: frozenset[Role]) -> str | None:
    """Reason why somebody may not run a command; None: they may."""
    if user is None:
        return (
            f"{name} is not a user of plantlog: an engineer, or root, can add it (`plantlog user add {name} "
            f"--role ROLE`)"
        )
    if not user.enabled:
        return f"user {name} is disabled: an engineer, or root, can enable it (`plantlog user enable {name}`)"
    if user.role not in roles:
        needed = " or ".join(role for role in ROLES if role in roles)
        other = "; -c SQL alone: every role; at a prompt: `plantlog sql`" if command == "psql" else ""
        return f"user {name} has the role {user.role}; legal for `plantlog {command}`: {needed}{other}"
    return None


def _entry(command: str, context: typer.Context) -> str:
    """The command's entry: that with an argument or option that fewer may give, or with an option given alone."""
    if command == "psql":
        return command if sql_only(context.args) is None else "psql -c"
    entries = [
        f"{command} {name}" for parameter in _used_parameters(context) for name in (*parameter.opts, parameter.metavar)
    ]
    entries = [entry for entry in entries if entry in COMMANDS]
    for entry in entries:
        if COMMANDS.get(command) == _ALL_ROLES or len(_used_parameters(context)) == 1:
            return entry
    return command


def _used_parameters(context: typer.Context) -> list[Any]:
    """The parameters that were given."""
    sources = ((parameter, context.get_parameter_source(str(parameter.name))) for parameter in context.command.params)
    return [parameter for parameter, source in sources if source is not None and source.name != "DEFAULT"]


def _arguments(context: typer.Context) -> dict[str, str]:
    """Arguments without passwords."""
    texts = {}
    for name in (str(parameter.name) for parameter in _used_parameters(context)):
        value = context.params.get(name)
        if value is not None:
            texts[name] = " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if context.args:
        texts["arguments"] = " ".join(context.args)
    return {name: _SECRETS.sub("***", text) for name, text in texts.items()}


def _login(uid: int) -> str:
    return account_name(uid) or f"user {uid}"
