"""``python -m ops.release VERSION --key FILE``: make a release of the checked-out commit."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from core.errors import PlantlogError
from ops.release.make import make


def main(
    version: Annotated[str, typer.Argument(help="Version, such as 1.1.0.")],
    key: Annotated[Path, typer.Option(help="PEM file of a private key (Ed25519), which signs.")],
    targets: Annotated[str | None, typer.Option("--for", help="As of `plantlog admin bundle`.")] = None,
) -> None:
    """Make a release of the checked-out commit: dist/plantlog-VERSION."""
    try:
        print(make(version, key.absolute(), targets, partial(print, flush=True)))
    except (PlantlogError, OSError) as error:
        sys.exit(f"ops.release: {error}")


if __name__ == "__main__":
    typer.run(main)
