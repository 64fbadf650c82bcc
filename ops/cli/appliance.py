"""Commands that start, stop and watch the appliance, and ``plantlog test``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from core.errors import OperationError
from core.paths import CHECKOUT, State
from core.terminal import Console
from ops.cli.options import ConfigFile, NewChannel, ReplacePlant, SameQuantity, TakeOver, Yes


def up(
    config: ConfigFile = None,
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
    take_over: TakeOver = None,
    same_quantity: SameQuantity = None,
    new_channel: NewChannel = None,
    replace_plant: ReplacePlant = False,
) -> None:
    """Start the appliance in the background, or apply a changed configuration. Safe to repeat."""
    from ops.appliance.up import UpOptions
    from ops.appliance.up import up as run
    from ops.registration.redefined_tags import TagDecisions

    decisions = TagDecisions(same_quantity or (), new_channel or ())
    run(UpOptions(config, channels, hz, port, simulator, take_over, decisions, replace_plant), Console())


def down(
    wipe: Annotated[bool, typer.Option("--wipe", help="Also delete the state folder with all samples.")] = False,
    yes: Yes = False,
) -> None:
    """Stop the appliance, after writing the spools to the database."""
    from ops.appliance.down import down as run

    run(wipe, yes, Console())


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


def logs(
    process: Annotated[
        str | None, typer.Argument(metavar="PROCESS", help="Process, such as writer. Default: all.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines as they are written.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="Number of lines to print.")] = 40,
) -> None:
    """Print the logs of the processes."""
    import subprocess

    command = tail_command(State.current(), process, follow, lines)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as tail:
        for line in tail.stdout or ():
            print(line, end="", flush=follow)
    raise typer.Exit(tail.returncode)


def test(context: typer.Context) -> None:
    """Run the tests. Arguments are passed on to pytest.

    Default: the unit, integration and end-to-end tests that are not marked slow.
    """
    os.chdir(CHECKOUT)
    names_tests = any(Path(argument.partition("::")[0]).exists() for argument in context.args)
    selected = () if names_tests else ("-m", "not slow")
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *selected, *context.args])


def tail_command(state: State, process: str | None, follow: bool, lines: int) -> list[str]:
    """The tail command. Raises OperationError if there are no logs, or none with that name."""
    files = {path.stem: path for path in sorted(state.log.glob("*.log"))}
    if not files:
        raise OperationError(f"{state.log} has no logs yet: run `plantlog up`")
    if process is not None and process not in files:
        raise OperationError(f"no log of process {process}; known: {', '.join(files)}")
    selected = list(files.values()) if process is None else [files[process]]
    # -F: go on with the new file when one was rotated away.
    return ["tail", "-n", str(lines), *(["-F"] if follow else []), "--", *map(str, selected)]
