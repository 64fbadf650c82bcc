"""``plantlog source token``: the tokens of gateways that push."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from core.formatting import wide
from core.paths import State
from core.terminal import Console

# Commands import what they need when they run, so that --help and a typing error are answered at once.
# ruff: noqa: PLC0415

app = typer.Typer(help="Add, list and remove the tokens of gateways that push.", no_args_is_help=True)

_Source = Annotated[str, typer.Argument(metavar="SOURCE", help="Push source in plant.toml.")]
_Config = Annotated[
    Path | None, typer.Option(metavar="PLANT.TOML", help="File that defines SOURCE. Default: as for `up`.")
]
_TAKEN = "The push collector takes it over within a second."


@app.command()
def add(source: _Source, config: _Config = None) -> None:
    """Make a token for a gateway and print it. plantlog keeps only its hash; other tokens stay valid."""
    from ops import tokens

    file = tokens.token_file_of(source, config, State.current())
    token = tokens.add(file, source, State.current())
    typer.echo(token)
    typer.echo(f"Its hash is in {file}. The token is not shown again. {_TAKEN}", err=True)


@app.command("list")
def list_(
    source: Annotated[str | None, typer.Argument(metavar="SOURCE", help="Push source. Default: all.")] = None,
    config: _Config = None,
) -> None:
    """List the tokens: the first digits of the hash, the comment, and when it was used last."""
    from ops import tokens

    table = Table("source", "hash", "comment", "last used")
    for one in tokens.listed(source, config, State.current()):
        used = "unknown" if one.used_at is None else _used(one.used_at)
        table.add_row(one.source, one.short, escape(one.comment), used)
    wide(Console()).print(table)


@app.command()
def remove(
    source: _Source,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="The first digits of the hash, as in `list`.")],
    config: _Config = None,
) -> None:
    """Remove a token, which is refused from then on. The only one can't be removed: add another one first."""
    from ops import tokens

    removed = tokens.remove(tokens.token_file_of(source, config, State.current()), source, prefix, State.current())
    typer.echo(f"removed {removed.short}. {_TAKEN}")


@app.command("hash")
def hash_(source: _Source, config: _Config = None) -> None:
    """Replace a token that was written into the token file by its hash. It stays valid."""
    from ops import tokens

    file = tokens.token_file_of(source, config, State.current())
    replaced = tokens.hash_plain(file, source, State.current())
    typer.echo(
        f"{file}: " + ("it has only hashes" if replaced is None else f"hash {replaced.short} replaces the token")
    )


def _used(us: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(us / 1e6)) if us else "not since the collector's start"
