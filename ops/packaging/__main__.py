"""``python -m ops.packaging FOLDER``: make the packages of this version in a folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from ops.packaging.build import make


def main(folder: Path) -> None:
    """Make the packages of this version in a folder."""
    make(folder, partial(print, flush=True))


if __name__ == "__main__":
    typer.run(main)
