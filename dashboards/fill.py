"""The dashboards with their SQL: ``python -m dashboards.fill FOLDER`` writes them for Grafana.

``json/*.json``, laid out by hand or in Grafana, names each query, as in ``-- channel.sql: curve``. Its text is that
section of ``queries/channel.sql``, where ``$__installationFilter(column)`` stands for a condition: the source with this
id is of a selected installation, or of none. The viewer has files of its own in ``viewer/json``: Grafana can't ask
questions. There, ``-- questions`` stands for all of them, as options of a variable.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from schema.queries import sections
from schema.question_files import questions

FOLDER = Path(__file__).parent
OF_GRAFANA = FOLDER / "json"
OF_VIEWER = FOLDER / "viewer" / "json"
NAME = re.compile(r"-- (\w+)\.sql: (\w+)")
_FILTER = re.compile(r"\$__installationFilter\(([\w.]+)\)")
_CONDITION = (
    r"\1 NOT IN (SELECT o.id FROM plant.source AS o WHERE o.installation_id::text NOT IN (${installation:sqlstring}))"
)


@cache
def queries(name: str) -> Mapping[str, str]:
    """Section → SQL, with its comments; complete. Raises FileNotFoundError."""
    texts = sections(FOLDER / "queries" / f"{name}.sql")
    return {section: _FILTER.sub(_CONDITION, sql) for section, sql in texts.items()}


def dashboards(*folders: Path) -> dict[str, Any]:
    """File name → dashboard, complete; of two with one name, that of the last folder.

    Raises KeyError for a section that there is not.
    """
    paths = {path.name: path for folder in folders for path in folder.glob("*.json")}
    return {name: _filled(json.loads(path.read_bytes())) for name, path in sorted(paths.items())}


def _filled(value: Any) -> Any:
    match value:
        case dict():
            return {key: _filled(part) for key, part in value.items()}
        case list():
            return [_filled(part) for part in value]
        case str() if named := NAME.fullmatch(value):
            return f"{value}\n{queries(named[1])[named[2]]}"  # the name stays, for whoever looks at the server
        case "-- questions":
            return [{"text": f"{one.name}: {one.purpose}", "value": one.name} for one in questions().values()]
    return value


def write(folder: Path) -> None:
    """Write the dashboards into the folder that Grafana reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in dashboards(OF_GRAFANA).items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m dashboards.fill FOLDER")
    write(Path(sys.argv[1]))
