"""``plantlog import-tags``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# ruff: noqa: PLC0415  (see ops.cli.app)


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
        typer.Option(metavar="ORDER", help="Word order of a Modbus device. Default: CDAB, as in KEPServerEX."),
    ] = "CDAB",
    server: Annotated[
        str | None, typer.Option(metavar="SERVER", help="Ignition: name of the OPC server, if there are several.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the tag lists. Default: this one.")
    ] = Path(),
) -> None:
    """Import tags of KEPServerEX, Ignition or OPC Publisher: write a tag list, print the source for plant.toml."""
    from ops.registration.tag_import.run import run

    run(file, name, address, word_order, server, output)
