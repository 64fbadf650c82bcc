"""``python -m ops``: the command line of plantlog. ``./plantlog`` prepares the environment and hands over to this."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer._completion_classes import completion_init
from typer.core import TyperGroup

from core.errors import ConfigError, DatabaseError, NotConfirmed, OperationError, PlantlogError
from core.formatting import count
from core.paths import State, plantlog_version
from core.terminal import protect
from ops.cli.options import PASS_THROUGH
from ops.cli.values import quicken

# Name → heading of --help, and where it is: a function, or the ``app`` of a group.
COMMANDS = {
    "up": ("Run", "ops.cli.appliance"),
    "down": ("Run", "ops.cli.appliance"),
    "status": ("Run", "ops.cli.appliance"),
    "logs": ("Run", "ops.cli.appliance"),
    "config": ("Plant", "ops.cli.config"),
    "source": ("Plant", "ops.cli.source"),
    "alarms": ("Plant", "ops.cli.alarms"),
    "ask": ("History", "ops.cli.query"),
    "sql": ("History", "ops.cli.query"),
    "psql": ("History", "ops.cli.query"),
    "evidence": ("Evidence", "ops.cli.evidence"),
    "user": ("People", "ops.cli.user"),
    "admin": ("Machines", "ops.cli.admin"),
    "test": ("Lab", "ops.cli.appliance"),
    "lab": ("Lab", "lab.commands.app"),
}
# Spellings of 1.0, and what is taken for a command of its own → those of today. They work, and say so.
FORMER = {
    **{name: f"config {name}" for name in ("check", "apply", "rename")},
    **{name: f"source {name}" for name in ("discover", "import-tags", "certificate", "token")},
    **{name: f"evidence {name}" for name in ("seal", "verify", "export", "delete")},
    **{name: f"admin {name}" for name in ("service", "backup", "restore", "maintenance", "retention")},
    **{name: f"admin {name}" for name in ("spool", "database", "init", "prepare", "targets")},
    **{name: f"lab {name}" for name in ("simulator", "bench", "chaos")},
    "bundle": "admin bundle",
    "import": "source import-history",
    "replay": "admin spool replay",
    "certificate server": "admin certificate",
}
_NOT_CONFIRMED = 3  # exit code
_COMPLETE = "_PLANTLOG_COMPLETE"  # set by a shell that completes a command line
_SETTINGS = {"psql": PASS_THROUGH, "test": PASS_THROUGH, "ask": {**PASS_THROUGH, "help_option_names": ["--help"]}}


class _Ordered(TyperGroup):
    """The commands in the order of the table: groups would come first."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in COMMANDS if name in self.commands]


def _version(value: bool) -> None:
    if value:
        typer.echo(f"plantlog {plantlog_version()}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands."""
    app = typer.Typer(
        cls=_Ordered,
        callback=_options,
        help="Collect industrial telemetry by OPC UA, Modbus and push, and store each sample exactly once in "
        "TimescaleDB.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for name in names:
        heading, place = COMMANDS[name]
        module = import_module(place)
        if hasattr(module, name):
            command = app.command(name, rich_help_panel=heading, context_settings=_SETTINGS.get(name))
            command(getattr(module, name))
        else:
            app.add_typer(module.app, name=name, rich_help_panel=heading)
    return app


@cache
def command_line(name: str) -> Any:
    """The command or group with a name, as all take 0.3 s; all if there is none. Each is checked and recorded."""
    from ops.cli.permissions import guard

    command = typer.main.get_command(application([name] if name in COMMANDS else COMMANDS))
    guard(command)
    return command


def _current(words: Sequence[str]) -> list[str]:
    """A command line in the spelling of today."""
    for length in (2, 1):
        former = " ".join(words[:length])
        if former in FORMER:
            typer.echo(f"plantlog: `{former}` is `plantlog {FORMER[former]}` now", err=True)
            return [*FORMER[former].split(), *words[length:]]
    return [*words]


def _why_stopped(error: PlantlogError) -> str:
    """Hint that plantlog is stopped, if that is why the database does not respond."""
    if not isinstance(error, DatabaseError) or error.__cause__ is None:
        return ""
    from core.database import is_away
    from ops.appliance.service import check_own_database

    try:
        if is_away(error.__cause__):
            check_own_database(State.current())
    except OperationError as stopped:
        return str(stopped)
    return ""


def main() -> int:
    """Run a command. Errors are printed without a traceback, with exit code 1."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # what libraries say to programmers
    protect()
    for library in ("asyncua", "asyncio"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    try:
        if _COMPLETE in os.environ:
            completion_init()
        words = _current(sys.argv[1:])
        quicken()
        command_line(next(iter(words), ""))(words, prog_name="plantlog")
    except ConfigError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        typer.echo(count(len(error.problems), "problem"), err=True)
        return 1
    except NotConfirmed as error:
        typer.echo(f"plantlog: {error}", err=True)
        return _NOT_CONFIRMED
    except PlantlogError as error:
        typer.echo(f"plantlog: {_why_stopped(error) or error}", err=True)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
