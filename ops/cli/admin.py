"""``plantlog admin``: the machine's service, backups, maintenance, spools, servers of a database, and bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from core.paths import CHECKOUT, EXAMPLE, State
from core.terminal import Console
from ops.cli import backup, database, spool
from ops.cli.options import AsJson, ConfigFile, NewChannel, SameQuantity, TakeOver

app = typer.Typer(
    help="Start at boot, back up and restore, maintain; run the database on several machines, or in containers; "
    "install without a network.",
    no_args_is_help=True,
)
_service = typer.Typer(
    help="Start the appliance at boot, as a service of systemd that restarts it.", no_args_is_help=True
)
_maintenance = typer.Typer(help="List the maintenance jobs with their last runs, or run one now.")
app.add_typer(_service, name="service")
app.add_typer(backup.app, name="backup")
app.command()(backup.restore)
app.add_typer(_maintenance, name="maintenance")
app.add_typer(spool.app, name="spool")
app.add_typer(database.app, name="database")
_UnitName = Annotated[str, typer.Option(metavar="NAME", help="Name of the unit.")]


@_service.command()
def install(
    config: ConfigFile = None,
    user: Annotated[
        str | None,
        typer.Option(
            metavar="USER", help="User who runs plantlog. Default: the owner of the state folder, or of plantlog."
        ),
    ] = None,
    name: _UnitName = "plantlog",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the unit, and change nothing.")] = False,
) -> None:
    """Make the unit, and start it, now and at boot. Safe to repeat."""
    from ops.service.install import install as command

    command(config, user, name, dry_run, Console())


@_service.command()
def uninstall(name: _UnitName = "plantlog") -> None:
    """Stop the service, and remove its unit. The state folder stays."""
    from ops.service.install import uninstall as command

    command(name, Console())


@_service.command("run")
def run_service(name: _UnitName = "plantlog") -> None:
    """Start the appliance, watch it in the foreground, and stop it on SIGTERM. Systemd runs this command."""
    from ops.service.foreground import run as command

    command(name)


@_maintenance.callback(invoke_without_command=True)
def listed(context: typer.Context, as_json: AsJson = False) -> None:
    """List the maintenance jobs with their last runs."""
    if context.invoked_subcommand is None:
        from ops.maintenance.report import list_jobs

        list_jobs(State.current(), as_json)


@_maintenance.command(name="run")
def run_jobs(names: Annotated[list[str], typer.Argument(metavar="JOB", help="Jobs to run, in this order.")]) -> None:
    """Run jobs now. Safe while the appliance is running."""
    from ops.appliance.service import check_own_database
    from ops.maintenance.report import run_jobs as run

    check_own_database(State.current())
    if not run(State.current(), names):
        raise typer.Exit(1)


@app.command()
def retention(as_json: AsJson = False) -> None:
    """Show what retention would drop now, and why. Changes nothing."""
    from ops.maintenance.report import show_plan

    show_plan(State.current(), as_json)


@app.command()
def certificate(
    pem: Annotated[
        bool, typer.Option("--pem", help="Print the certificate of plantlog's CA only, for clients to trust.")
    ] = False,
    cluster: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write ca.crt and member.pem, for scheduler, workers and clients of a cluster that computes "
            "questions. Only for engineers.",
        ),
    ] = None,
) -> None:
    """Show the certificate of plantlog's own servers (HTTPS), and the CA that clients have to trust."""
    from core.config.snapshot import plant_in_force
    from ops import certificates

    state = State.current().root
    if cluster is not None:
        typer.echo(certificates.cluster_member(state / "pki", cluster))
        return
    text_of = certificates.authority_pem if pem else certificates.server_certificate
    typer.echo(text_of(plant_in_force(state, tags_of=()), state), nl=not pem)


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
    take_over: TakeOver = None,
    same_quantity: SameQuantity = None,
    new_channel: NewChannel = None,
) -> None:
    """Upgrade the schema and register the plant. For containers, which wait for this before they start."""
    from ops.containers.prepare import prepare as run
    from ops.registration.redefined_tags import TagDecisions

    run(config.absolute(), Console(), take_over, TagDecisions(same_quantity or (), new_channel or ()))


@app.command()
def bundle(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to create.")],
    machines: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="TARGET,…",
            help="Systems and architectures, such as debian12-amd64,debian13-arm64. Default: this machine's.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="PEM", help="Private key (Ed25519) to sign with. Default: no signature."),
    ] = None,
) -> None:
    """Put all that an installation downloads into one file, for machines without a network."""
    from ops.bundle.make import make, targets_of

    digest = make(file, targets_of(machines), key, lambda line: typer.echo(line, err=True))
    typer.echo(f"{digest}  {file}")


@app.command()
def targets() -> None:
    """Print the scrape targets for Prometheus, in the format of file_sd_configs."""
    from ops.deployment import scrape_targets

    typer.echo(scrape_targets(State.current()))
