"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

PASS_THROUGH: dict[str, Any] = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "help_option_names": [],
}  # to other programs
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV, with all rows.")]
Limit = Annotated[int, typer.Option(min=0, help="Maximum number of rows of a table. 0: all.")]
Output = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the rows to a file: .parquet, .arrow or .csv. Only for engineers."),
]
Memory = Annotated[str, typer.Option(metavar="SIZE", help="Memory that a query may use, such as 500MB or 2GB.")]
Threads = Annotated[int, typer.Option(min=1, help="CPU cores that a query may use.")]
Timeout = Annotated[
    str, typer.Option(metavar="DURATION", help="Time that the command may take; at a prompt, each query.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Channels = Annotated[
    list[str] | None, typer.Option("--channel", "-c", metavar="NAME", help="Name, or pattern with *. Can be repeated.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="PLANT.TOML",
        help="Configuration file. Default: the last one used; at first that of PLANTLOG_CONFIG, or the example.",
    ),
]
PlantsFile = Annotated[
    Path | None,
    typer.Option(
        "--plants",
        metavar="FILE",
        help="Read the archives of the plants that this file lists, in place of this appliance's data. "
        "Default with --plant: PLANTLOG_PLANTS.",
    ),
]
PlantNames = Annotated[
    list[str] | None,
    typer.Option("--plant", metavar="NAME", help="Only this plant of the file, or a pattern with *. Can be repeated."),
]
TakeOver = Annotated[
    str | None,
    typer.Option(
        metavar="INSTALLATION",
        help="Become this installation of the database, which is gone: its id, the beginning of it, or its plant.",
    ),
]
SameQuantity = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Changed tag that still measures the same quantity, or a pattern with *. Can be repeated.",
    ),
]
NewChannel = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Changed tag that becomes a new channel, or a pattern with *. Can be repeated."),
]
ReplacePlant = Annotated[
    bool, typer.Option("--replace-plant", help="The configuration is another plant's, which replaces this one.")
]
