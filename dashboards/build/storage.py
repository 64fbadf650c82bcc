"""5 Storage: what takes the room, and how long there is some left."""

from __future__ import annotations

from dashboards.build.dashboard import Dashboard
from dashboards.build.options import target
from dashboards.build.panels import Field, stat
from dashboards.build.sql import load

_SQL = load("storage")


def dashboard() -> Dashboard:
    """All relations and days."""
    made = Dashboard(
        5,
        "storage",
        "Storage",
        "What takes the room, in which form, and how long it lasts.",
        since="now-30d",
        refresh="1m",
    )
    made.add(
        stat(
            "Database",
            "All that this database takes on disk, without the write-ahead log.",
            [target(_SQL["database_size"])],
            Field("bytes"),
        ),
        6,
        3,
    )
    return made
