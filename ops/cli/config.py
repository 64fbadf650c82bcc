"""``plantlog config``: check and apply a configuration; list, compare and restore those that were applied."""

from __future__ import annotations

import json
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from core.errors import OperationError
from core.formatting import count, table, wide
from core.paths import State
from core.terminal import Console
from ops.cli.options import AsJson, NewChannel, ReplacePlant, SameQuantity, Yes

if TYPE_CHECKING:
    from ops.registration.revisions import FileSet, Revision

app = typer.Typer(
    help="Check and apply the configuration; list, show, compare and restore those that were applied; rename channels.",
    no_args_is_help=True,
)

_Number = Annotated[int, typer.Argument(metavar="REVISION", help="Number of the revision, as in `config log`.")]


@app.command()
def check(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="PLANT.TOML", help="Configuration file. Default: that of the last `up`, or the example."
        ),
    ] = None,
) -> None:
    """Check a configuration. Reports all problems at once, with file, line, found and legal values."""
    from core.config.load import load
    from core.users.directory import UserDirectory, closed_viewer
    from ops import certificates
    from ops.appliance.programs import ports
    from ops.backup.repository import check_database
    from ops.deployment import Deployment, chosen_config
    from ops.ports import check_distinct

    config = chosen_config(config, State.current())
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


@app.command("apply")
def apply_files(
    config: Annotated[
        Path | None,
        typer.Option(metavar="PLANT.TOML", help="Configuration file. Default: the last one used."),
    ] = None,
    yes: Yes = False,
    full: Annotated[bool, typer.Option("--full", help="Print every line of a long plan.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the plan as JSON. Applies it only together with --yes.")
    ] = False,
    same_quantity: SameQuantity = None,
    new_channel: NewChannel = None,
    replace_plant: ReplacePlant = False,
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
def rename(
    old: Annotated[str, typer.Argument(metavar="OLD", help="Current name.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="New name.")],
    exchange: Annotated[
        bool, typer.Option("--exchange", help="NEW is a channel, too: each gets the name of the other.")
    ] = False,
) -> None:
    """Rename a channel. Its id and history are kept.

    If its address, type, kind or unit changes, too, use `up --same-quantity NAME` afterwards.
    """
    from ops.registration.rename import rename as run

    run(old, new, Console(), exchange=exchange)


@app.command()
def log(
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Number of revisions to print. 0: all.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the applied configurations, newest first: when, by whom, and how many channels changed."""
    from ops.registration.revisions import revisions

    applied = revisions(State.current(), limit or None)
    if as_json:
        typer.echo(json.dumps([revision.to_json() for revision in applied], indent=2))
        return
    counts = ("added", "moved", "changed", "retired")
    shown = table(">revision", "applied", "by", "host", *(f">{name}" for name in counts), "command")
    for revision in applied:
        who = f"{revision.who}, member {revision.member}" if revision.member else revision.who
        texts = (f"{revision.applied_at:%Y-%m-%d %H:%M:%SZ}", escape(who), escape(revision.host))
        numbers = (f"{getattr(revision, name):,}" for name in counts)
        shown.add_row(str(revision.number), *texts, *numbers, escape(revision.command))
    wide(Console()).print(shown)


@app.command()
def show(
    revision: _Number,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Print this file of the revision. Default: list them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show who applied a configuration, with which command, and its files; or print one of them."""
    from ops.registration.revisions import contents

    state = State.current()
    applied = _revision(state, revision)
    if file is not None and file not in applied.files:
        raise OperationError(f"revision {revision} has no file {file}; legal: {', '.join(sorted(applied.files))}")
    files = contents(state, applied)
    if file is not None:
        sys.stdout.buffer.write(files[file])
    elif as_json:
        typer.echo(json.dumps(applied.to_json(), indent=2))
    else:
        typer.echo(
            f"revision {applied.number}, applied {applied.applied_at:%Y-%m-%d %H:%M:%SZ} "
            f"by {applied.who} on {applied.host}"
        )
        typer.echo(applied.command)
        for name, sha256 in sorted(applied.files.items()):
            typer.echo(f"{sha256}  {len(files[name]):>11,} bytes  {name}")


@app.command()
def diff(
    revision: _Number,
    other: Annotated[
        int | None,
        typer.Argument(metavar="OTHER", help="Revision to compare with. Default: the files as they are now."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the files of a configuration with those of another one. Exit code: 0 same, 1 different."""
    from ops.registration.revisions import differences

    state = State.current()
    old = _file_set(state, _revision(state, revision))
    new = _file_set(state, _revision(state, other)) if other is not None else _present_files(_config(state))
    differing = differences(old, new)
    if as_json:
        typer.echo(json.dumps(differing, indent=2))
    else:
        for text in differing.values():
            typer.echo(text, nl=False)
    if differing:
        raise typer.Exit(1)


@app.command()
def revert(
    revision: _Number,
    apply: Annotated[bool, typer.Option("--apply", help="Then apply the files, as `config apply` does.")] = False,
    yes: Yes = False,
) -> None:
    """Replace the configuration files by those of an applied one, after showing the difference and asking.

    With --apply, the files stay as they were if it is refused. Exits with 3 if nobody confirmed it.
    """
    from core.config.snapshot import latest_number
    from ops.appliance.apply import ApplyOptions
    from ops.appliance.apply import apply as run_apply
    from ops.appliance.revert import revert as run
    from ops.appliance.up import UpOptions
    from ops.registration.revisions import contents, find, revisions

    state = State.current()
    applied = revisions(state)
    target = find(revision, applied)
    kept = {sha256 for other in applied for sha256 in other.files.values()}
    replaced = run(state, _config(state), target, contents(state, target), kept, yes)
    if not apply:
        typer.echo("Next: `plantlog config apply`")
        return
    number = latest_number(state.root)
    try:
        run_apply(UpOptions(), ApplyOptions(yes), Console())
    except BaseException:
        if latest_number(state.root) == number:  # else it failed behind the registration
            replaced.put_back()
            typer.echo(
                f"the files are as they were before. To decide on tags, run `plantlog config revert {revision}`, then "
                "`plantlog config apply` with --same-quantity or --new-channel",
                err=True,
            )
        raise


def _revision(state: State, number: int) -> Revision:
    from ops.registration.revisions import find, revisions

    return find(number, revisions(state))


def _config(state: State) -> Path:
    """plant.toml of the last ``up``. Raises OperationError."""
    from ops.deployment import Deployment

    deployment = Deployment.load(state)
    if deployment is None:
        raise OperationError(f"{state.root} has no configuration yet: run `plantlog up`")
    if deployment.generated:
        raise OperationError(f"{deployment.config} is generated by each `plantlog up`: there is nothing to compare")
    return deployment.config


def _file_set(state: State, revision: Revision) -> FileSet:
    from ops.registration.revisions import FileSet, contents

    return FileSet(f"revision {revision.number}", contents(state, revision))


def _present_files(config: Path) -> FileSet:
    """The files that ``config`` names now."""
    from core.config.load import file_digests
    from ops.registration.revisions import Files, FileSet

    files = Files(config, file_digests(config))
    return FileSet("now", {name: (config.parent / name).read_bytes() for name in files.names})
