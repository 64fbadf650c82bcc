"""``python -m ops.packaging FOLDER``: make the packages of this version in a folder."""

from __future__ import annotations

import typer

from ops.packaging.build import make

if __name__ == "__main__":
    typer.run(make)
