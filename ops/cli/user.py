"""``plantlog user``: who may log in, and what they may do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from core.errors import OperationError
from core.formatting import table, wide
from core.paths import State
from core.terminal import Console
from core.timestamps import iso
from core.users.directory import ROLES, Role, UserDirectory, check_new

app = typer.Typer(
    help="Add users; change their roles and passwords.\n\n"
    "Viewers look; operators also handle alarms; engineers also change the plant; auditors look, verify and export.",
    no_args_is_help=True,
)
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user; for commands, that of the account.")]
_PasswordFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File whose first line is the password. Default: a prompt, or standard input."),
]


@app.command()
def add(
    name: _Name,
    role: Annotated[str, typer.Option(metavar="ROLE", help="viewer, operator, engineer or auditor.")],
    password_file: _PasswordFile = None,
) -> None:
    """Add a user. The first one must be an engineer."""
    legal = _role(role)
    state = State.current()
    directory = UserDirectory(state.root)
    check_new(directory.users(), name, legal)
    password = _hashed_password(name, password_file)
    if not state.claimed:
        state.claim()
    directory.add(name, legal, password)
    typer.echo(f"{name} is a user with the role {role}")


@app.command("role")
def set_role(
    name: _Name, role: Annotated[str, typer.Argument(metavar="ROLE", help="viewer, operator, engineer or auditor.")]
) -> None:
    """Give a user another role. The user's sessions end."""
    changed = UserDirectory(State.current().root).change(name, role=_role(role))
    typer.echo(f"{name} has the role {role}" + ("" if changed else " already"))


@app.command("password")
def set_password(name: _Name, password_file: _PasswordFile = None) -> None:
    """Give a user another password. The user's sessions end. Everybody may change their own."""
    directory = UserDirectory(State.current().root)
    directory.change(name)
    directory.change(name, password=_hashed_password(name, password_file))
    typer.echo(f"{name} has a new password")


@app.command()
def disable(name: _Name) -> None:
    """Lock a user out, at once. The audit trail still names the user."""
    changed = UserDirectory(State.current().root).change(name, enabled=False)
    typer.echo(f"{name} is disabled" + ("" if changed else " already"))


@app.command()
def enable(name: _Name) -> None:
    """Let a disabled user in again."""
    changed = UserDirectory(State.current().root).change(name, enabled=True)
    typer.echo(f"{name} is enabled" + ("" if changed else " already"))


@app.command("list")
def listed() -> None:
    """List the users with their roles."""
    shown = table("user", "role", "enabled", "added", "changed")
    for name, user in sorted(UserDirectory(State.current().root).users().items()):
        times = (iso(at)[:19] + "Z" for at in (user.created_at, user.changed_at))
        shown.add_row(name, user.role, "yes" if user.enabled else "no", *times)
    wide(Console()).print(shown)


def _role(text: str) -> Role:
    for role in ROLES:
        if role == text:
            return role
    raise OperationError(f"role: found {text!r}; legal: {', '.join(ROLES)}")


def _hashed_password(name: str, file: Path | None) -> str:
    from core.users import passwords

    if file is not None:
        password = passwords.read(file)
    elif sys.stdin.isatty():
        password = str(typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True))
    elif not (password := sys.stdin.readline().rstrip("\r\n")):
        raise OperationError("there is no terminal to ask for a password; use --password-file, or standard input")
    return passwords.hashed(name, password)
