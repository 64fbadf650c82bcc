"""The SQL of the appliance: ``queries/*.sql``, each file split into sections by ``-- name: section`` lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

_FOLDER = Path(__file__).parent / "queries"
_SECTION = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def sections(path: Path) -> Mapping[str, str]:
    """Section name → SQL text of a file, without the last semicolon: COPY takes none. Raises FileNotFoundError."""
    parts = [part.strip().removesuffix(";") for part in _SECTION.split(path.read_text(encoding="utf-8"))]
    return MappingProxyType(dict(zip(parts[1::2], parts[2::2], strict=True)))


@cache
def load(name: str) -> Mapping[str, str]:
    """Section name → SQL text of ``queries/<name>.sql``. Raises FileNotFoundError for a name that has no file."""
    return sections(_FOLDER / f"{name}.sql")
