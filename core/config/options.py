"""Options of the configuration in force, as they are on disk: the model takes 0.2 s to import.

``snapshot`` has the form of the files.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER = "config"


def numbers(folder: Path) -> list[int]:
    """The numbers of the configurations in a folder, in order."""
    return sorted(int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal())


def path_of(folder: Path, number: int) -> Path:
    """The file of a configuration."""
    return folder / f"{number:06}.json"


def table_in_force(state: Path, table: str) -> dict[str, Any]:
    """The options of a table that differ from their defaults; none before the first ``up``."""
    folder = state / FOLDER
    options: dict[str, Any] = {}
    if known := numbers(folder):
        # Another version's configuration can't be read: whoever needs more of it says so.
        with suppress(OSError, ValueError, KeyError), path_of(folder, known[-1]).open() as file:
            file.readline()
            options = json.loads(file.readline())["plant"].get(table, {})
    return options
