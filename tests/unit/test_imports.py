"""Folders are layers: what one imports never imports it, at any distance."""

from __future__ import annotations

import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMPORT = re.compile(r"^ *(?:from ([\w.]+) import (?:\(([^)]*)\)|([^(#\n]+))|import ([\w.]+))", re.MULTILINE)
# Each room and those that it may import.
FLOORS: dict[str, set[str]] = {
    "schema": set(),
    "core": {"schema"},
    "ingest": {"schema", "core"},
    "simulator": {"schema", "core", "ingest"},
    "history": {"schema", "core", "ingest"},
    "dashboards": {"schema", "core", "ingest", "history"},
    "ops": {"schema", "core", "ingest", "history"},
    "lab": {"schema", "core", "ingest", "history", "dashboards", "ops", "simulator"},
}


def imported(path: Path) -> set[str]:
    """Our own modules that a file imports, also within its functions. Every file has the form that ruff gives it."""
    names: set[str] = set()
    for module, several, one, whole in IMPORT.findall(path.read_text(encoding="utf-8")):
        names |= {module, whole} | {f"{module}.{name}" for name in re.findall(r"\w+", several or one)}
    return {name for name in names if name.partition(".")[0] in FLOORS}


def folder_of(module: str) -> str | None:
    """Folder of a module or a package; None: it is a name within a module."""
    path = ROOT.joinpath(*module.split("."))
    if path.with_suffix(".py").is_file():
        return str(path.parent.relative_to(ROOT))
    return str(path.relative_to(ROOT)) if path.is_dir() else None


@cache
def graph() -> dict[str, set[str]]:
    """Folder → the folders that its modules import. What a package is started by (``__main__``) is above all of it."""
    found: dict[str, set[str]] = {}
    for path in (path for package in FLOORS for path in (ROOT / package).rglob("*.py")):
        folder = str(path.parent.relative_to(ROOT)) + ("/__main__" if path.stem == "__main__" else "")
        folders = {folder_of(module) for module in imported(path)} - {None, folder}
        found.setdefault(folder, set()).update(name for name in folders if name is not None)
    return found


def test_no_folder_imports_upwards() -> None:
    try:
        TopologicalSorter(graph()).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_no_room_imports_one_above_it() -> None:
    upwards = [
        f"{path.relative_to(ROOT)} imports {name}"
        for room, below in FLOORS.items()
        for path in (ROOT / room).rglob("*.py")
        for name in imported(path)
        if name.partition(".")[0] not in below | {room} and folder_of(name) is not None
    ]
    assert not upwards
