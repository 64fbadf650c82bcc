"""``plantlog admin service``: the appliance as a systemd service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from core.terminal import Console

# Commands import what they need when they run, so that --help and a typing error are answered at once.
# ruff: noqa: PLC0415

app = typer.Typer(help="Start the appliance at boot, as a service of systemd that restarts it.", no_args_is_help=True)
_Name = Annotated[str, typer.Option(metavar="NAME", help="Name of the unit.")]


@app.command()
def install(
    config: Annotated[
        Path | None,
        typer.Option(metavar="PLANT.TOML", help="Configuration file. Default: the last one used, or the example."),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            metavar="USER", help="User who runs plantlog. Default: the owner of the state folder, or of plantlog."
        ),
    ] = None,
    name: _Name = "plantlog",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the unit, and change nothing.")] = False,
) -> None:
    """Make the unit, and start it, now and at boot. Safe to repeat."""
    from ops.service.install import install as command

    command(config, user, name, dry_run, Console())


@app.command()
def uninstall(name: _Name = "plantlog") -> None:
    """Stop the service, and remove its unit. The state folder stays."""
    from ops.service.install import uninstall as command

    command(name, Console())


@app.command()
def run(name: _Name = "plantlog") -> None:
    """Start the appliance, watch it in the foreground, and stop it on SIGTERM. Systemd runs this command."""
    from ops.service.foreground import run as command

    command(name)
