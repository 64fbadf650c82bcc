"""``plantlog config``: list, show, compare and restore the configurations that were applied."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from core.errors import OperationError
from core.formatting import wide
from core.paths import State
from core.terminal import Console

if TYPE_CHECKING:
    from pathlib import Path

    from ops.registration.file_diff import Side
    from ops.registration.revisions import Revision

# Commands import what they need when they run, so that --help and a typing error are answered at once.
# ruff: noqa: PLC0415

app = typer.Typer(
    help="List, show, compare and restore the configurations that were applied.",
    no_args_is_help=True,
    add_completion=False,
)

_Number = Annotated[int, typer.Argument(metavar="REVISION", help="Number in `config log`.")]


@app.command()
def log(
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Number of revisions to print. 0: all.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the applied configurations, newest first: when, by whom, and how many channels changed."""
    from ops.registration.revisions import revisions

    known = revisions(State.current(), limit or None)
    if as_json:
        typer.echo(json.dumps([one.to_json() for one in known], indent=2))
        return
    table = Table()
    counts = ("added", "moved", "changed", "retired")
    for column in ("revision", "applied", "by", "host", *counts, "command"):
        table.add_column(column, justify="right" if column in ("revision", *counts) else "left")
    for one in known:
        who = f"{one.who}, member {one.member}" if one.member else one.who
        texts = (f"{one.applied_at:%Y-%m-%d %H:%M:%SZ}", escape(who), escape(one.host))
        numbers = (f"{getattr(one, what):,}" for what in counts)
        table.add_row(str(one.number), *texts, *numbers, escape(one.command))
    wide(Console()).print(table)


@app.command()
def show(
    revision: _Number,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Print this file of the revision. Default: list them.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show who applied a configuration, with which command, and its files; or print one of them."""
    from ops.registration.revisions import contents

    state = State.current()
    one = _revision(state, revision)
    if file is not None and file not in one.files:
        raise OperationError(f"revision {revision} has no file {file}; legal: {', '.join(sorted(one.files))}")
    files = contents(state, one)
    if file is not None:
        sys.stdout.buffer.write(files[file])
    elif as_json:
        typer.echo(json.dumps(one.to_json(), indent=2))
    else:
        typer.echo(f"revision {one.number}, applied {one.applied_at:%Y-%m-%d %H:%M:%SZ} by {one.who} on {one.host}")
        typer.echo(one.command)
        for name, sha256 in sorted(one.files.items()):
            typer.echo(f"{sha256}  {len(files[name]):>11,} bytes  {name}")


@app.command()
def diff(
    revision: _Number,
    other: Annotated[
        int | None, typer.Argument(metavar="REVISION", help="Compare with this one. Default: with the files now.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare the files of a configuration with those of another one. Exit code: 0 same, 1 different."""
    from ops.registration.file_diff import differences

    state = State.current()
    old = _side(state, _revision(state, revision))
    new = _side(state, _revision(state, other)) if other is not None else _now(_config(state))
    found = differences(old, new)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        for text in found.values():
            typer.echo(text, nl=False)
    if found:
        raise typer.Exit(1)


@app.command()
def revert(
    revision: _Number,
    apply: Annotated[bool, typer.Option("--apply", help="Then apply the files, as `plantlog apply` does.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
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
    known = revisions(state)
    one = find(revision, known)
    kept = {sha256 for other in known for sha256 in other.files.values()}
    replaced = run(state, _config(state), one, contents(state, one), kept, yes)
    if not apply:
        typer.echo("Next: `plantlog apply`")
        return
    number = latest_number(state.root)
    try:
        run_apply(UpOptions(), ApplyOptions(yes), Console())
    except BaseException:
        if latest_number(state.root) == number:  # else it failed behind the registration
            replaced.put_back()
            typer.echo(
                f"the files are as they were before. To decide on tags, run `plantlog config revert {revision}`, then "
                "`plantlog apply` with --same-quantity or --new-channel",
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


def _side(state: State, revision: Revision) -> Side:
    from ops.registration.file_diff import Side
    from ops.registration.revisions import contents

    return Side(f"revision {revision.number}", contents(state, revision))


def _now(config: Path) -> Side:
    """The files that ``config`` names now."""
    from core.config.load import file_digests
    from ops.registration.file_diff import Side
    from ops.registration.revisions import Files

    files = Files(config, file_digests(config))
    return Side("now", {name: (config.parent / name).read_bytes() for name in files.names})
