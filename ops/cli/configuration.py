"""Commands of the configuration: ``check``, ``discover`` and ``rename``."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from core.errors import OperationError
from core.formatting import count
from core.paths import EXAMPLE, State
from core.terminal import Console

# Commands import what they need when they run, so that --help and a typing error are answered at once.
# ruff: noqa: PLC0415


def check(
    config: Annotated[
        Path | None,
        typer.Argument(metavar="PLANT.TOML", help="Default: the file of the last `up`, or the example."),
    ] = None,
) -> None:
    """Check a configuration. Reports all problems at once, with file, line, found and legal values."""
    from core.config.load import load
    from core.users.directory import UserDirectory, closed_viewer
    from ops import certificates
    from ops.appliance.programs import ports
    from ops.backup.repository import check_database
    from ops.deployment import Deployment
    from ops.ports import check_distinct

    if config is None:
        last = Deployment.load(State.current())
        config = EXAMPLE if last is None else last.config
    plant = load(config)
    check_distinct(chain.from_iterable(ports(Deployment(config, False), plant).values()))
    check_database(State.current(), config, plant.backup)
    if fault := certificates.fault(plant):
        raise OperationError(f"{config}: {fault}")
    tags = sum(len(source.tags) for source in plant.sources)
    for source in plant.sources:
        if not source.tags and source.kind != "push":
            typer.echo(f"{config}: warning: source {source.name} reads nothing: its tag list has no rows")
        elif source.tags:
            typer.echo(f"{config}: source {source.name}: {count(len(source.tags), 'channel')}")
    if plant.archive.location is not None:
        from history.archive.manifest import folder_problem

        if (problem := folder_problem(plant.archive.location)) is not None:
            typer.echo(f"{config}: warning: {problem}")
    if (closed := closed_viewer(plant.viewer.host, UserDirectory(State.current().root).users())) is not None:
        typer.echo(f"{config}: warning: {closed}")
    typer.echo(f"{config}: valid; plant {plant.name}, {count(len(plant.sources), 'source')}, {count(tags, 'channel')}")


def discover(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Name in plant.toml, or opc.tcp://HOST:PORT.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="CSV", help="File to create. Default: standard output.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="PLANT.TOML", help="File that defines SOURCE. Default: as for `up`.")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Connect without encryption (security mode None), if SOURCE is an address."),
    ] = False,
    diff: Annotated[
        bool,
        typer.Option("--diff", help="Compare the tag list of SOURCE with the server. Exit code: 0 same, 1 not."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the difference as JSON.")] = False,
) -> None:
    """Browse an OPC UA server: print its variables as a tag list, or what differs from the tag list.

    Exit code 1: the server did not show all of its variables.
    """
    from ops.cli.discover import discover as run
    from ops.cli.discover import show_difference

    if as_json and not diff:
        raise OperationError("--json needs --diff")
    if not diff:
        if not run(source, insecure, output, config, State.current()):
            raise typer.Exit(1)
    elif output is not None or insecure:
        raise OperationError("--diff goes with neither --output nor --insecure")
    elif show_difference(source, as_json, config, State.current()):
        raise typer.Exit(1)


def rename(
    old: Annotated[str, typer.Argument(metavar="OLD", help="Current name.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="New name.")],
    exchange: Annotated[
        bool, typer.Option("--exchange", help="NEW is a channel, too: each gets the name of the other.")
    ] = False,
) -> None:
    """Rename a channel. Its id and history are kept.

    If its definition changes, too, such as its address, type, kind or unit, `up --same-quantity NAME` says that it
    still measures the same.
    """
    from ops.registration.rename import rename as run

    run(old, new, Console(), exchange=exchange)
