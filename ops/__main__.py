"""``python -m ops``: the command line of plantlog. ``./plantlog`` prepares the environment and hands over to this."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ingest.errors import ConfigError, PlantlogError
from ops.paths import CHECKOUT, EXAMPLE, State
from ops.words import count

# Commands import what they need when they run, so that --help and a typing error are answered at once.
# ruff: noqa: PLC0415

app = typer.Typer(
    help="Industrial telemetry ingestion: OPC UA and Modbus in, TimescaleDB hypertables out, each sample exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Make a database this installation's that is another one's; it says what.")
]
_SameQuantity = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A tag that changed its address, type or unit measures the same still; more."),
]
_NewChannel = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A tag that changed its address, type or unit is a new channel; more."),
]
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command()
def up(
    config: Annotated[
        Path | None,
        typer.Option(metavar="PLANT.TOML", help="The plant; default: that of the last time, at first the example."),
    ] = None,
    channels: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="A generated plant of so many channels instead.")
    ] = None,
    hz: Annotated[
        float | None, typer.Option(min=0.001, max=100.0, help="New values a second and channel, with --channels [1].")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1024, max=65_000, help="First of the ports of the simulator's plant [9100 ...].")
    ] = None,
    simulator: Annotated[
        bool | None, typer.Option(help="Whether the simulator serves the plant; default: the example and --channels.")
    ] = None,
    take_over: _TakeOver = False,
    same_quantity: _SameQuantity = None,
    new_channel: _NewChannel = None,
) -> None:
    """Make what is missing, start everything in the background, say what runs where."""
    from ops.meaning import Choice
    from ops.up import Asked
    from ops.up import up as run

    choice = Choice(same_quantity or (), new_channel or ())
    run(Asked(config, channels, hz, port, simulator, take_over, choice), Console())


@app.command()
def down(
    wipe: Annotated[bool, typer.Option("--wipe", help="Also remove the state folder, with all samples.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Drain and stop everything."""
    from ops.down import down as run

    run(wipe, yes, Console())


@app.command()
def status(
    once: Annotated[bool, typer.Option("--once", help="Print one look and end.")] = False,
    channels: Annotated[
        bool, typer.Option("--channels", help="Print every channel that can't be read, with the reason, and end.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one look as JSON and end.")] = False,
) -> None:
    """Show processes, sources, rates, lag, spool and database, live until Ctrl-C."""
    from ops.status import Watch

    watch = Watch(State.current())
    if as_json:
        typer.echo(json.dumps(watch.first(), indent=2))
        return
    from ops.status_table import bad_channels, live, show

    console = Console()
    if channels:
        typer.echo(bad_channels(watch.look()))
    elif once or not console.is_terminal:
        show(watch, console)
    else:
        live(watch, console)


@app.command()
def logs(
    process: Annotated[str | None, typer.Argument(help="postgres, writer, ...; default: all.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as they grow.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")] = 40,
) -> None:
    """Show what the processes say."""
    from ops.logs import tail_command

    command = tail_command(State.current(), process, follow, lines)
    os.execvp(command[0], command)


@app.command(context_settings=_PASS_ON)
def psql(context: typer.Context) -> None:
    """Open SQL on the database as the reader; arguments go to psql."""
    from ops.database import psql_command

    command, environment = psql_command(State.current())
    os.execvpe(command[0], [*command, *context.args], environment)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def ask(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Without: list the questions.")] = None,
    since: Annotated[str | None, typer.Option("--from", metavar="TIME", help="ISO 8601, or so long ago: 10m.")] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Its end [now].")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="Instead: around this moment.")] = None,
    around: Annotated[str, typer.Option("--around", metavar="LENGTH", help="So far before and after --at.")] = "5m",
    channel: Annotated[
        list[str] | None, typer.Option("--channel", "-c", help="A name or pattern with *; more.")
    ] = None,
    describe: Annotated[bool, typer.Option("--describe", help="Say what NAME finds and what its options are.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Rows of the table, 0: all.")] = 40,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask what happened: stuck sensors, replayed signals, first movers, ... A question's own options follow."""
    from ops import ask as asking

    if name is None:
        asking.list_questions(Console())
        return
    question = asking.question(name)
    if describe:
        typer.echo(asking.describe(question))
        return
    when = asking.When(since, until, at, around)
    answer = asking.ask(State.current(), question, when, channel or [], asking.options(question, context.args))
    if as_json:
        asking.write_json(answer)
    elif as_csv:
        asking.write_csv(answer)
    else:
        asking.show(question, answer, limit, Console())


@app.command()
def check(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="[PLANT.TOML]", help="Default: that of the last `up`, or the example."),
    ] = None,
) -> None:
    """Check a configuration: every problem at once, with file, line, what was found and what is legal."""
    from ingest.config.load import load
    from ops.deployment import Deployment

    if config is None:
        last = Deployment.load(State.current())
        config = EXAMPLE if last is None else last.config
    plant = load(config)
    tags = sum(len(source.tags) for source in plant.sources)
    typer.echo(f"{config}: legal; plant {plant.name}, {count(len(plant.sources), 'source')}, {count(tags, 'channel')}")


@app.command()
def discover(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Its name in plant.toml, or opc.tcp://HOST:PORT.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="CSV", help="A new file; default: print.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="PLANT.TOML", help="Where SOURCE stands; default: that of the last `up`.")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="An address is asked without encryption (security mode None).")
    ] = False,
) -> None:
    """Browse an OPC UA server: its variables as a tag list."""
    from ops.discover import discover as run

    run(source, insecure, output, config, State.current())


@app.command()
def init(
    folder: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where .env and secrets/ are made; default: the checkout.")
    ] = CHECKOUT,
) -> None:
    """Make passwords, tokens and .env for docker-compose.yml; what is there stays as it is."""
    from ops.init import init as run

    run(folder.absolute(), Console())


@app.command()
def prepare(
    config: Annotated[Path, typer.Option(metavar="PLANT.TOML", help="The plant.")] = EXAMPLE,
    take_over: _TakeOver = False,
    same_quantity: _SameQuantity = None,
    new_channel: _NewChannel = None,
) -> None:
    """Bring the schema to this version and register the plant: what containers wait for, before they start."""
    from ops.meaning import Choice
    from ops.prepare import prepare as run

    run(config.absolute(), Console(), take_over, Choice(same_quantity or (), new_channel or ()))


@app.command()
def rename(
    old: Annotated[str, typer.Argument(help="What the channel is called.")],
    new: Annotated[str, typer.Argument(help="What it is to be called.")],
) -> None:
    """Give a channel another name: its id and history stay."""
    from ops.rename import rename as run

    run(old, new, Console())


@app.command()
def targets() -> None:
    """Print what Prometheus has to scrape, as a file for its file_sd: ops/prometheus/targets/native.json."""
    from ops.prometheus.targets import targets as found

    typer.echo(found(State.current()))


@app.command(context_settings=_PASS_ON)
def simulator(context: typer.Context) -> None:
    """Speak to the simulator: fault, compare, export, run; arguments go to it."""
    from ops import health
    from ops.deployment import Running

    state = State.current()
    os.environ["PLANTLOG_STATE"] = str(state.root)
    if (running := Running.load(state)) is not None:
        os.environ["PLANTLOG_SIMULATOR_CONTROL_PORT"] = str(health.control_port(running.health))
    os.execv(sys.executable, [sys.executable, "-P", "-m", "simulator", *context.args])


@app.command(context_settings=_PASS_ON)
def test(context: typer.Context) -> None:
    """Run the tests; arguments go to pytest. Default: unit, integration and end-to-end, a file each to two workers."""
    os.chdir(CHECKOUT)
    arguments = context.args or ["-n", "2", "--dist", "loadfile"]
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments])


def _mount() -> None:
    """The commands that have a folder of their own."""
    from ops.alarms import app as alarms
    from ops.bench import app as bench
    from ops.certificate import app as certificate
    from ops.chaos.command import chaos
    from ops.evidence.command import export, seal, verify
    from ops.maintenance import app as maintenance
    from ops.maintenance import retention
    from ops.spool import app as spool

    for command in (seal, verify, export, retention, chaos):
        app.command()(command)
    app.add_typer(alarms, name="alarms")
    app.add_typer(bench, name="bench")
    app.add_typer(certificate, name="certificate")
    app.add_typer(maintenance, name="maintenance")
    app.add_typer(spool, name="spool")


def main() -> int:
    """Run a command; what went wrong is said in words, with exit code 1."""
    _mount()
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # what libraries say to programmers
    for library in ("asyncua", "asyncio", "pymodbus"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    try:
        app(prog_name="plantlog")
    except ConfigError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        typer.echo(count(len(error.problems), "problem"), err=True)
        return 1
    except PlantlogError as error:
        typer.echo(f"plantlog: {error}", err=True)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
