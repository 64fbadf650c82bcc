"""Archives of several plants under one location, read as Arrow tables as ``Archive`` reads that of one."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

from core.paths import State
from core.patterns import no_match, unmatched
from history.archive_days.plants import Plants
from history.notebook.archive import GAPS, SAMPLES
from history.notebook.arguments import FIRST, LAST, names_of
from history.questions.ask import LIMITS
from history.sql.sources.plants import PlantArchives
from schema.queries import load


class SeveralArchives:
    """The archived days of several plants. Each method is that of ``Archive``, of channels by their names only."""

    def __init__(self, plants: Plants) -> None:
        self.plants = plants
        self.location = plants.location

    def days_between(self, since: datetime, until: datetime) -> list[date]:
        """Days that a plant has samples of, of an interval."""
        return sorted({day for plant in self.plants.plants for day in self.plants.days_between(plant, since, until)})

    def samples(self, channels: Iterable[int | str], since: datetime, until: datetime) -> Any:
        """An Arrow table of samples."""
        return self._read("select_samples_between", channels, since, until, schema=SAMPLES)

    def series(self, channels: Iterable[int | str], since: datetime, until: datetime, step: int) -> Any:
        """An Arrow table of curves."""
        return self._read("select_series_between", channels, since, until, step)

    def gaps(self, channels: Iterable[int | str], since: datetime, until: datetime) -> Any:
        """An Arrow table of gaps, also of days that are not archived."""
        return self._read("select_gaps_between", channels, since, until, schema=GAPS)

    def _read(
        self,
        query: str,
        channels: Iterable[int | str],
        since: datetime,
        until: datetime,
        *others: int,
        schema: Any = None,
    ) -> Any:
        """Rows of a query, cast to a schema (None: as they are), with lines about what is missing in its metadata."""
        names = names_of("channels", channels)
        bounds = None if since == FIRST else since, None if until == LAST else until
        from history.sql.session import opened  # noqa: PLC0415 (it imports DuckDB)

        limits = replace(LIMITS, stop=Future())
        with limits.deadline():
            archives = PlantArchives(self.plants, *bounds, limits)
            known = (row["name"] for row in archives.channels)
            if unknown := [name for name in unmatched(names, known) if name != "*"]:
                raise no_match(f"archive {self.location.name}: channels", unknown, "; names begin with PLANT/")
            with opened(State(Path()), limits, archives=archives) as session:
                table = session.table(load("duckdb")[query], [names, since, until, *others])
        if schema is not None:
            table = table.cast(schema)
        return table.replace_schema_metadata({"notes": "\n".join(archives.notes())})
