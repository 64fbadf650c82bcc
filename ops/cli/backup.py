"""``plantlog admin backup`` and ``plantlog admin restore``."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import OperationError
from core.files import file_errors
from core.formatting import table, wide
from core.paths import State
from core.terminal import Console
from ops.cli.options import AsJson

if TYPE_CHECKING:
    from core.config.model import BackupOptions

app = typer.Typer(help="Back up now; list or verify the backups.")
_MIB = 1024**2
_VARIABLE = "PLANTLOG_BACKUP_PASSPHRASE"


@app.callback(invoke_without_command=True)
def now(
    context: typer.Context,
    full: Annotated[bool, typer.Option("--full", help="Make a full backup.")] = False,
) -> None:
    """Back up now: what has changed since the last backup, or everything."""
    if context.invoked_subcommand is None:
        from ops.backup.repository import back_up

        backup = asyncio.run(back_up(State.current(), full))
        seconds = (backup.ended - backup.started).total_seconds()
        size = f"{backup.stored / _MIB:,.1f} MiB of {backup.size / _MIB:,.1f} MiB"
        typer.echo(f"{backup.label}: {backup.kind}, {size}, {seconds:.0f} s")


@app.command(name="list")
def listed(as_json: AsJson = False) -> None:
    """List the backups."""
    from ops.backup.repository import backups

    all_backups = asyncio.run(backups(State.current()))
    if as_json:
        typer.echo(json.dumps([asdict(backup) for backup in all_backups], indent=2, default=str))
        return
    shown = table("backup", "kind", "from (UTC)", "to", ">MiB", ">stored MiB")
    for backup in all_backups:
        times = (f"{time:%Y-%m-%d %H:%M:%S}" for time in (backup.started, backup.ended))
        sizes = (f"{size / _MIB:,.1f}" for size in (backup.size, backup.stored))
        shown.add_row(backup.label, backup.kind, *times, *sizes)
    wide(Console()).print(shown)


@app.command()
def verify() -> None:
    """Compare every file in the repository with its checksum."""
    from ops.backup.repository import verify as run

    typer.echo(asyncio.run(run(State.current())))


@app.command()
def rehearse() -> None:
    """Restore the newest backup into a scratch folder, verify it, and delete it."""
    from ops.backup.rehearse import rehearse as run

    proof = run(State.current(), typer.echo)
    typer.echo(
        f"{proof.label} is whole: {proof.batches:,} batches, {proof.sealed_days:,} sealed days, {proof.seconds:.0f} s"
    )


@app.command(name="take-over")
def take_over() -> None:
    """Back up to the repository that this appliance was restored from: the first one no longer runs."""
    from ops.backup.repository import take_over as run

    typer.echo(f"the next `plantlog up` begins to back up to {run(State.current())}")


def restore(
    repository: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE", help="Folder, sftp://USER@HOST/PATH or s3://BUCKET/PATH. Default: as configured."
        ),
    ] = None,
    passphrase_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File with the passphrase. Default: the variable PLANTLOG_BACKUP_PASSPHRASE, or as configured.",
        ),
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="SFTP: private key. S3: access key. Default: as configured.")
    ] = None,
    known_hosts_file: Annotated[Path | None, typer.Option(metavar="FILE", help="SFTP: keys of known hosts.")] = None,
    s3_endpoint: Annotated[str | None, typer.Option(metavar="HOST[:PORT]", help="S3: server.")] = None,
    s3_region: Annotated[str | None, typer.Option(metavar="REGION", help="S3: region.")] = None,
    s3_uri_style: Annotated[str | None, typer.Option(metavar="STYLE", help="S3: path or host.")] = None,
    ca_file: Annotated[Path | None, typer.Option(metavar="FILE", help="S3: CA of the server's certificate.")] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="Time to restore the database to (UTC if it has no offset). Default: the newest.",
        ),
    ] = None,
    into: Annotated[Path | None, typer.Option(metavar="FOLDER", help="New state folder. Default: this one.")] = None,
    start: Annotated[bool, typer.Option(help="Start the appliance afterwards.")] = True,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Back up to the repository: the first appliance no longer runs.")
    ] = False,
) -> None:
    """Restore the database, or a whole appliance on a new machine, from its backups, and start it."""
    from datetime import UTC, datetime
    from functools import partial

    from history.questions.ask import parse_time
    from ops.appliance.supervisor import database_stopped
    from ops.appliance.up import UpOptions, new_state_folder, up
    from ops.backup.repository import archive_of, options_in_force
    from ops.backup.restore import restore as run

    configured = options_in_force(State.current())
    options_set = {
        "repository": repository,
        "key_file": key_file,
        "known_hosts_file": known_hosts_file,
        "s3_endpoint": s3_endpoint,
        "s3_region": s3_region,
        "s3_uri_style": s3_uri_style,
        "ca_file": ca_file,
    }
    options = _options(configured, {name: value for name, value in options_set.items() if value is not None})
    archive = replace(archive_of(options), passphrase=_passphrase(passphrase_file, configured.passphrase_file))
    now = datetime.now(UTC)
    time = None if at is None else parse_time("--at", at, now)
    if time is not None and time > now:
        raise OperationError(f"--at {at} is in the future")
    if into is not None:
        os.environ["PLANTLOG_STATE"] = str(into.absolute())
    state = State.current()
    console = Console()
    with new_state_folder(state, console) as undo:
        stopped = partial(database_stopped, state)
        run(state, archive, time, typer.echo, take_over=take_over, server_stopped=stopped, before_start=undo.pop_all)
    typer.echo(f"{state.root} is restored")
    if start:
        up(UpOptions(), console)


def _options(configured: BackupOptions, values: dict[str, str | Path]) -> BackupOptions:
    """``[backup]`` with the options that are given on the command line."""
    from pydantic import ValidationError

    from core.config.explain import invalid_value, legal_values
    from core.config.model import BackupOptions
    from core.config.repositories import in_backup

    if isinstance(repository := values.get("repository"), str) and "://" not in repository:
        values["repository"] = str(Path(repository).absolute())
    try:
        options = BackupOptions.model_validate({**configured.model_dump(), **values})
    except ValidationError as error:
        detail = error.errors()[0]
        raise _wrong(str(detail["loc"][0]), invalid_value(detail), legal_values(BackupOptions, detail)) from None
    if options.repository is None:
        raise OperationError("--repository is required: the state folder has no configuration with [backup]")
    for name, value, legal in in_backup(options):
        if name != "passphrase_file":
            raise _wrong(name, value, legal)
    return options


def _wrong(option: str, found: str, legal: str) -> OperationError:
    return OperationError(f"--{option.replace('_', '-')}: found {found}; legal: {legal}")


def _passphrase(option: Path | None, configured: Path | None) -> str:
    file = option or (None if _VARIABLE in os.environ else configured)
    if file is None:
        text = os.environ.get(_VARIABLE, "")
    else:
        with file_errors(file, "a file with the passphrase in one line"):
            text = file.read_text(encoding="utf-8")
    if len(text.split()) != 1:
        origin = file or f"--passphrase-file or {_VARIABLE}"
        raise OperationError(f"{origin}: found no passphrase; legal: one line without spaces")
    return text.strip()
