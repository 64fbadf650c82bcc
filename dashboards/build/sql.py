"""The SQL of the panels: ``dashboards/queries/<dashboard>.sql``, a section a query, as in ``schema.queries``."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parents[1] / "queries"
_SECTION = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def load(name: str) -> dict[str, str]:
    """Section name → SQL, with its comments. Raises FileNotFoundError."""
    parts = _SECTION.split((_FOLDER / f"{name}.sql").read_text(encoding="utf-8"))
    return {section: text.strip().removesuffix(";") for section, text in zip(parts[1::2], parts[2::2], strict=True)}
