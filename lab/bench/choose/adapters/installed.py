"""Places where the contestants are installed: on PATH, importable, or in a folder that a TOML file names."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

from core.errors import ConfigError, Problem

VARIABLE = "PLANTLOG_CHOOSE"  # the TOML file, if no option names one


def folders_of(file: Path | None, names: tuple[str, ...]) -> dict[str, Path]:
    """Contestant → folder, of a file with a table ``[NAME]`` and ``folder = "..."`` for each. Raises ConfigError."""
    if file is None:
        file = Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None
    if file is None:
        return {}
    found: dict[str, Path] = {}
    problems = []
    for name, entry in read_toml(file).items():
        folder = entry.get("folder") if isinstance(entry, dict) else None
        if name not in names:
            problems.append(Problem(str(file), None, name, "an unknown contestant", ", ".join(names)))
        elif not isinstance(folder, str) or not Path(folder).is_dir():
            problems.append(Problem(str(file), None, f"{name}.folder", repr(folder), "an existing folder"))
        else:
            found[name] = Path(folder)
    if problems:
        raise ConfigError(problems)
    return found


def read_toml(file: Path) -> dict[str, Any]:
    """Raises ConfigError where ``file`` can't be read."""
    try:
        return tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError([Problem(str(file), None, "the file", str(error), "a TOML file")]) from None


def program(names: tuple[str, ...], folder: Path | None) -> str | None:
    """The first of ``names`` in ``folder``, else on PATH."""
    for path in (None if folder is None else str(folder), None):
        for name in names:
            if found := shutil.which(name, path=path):
                return found
    return None


def module(name: str, folder: Path | None) -> Any:
    """A Python module, from ``folder`` where it is not installed; None: it is not there."""
    if folder is not None and str(folder) not in sys.path:
        sys.path.append(str(folder))  # behind our own: what both have is ours
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
