"""5 Storage: what takes the room, in which form, and how long there is some left."""

from __future__ import annotations

from dashboards.build.dashboard import Dashboard
from dashboards.build.options import BAD, GOOD, INFO, QUIET, WARN, override, steps, target
from dashboards.build.panels import Field, bar_gauge, stat, table, time_series
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
    _numbers(made)
    made.section("What takes the room")
    made.add(
        bar_gauge(
            "By relation and form",
            "Bytes on disk, indexes and TOAST included.",
            [target(_SQL["by_relation"])],
            Field("bytes", color=INFO, low=0),
        ),
        10,
        9,
    )
    made.add(
        time_series(
            "Samples by day and form",
            "Bytes that the samples of a day take. A closed day is packed or columnstored, then the bar shrinks.",
            [target(_SQL["by_day"], form="time_series")],
            Field("bytes", low=0, color="palette-classic"),
            style="bars",
            fill=80,
            stacked=True,
        ),
        14,
        9,
    )
    made.add(
        time_series(
            "Samples stored, by day and form",
            "About how many, by the statistics of the last ANALYZE.",
            [target(_SQL["rows_by_day"], form="time_series")],
            Field("short", low=0, color="palette-classic"),
            style="bars",
            fill=80,
            stacked=True,
        ),
        10,
        8,
    )
    made.add(
        time_series(
            "Size of the database",
            "As the job storage measured it.",
            [target(_SQL["database_by_time"])],
            Field("bytes", color=INFO),
            fill=10,
        ),
        14,
        8,
    )
    _tables(made)
    return made


def _numbers(made: Dashboard) -> None:
    numbers = (
        (
            "Size",
            "All that the database takes on disk without the write-ahead log, and the configured budget.",
            "size",
            Field("bytes", color=QUIET, empty="none"),
        ),
        (
            "Room left",
            "Until disk or budget are full, at the growth of the last days; ten years at most.",
            "days_left",
            Field("d", thresholds=steps((None, BAD), (7, WARN), (30, GOOD)), empty="not known yet"),
        ),
        (
            "Bytes a sample",
            "Of open days, which are rows, and of what is packed or columnstored. Indexes included.",
            "per_sample",
            Field("bytes", color=QUIET, decimals=1, empty="none yet"),
        ),
    )
    for title, description, query, of in numbers:
        made.add(stat(title, description, [target(_SQL[query])], of), 6, 3)
    said = "Which edition of TimescaleDB this is, and which form closed hours and days get."
    edition = stat("Edition", said, [target(_SQL["edition"])], Field(color=QUIET))
    edition["options"]["reduceOptions"]["fields"] = "/.*/"  # these are texts
    made.add(edition, 6, 3)


def _tables(made: Dashboard) -> None:
    made.section("In full")
    made.add(
        table(
            "Relations",
            "From the catalog; rows are estimates. Parts are chunks.",
            [target(_SQL["relations"])],
            Field(
                overrides=[
                    override("Bytes", unit="bytes"),
                    override("Bytes a row", unit="bytes", decimals=1),
                    override("Rows, about", unit="short"),
                ]
            ),
        ),
        24,
        9,
    )
    kept = [override(name, unit="s") for name in ("Samples", "Minutes", "Hours", "Events")]
    made.add(
        table(
            "Retention",
            "How long each class of channels keeps what; empty: for ever.",
            [target(_SQL["retention"])],
            Field(overrides=kept),
        ),
        10,
        7,
    )
    made.add(
        table(
            "Sealed days",
            "Days whose digest is signed, the latest first: plantlog verify checks them.",
            [target(_SQL["seals"])],
            Field(),
        ),
        14,
        7,
    )
