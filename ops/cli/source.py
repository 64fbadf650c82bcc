"""``plantlog source``: tags, certificates and tokens of sources, and the history of other systems."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.markup import escape
from rich.table import Table

from core.errors import OperationError
from core.formatting import wide
from core.paths import State
from core.terminal import Console
from ops.cli import certificate
from ops.cli.options import Yes

app = typer.Typer(
    help="Discover and import tags, trust certificates, make tokens for gateways, import history.", no_args_is_help=True
)
app.add_typer(certificate.app, name="certificate")
_token = typer.Typer(help="Add, list and remove the tokens of gateways that push.", no_args_is_help=True)
app.add_typer(_token, name="token")

_PushSource = Annotated[str, typer.Argument(metavar="SOURCE", help="Push source in plant.toml.")]
_ConfigFile = Annotated[
    Path | None, typer.Option(metavar="PLANT.TOML", help="File that defines SOURCE. Default: as for `up`.")
]
_APPLIED_NOTE = "The push collector takes it over within a second."
_DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}


@app.command()
def discover(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Name in plant.toml, or opc.tcp://HOST:PORT.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="CSV", help="File to create. Default: standard output.")
    ] = None,
    config: _ConfigFile = None,
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


@app.command("import-tags")
def import_tags(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="CSV of a device from KEPServerEX, JSON from Ignition, or publishednodes.json.",
        ),
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the source. Default: that of the file.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Address of the device or server. Not for publishednodes.json, which has it."
        ),
    ] = None,
    word_order: Annotated[
        str,
        typer.Option(metavar="ORDER", help="Word order of a Modbus device. The default is that of KEPServerEX."),
    ] = "CDAB",
    server: Annotated[
        str | None, typer.Option(metavar="SERVER", help="Ignition: name of the OPC server, if there are several.")
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FOLDER", show_default=False, help="Folder for the tag lists. Default: this one."
        ),
    ] = Path(),
) -> None:
    """Import tags of KEPServerEX, Ignition or OPC Publisher: write a tag list, print the source for plant.toml."""
    from ops.registration.tag_import.import_file import run

    run(file, name, address, word_order, server, output)


@app.command("import-history")
def import_history(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="CSV, Parquet, or line protocol.")],
    time_zone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Time zone of times without an offset from UTC, such as Europe/Berlin."),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=ROLE",
            help="Role of a column: channel, time, value, status, or ignore. Can be repeated.",
        ),
    ] = None,
    source: Annotated[str, typer.Option(metavar="NAME", help="Source of the channels that are created.")] = "import",
    decimal: Annotated[
        str | None, typer.Option(metavar="POINT|COMMA", help="Decimal separator. Default: that of the first lines.")
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Delimiter: comma, semicolon, tab or bar. Default: that of the first lines."),
    ] = None,
    date_order: Annotated[
        str | None, typer.Option(metavar="DMY|MDY|YMD", help="Order of dates, where the first lines do not tell.")
    ] = None,
    ambiguous: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST|SECOND|ORDER",
            help="Local times that occur twice: the first or second meaning, or by the ORDER of lines.",
        ),
    ] = None,
    status_codes: Annotated[
        str | None,
        typer.Option(metavar="OPCUA|OPCDA", help="Meaning of numbers in a column of statuses. Default: by their size."),
    ] = None,
    channel: Annotated[
        str, typer.Option(metavar="TEMPLATE", help="Line protocol: name of a field's channel, as in a push source.")
    ] = "{measurement}.{field}",
    encoding: Annotated[
        str | None, typer.Option(metavar="NAME", help="Encoding of the text. Default: UTF-8, or UTF-16 with a mark.")
    ] = None,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Put this before the names of channels: mill/.")] = "",
    rename: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="New names of channels: a line OLD,NEW for each. They get no prefix."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=KIND",
            help="Kind of channels that are created, by name or pattern: analog (the default), counter or discrete. "
            "Can be repeated.",
        ),
    ] = None,
    duplicates: Annotated[
        str, typer.Option(metavar="FIRST|LAST|ERROR", help="Which one stays of lines with one channel and time.")
    ] = "error",
    yes: Yes = False,
) -> None:
    """Import history from other systems: show how the files are understood, ask, and store each sample once.

    Exits with 3 if nobody confirmed.
    """
    from history.imports.channel_names import load_names
    from history.imports.check import Duplicates
    from history.imports.csv_layout import ROLES, Options
    from history.imports.import_files import run
    from history.imports.kinds import parse_kinds
    from history.imports.times import Ambiguous
    from ops.cli.permissions import account

    roles = {}
    for text in column or ():
        name, _, role = text.rpartition("=")
        roles[name] = _one_of("--column", role, {legal: legal for legal in ROLES})
    state = State.current()
    run(
        state,
        files,
        Options(
            encoding=encoding,
            delimiter=_one_of("--delimiter", delimiter, _DELIMITERS),
            decimal=_one_of("--decimal", decimal, {"point": ".", "comma": ","}),
            zone=_zone(time_zone),
            date_order=_one_of("--date-order", date_order, {"dmy": "dmy", "mdy": "mdy", "ymd": "ymd"}),
            ambiguous=_one_of("--ambiguous", ambiguous, {legal: legal for legal in get_args(Ambiguous)}),
            codes=_one_of("--status-codes", status_codes, {"opcua": "opcua", "opcda": "opcda"}),
            columns=roles,
            template=_template(channel),
            names=load_names(prefix, rename),
        ),
        _one_of("--duplicates", duplicates, {legal: legal for legal in get_args(Duplicates)}),
        source,
        parse_kinds(kind or ()),
        account(state),
        yes,
        Console(stderr=True),
    )


def _one_of(option: str, text: str | None, legal: dict[str, Any]) -> Any:
    if text is None:
        return None
    if text.lower() not in legal:
        raise OperationError(f"{option} {text!r}: legal are {', '.join(legal)}")
    return legal[text.lower()]


def _template(text: str) -> str:
    from pydantic import TypeAdapter, ValidationError

    from core.config.sources import ChannelTemplate

    try:
        return TypeAdapter[str](ChannelTemplate).validate_python(text)
    except ValidationError:
        legal = "legal are names with {measurement}, {field} and {tag.NAME}"
        raise OperationError(f"--channel {text!r}: {legal}") from None


def _zone(text: str | None) -> Any:
    from zoneinfo import ZoneInfo

    if text is None:
        return None
    try:
        return ZoneInfo(text)
    except (OSError, ValueError, KeyError):
        raise OperationError(f"--time-zone {text!r}: legal are names such as Europe/Berlin or UTC") from None


@_token.command("add")
def add_token(source: _PushSource, config: _ConfigFile = None) -> None:
    """Make a token for a gateway and print it. plantlog keeps only its hash; other tokens stay valid."""
    from ops import tokens

    file = tokens.token_file_of(source, config, State.current())
    token = tokens.add(file, source, State.current())
    typer.echo(token)
    typer.echo(f"Its hash is in {file}. The token is not shown again. {_APPLIED_NOTE}", err=True)


@_token.command("list")
def list_tokens(
    source: Annotated[str | None, typer.Argument(metavar="SOURCE", help="Push source. Default: all.")] = None,
    config: _ConfigFile = None,
) -> None:
    """List the tokens: the first digits of the hash, the comment, and when it was used last."""
    from ops import tokens

    table = Table("source", "hash", "comment", "last used")
    for token in tokens.list_tokens(source, config, State.current()):
        used = "unknown" if token.used_at is None else _last_use(token.used_at)
        table.add_row(token.source, token.short, escape(token.comment), used)
    wide(Console()).print(table)


@_token.command("remove")
def remove_token(
    source: _PushSource,
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="The first digits of the hash, as in `list`.")],
    config: _ConfigFile = None,
) -> None:
    """Remove a token, which is refused from then on. The only one can't be removed: add another one first."""
    from ops import tokens

    removed = tokens.remove(tokens.token_file_of(source, config, State.current()), source, prefix, State.current())
    typer.echo(f"removed {removed.short}. {_APPLIED_NOTE}")


@_token.command("hash")
def hash_token(source: _PushSource, config: _ConfigFile = None) -> None:
    """Replace a token that was written into the token file by its hash. It stays valid."""
    from ops import tokens

    file = tokens.token_file_of(source, config, State.current())
    replaced = tokens.hash_plain(file, source, State.current())
    typer.echo(
        f"{file}: " + ("it has only hashes" if replaced is None else f"hash {replaced.short} replaces the token")
    )


def _last_use(us: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(us / 1e6)) if us else "not since the collector's start"
