"""``python -m dashboards.fill``: write the SQL of ``dashboards/queries`` into the dashboards that ask it.

Grafana and the viewer read ``json/*.json``, laid out by hand or in Grafana. The SQL in them is a copy: a query begins
with its name, ``-- channel.sql: curve``, and the text behind that line is that section of ``queries/channel.sql``.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
NAME = re.compile(r"-- (\w+)\.sql: (\w+)\n")
_SECTION = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def queries(name: str) -> dict[str, str]:
    """Section → SQL, with its comments. Raises FileNotFoundError."""
    parts = _SECTION.split((FOLDER / "queries" / f"{name}.sql").read_text(encoding="utf-8"))
    return {section: text.strip().removesuffix(";") for section, text in zip(parts[1::2], parts[2::2], strict=True)}


def filled(text: str) -> str:
    """A dashboard's file with its SQL as it is now. Raises KeyError for a section that there is not."""
    return json.dumps(_filled(json.loads(text)), indent=2, ensure_ascii=False) + "\n"


def _filled(value: Any) -> Any:
    match value:
        case dict():
            return {key: _filled(part) for key, part in value.items()}
        case list():
            return [_filled(part) for part in value]
        case str() if named := NAME.match(value):
            return named[0] + queries(named[1])[named[2]]
    return value


if __name__ == "__main__":
    for path in sorted((FOLDER / "json").glob("*.json")):
        before = path.read_text(encoding="utf-8")
        if (after := filled(before)) != before:
            path.write_text(after, encoding="utf-8")
            sys.stdout.write(f"{path.name} written\n")
