"""``python -m ops``: the command line of plantlog. ``./plantlog`` prepares the environment and hands over to this."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from contextlib import suppress
from copy import copy
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from core.errors import ConfigError, DatabaseError, NotConfirmed, OperationError, PlantlogError
from core.formatting import count
from core.paths import CHECKOUT, EXAMPLE, State
from core.terminal import Console, protect

# Commands import what they need when they run, so that --help and a typing error are answered at once.
# ruff: noqa: PLC0415

app = typer.Typer(
    help="Collect industrial telemetry by OPC UA, Modbus and push, and store each sample exactly once in TimescaleDB.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_TakeOver = Annotated[
    str | None,
    typer.Option(
        metavar="INSTALLATION",
        help="Become this installation of the database, which is gone: its id, the beginning of it, or its plant.",
    ),
]
_SameQuantity = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Changed tag that still measures the same quantity, or a pattern with *. Can be repeated.",
    ),
]
_NewChannel = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Changed tag that becomes a new channel, or a pattern with *. Can be repeated.",
    ),
]
_ReplacePlant = Annotated[
    bool, typer.Option("--replace-plant", help="The configuration is another plant's, which replaces this one.")
]
_NOT_CONFIRMED = 3  # exit code
_PASS_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def _version(wanted: bool) -> None:
    if wanted:
        import tomllib

        with (CHECKOUT / "pyproject.toml").open("rb") as file:
            typer.echo(f"plantlog {tomllib.load(file)['project']['version']}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def up(
    config: Annotated[
        Path | None,
        typer.Option(metavar="PLANT.TOML", help="Configuration file. Default: the last one used, or the example."),
    ] = None,
    channels: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Simulate a plant with this many channels.")
    ] = None,
    hz: Annotated[
        float | None,
        typer.Option(min=0.001, max=100.0, help="Values per second and channel, with --channels. Default: 1."),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=1024, max=65_000, help="First port of the demo: its plant, health, dashboards. Default: 9100."
        ),
    ] = None,
    simulator: Annotated[
        bool | None, typer.Option(help="Start the simulator. Default: only with the example or --channels.")
    ] = None,
    take_over: _TakeOver = None,
    same_quantity: _SameQuantity = None,
    new_channel: _NewChannel = None,
    replace_plant: _ReplacePlant = False,
) -> None:
    """Start the appliance in the background, or apply a changed configuration. Safe to repeat."""
    from ops.appliance.up import UpOptions
    from ops.appliance.up import up as run
    from ops.registration.redefined_tags import TagDecisions

    decisions = TagDecisions(same_quantity or (), new_channel or ())
    run(UpOptions(config, channels, hz, port, simulator, take_over, decisions, replace_plant), Console())


@app.command()
def apply(
    config: Annotated[
        Path | None,
        typer.Option(metavar="PLANT.TOML", help="Configuration file. Default: the last one used."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Print every line of a long plan.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the plan as JSON. Applies it only together with --yes.")
    ] = False,
    same_quantity: _SameQuantity = None,
    new_channel: _NewChannel = None,
    replace_plant: _ReplacePlant = False,
) -> None:
    """Show what the changed configuration files change, ask, and apply it to the running appliance.

    Exits with 3 if nobody confirmed the plan.
    """
    from ops.appliance.apply import ApplyOptions
    from ops.appliance.apply import apply as run
    from ops.appliance.up import UpOptions
    from ops.registration.redefined_tags import TagDecisions

    decisions = TagDecisions(same_quantity or (), new_channel or ())
    run(UpOptions(config, choice=decisions, replace_plant=replace_plant), ApplyOptions(yes, full, as_json), Console())


@app.command()
def down(
    wipe: Annotated[bool, typer.Option("--wipe", help="Also delete the state folder with all samples.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Stop the appliance, after writing the spools to the database."""
    from ops.appliance.down import down as run

    run(wipe, yes, Console())


@app.command()
def status(
    once: Annotated[bool, typer.Option("--once", help="Print the status once and exit.")] = False,
    channels: Annotated[
        bool, typer.Option("--channels", help="Print every channel that cannot be read, with the reason, and exit.")
    ] = False,
    installation: Annotated[
        str | None,
        typer.Option(
            metavar="INSTALLATION",
            help="Count outages and quarantine of this installation of the database: its plant, its id, or the "
            "beginning of that; or all. Default: this one.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status once as JSON and exit.")] = False,
) -> None:
    """Show processes, sources, rates, lag, spools and database. Updates until Ctrl-C."""
    from ops.appliance.status import StatusMonitor
    from ops.postgres.membership import check_appliance

    check_appliance(State.current())
    monitor = StatusMonitor(State.current(), installation)
    if as_json:
        typer.echo(json.dumps(monitor.snapshot(), indent=2))
        return
    from ops.appliance.status_table import bad_channels, live, show

    console = Console()
    if channels:
        typer.echo(bad_channels(monitor.snapshot()))
    elif once or not console.is_terminal:
        show(monitor, console)
    else:
        live(monitor, console)


@app.command()
def logs(
    process: Annotated[
        str | None, typer.Argument(metavar="PROCESS", help="Process, such as writer. Default: all.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines as they are written.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Number of lines to print.")] = 40,
) -> None:
    """Print the logs of the processes."""
    import subprocess

    from ops.appliance.logs import tail_command

    command = tail_command(State.current(), process, follow, lines)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as tail:
        for line in tail.stdout or ():
            print(line, end="", flush=follow)
    raise typer.Exit(tail.returncode)


@app.command(context_settings=_PASS_THROUGH)
def psql(context: typer.Context) -> None:
    """Run psql with the read-only login. Arguments are passed on to psql.

    -c SQL alone is for every role. Other arguments, files and the prompt are for engineers: psql can start programs.
    """
    import subprocess

    from ops.appliance.database import archived_until, psql_command
    from ops.appliance.stopped import check_own_database
    from ops.cli.permissions import sql_only

    check_own_database(State.current())
    statements = sql_only(context.args)
    command, environment = psql_command(State.current(), statements or ())
    if (day := archived_until(State.current())) is not None:
        hint = f"samples of some days up to {day} are only in the archive: `plantlog sql` reads both"
        typer.echo(hint, err=True)
    passed_on = context.args if statements is None else ()
    with subprocess.Popen([*command, *passed_on], env=environment) as process:
        while process.poll() is None:
            with suppress(KeyboardInterrupt):  # it ends a query of psql, not this
                process.wait()
    raise typer.Exit(process.returncode)


@app.command()
def init(
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for .env and secrets/.")] = CHECKOUT,
) -> None:
    """Create passwords, tokens and .env for containers. Existing files are kept."""
    from ops.containers.init import init as run

    run(folder.absolute(), Console())


@app.command()
def prepare(
    config: Annotated[Path, typer.Option(metavar="PLANT.TOML", help="Configuration file.")] = EXAMPLE,
    take_over: _TakeOver = None,
    same_quantity: _SameQuantity = None,
    new_channel: _NewChannel = None,
) -> None:
    """Upgrade the schema and register the plant. For containers, which wait for this before they start."""
    from ops.containers.prepare import prepare as run
    from ops.registration.redefined_tags import TagDecisions

    run(config.absolute(), Console(), take_over, TagDecisions(same_quantity or (), new_channel or ()))


@app.command()
def targets() -> None:
    """Print the scrape targets for Prometheus, in the format of file_sd_configs."""
    from ops.prometheus.targets import targets as scrape_targets

    typer.echo(scrape_targets(State.current()))


@app.command(context_settings=_PASS_THROUGH)
def simulator(context: typer.Context) -> None:
    """Run a command of the plant simulator: fault, compare, export or run."""
    from ops import health
    from ops.deployment import Running

    state = State.current()
    os.environ["PLANTLOG_STATE"] = str(state.root)
    if (running := Running.load(state)) is not None:
        os.environ["PLANTLOG_SIMULATOR_CONTROL_PORT"] = str(health.control_port(running.health))
    os.execv(sys.executable, [sys.executable, "-P", "-m", "simulator", *context.args])


@app.command(context_settings=_PASS_THROUGH)
def test(context: typer.Context) -> None:
    """Run the tests. Arguments are passed on to pytest.

    Default: the unit, integration and end-to-end tests that are not marked slow.
    """
    os.chdir(CHECKOUT)
    names_tests = any(Path(argument.partition("::")[0]).exists() for argument in context.args)
    selected = () if names_tests else ("-m", "not slow")
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *selected, *context.args])


_SUBCOMMANDS = {  # name → module, of ops.cli if it has no dot, and the function or group there
    "ask": ("ask", "ask"),
    "check": ("configuration", "check"),
    "discover": ("configuration", "discover"),
    "rename": ("configuration", "rename"),
    "seal": ("evidence", "seal"),
    "verify": ("evidence", "verify"),
    "export": ("evidence", "export"),
    "delete": ("evidence", "delete"),
    "retention": ("maintenance", "retention"),
    "replay": ("spool", "replay"),
    "restore": ("backup", "restore"),
    "sql": ("sql", "sql"),
    "chaos": ("lab.commands.chaos", "chaos"),
    "bench": ("lab.commands.bench", "app"),
    "import": ("history_import", "import_history"),
    "import-tags": ("tag_import", "import_tags"),
    **{name: (name, "app") for name in ("alarms", "backup", "certificate", "config", "database", "maintenance")},
    **{name: (name, "app") for name in ("service", "spool", "token", "user")},
}


@cache
def _add_subcommand(name: str) -> None:
    """Add a command or group that is defined in another module, once."""
    module, attribute = _SUBCOMMANDS[name]
    found = getattr(import_module(module if "." in module else f"ops.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    else:
        settings = {"allow_extra_args": True, "ignore_unknown_options": True} if name == "ask" else None
        app.command(name, context_settings=settings)(found)


def _add_subcommands() -> None:
    """Add all of them."""
    for name in _SUBCOMMANDS:
        _add_subcommand(name)


@cache
def _command_line(name: str) -> Any:
    """The command or group with a name, or all if there is none; each is checked and recorded."""
    from ops.cli.permissions import guard

    command = typer.main.get_command(_only(name))
    guard(command)
    return command


def _only(name: str) -> typer.Typer:
    """The app without other commands: to import and build all takes 0.3 s."""
    if name in _SUBCOMMANDS:
        _add_subcommand(name)
    one = copy(app)
    one.registered_commands = [
        info for info in app.registered_commands if name == (info.name or getattr(info.callback, "__name__", None))
    ]
    one.registered_groups = [info for info in app.registered_groups if info.name == name]
    if one.registered_commands or one.registered_groups:
        return one
    _add_subcommands()
    return app


def _why_stopped(error: PlantlogError) -> str:
    """Hint that plantlog is stopped, if that is why the database does not respond."""
    if not isinstance(error, DatabaseError) or error.__cause__ is None:
        return ""
    from core.database import is_away
    from ops.appliance.stopped import check_own_database

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
        _command_line(next(iter(sys.argv[1:]), ""))(prog_name="plantlog")
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
