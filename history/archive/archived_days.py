"""The archived days that the database knows of."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import asyncpg
import pyarrow.compute as pc

from core.errors import OperationError
from history.archive.channel_table import PLACE
from history.archive.configured_location import location_in_force
from history.archive.day_files import DayFiles
from history.archive.location import Location
from history.archive.manifest import DayFolder, read_manifest

_MAX_CACHED = 200_000  # channels of days, about


class ArchivedDays:
    """Files of archived days."""

    def __init__(self, state: Path) -> None:
        """``state``: the state folder. Keys of S3 are those that the configuration in force names."""
        self._state = state
        self._locations: dict[str, Location] = {}
        self._places: dict[tuple[DayFolder, int, int], Any] = {}

    def files(self, row: asyncpg.Record, day: date) -> DayFiles:
        """The files of a day. ``row``: one of ``select_archived`` (schema/queries/sql.sql).

        Raises OperationError if they are not those that the database knows of.
        """
        folder, location = DayFolder(row["installation"], day), self._location(row["location"])
        manifest = read_manifest(location, folder)
        if manifest.revision < row["revision"] or (
            manifest.revision == row["revision"] and manifest.root != row["root"]
        ):
            raise OperationError(
                f"archive {location.name}: {folder.manifest}: found revision {manifest.revision} with root "
                f"{manifest.root}; the day was archived as revision {row['revision']} with root {row['root']}: restore "
                "the archive"
            )
        return DayFiles(location, folder, manifest)

    def places(self, files: DayFiles) -> Any:
        """The table of channels that have samples, with the columns ``PLACE``. Those of several days are kept: many
        parts of a question need them."""
        key = files.folder, files.manifest.generation, files.manifest.revision
        if key not in self._places:
            if sum(map(len, self._places.values())) > _MAX_CACHED:
                self._places.clear()
            table = files.channels(PLACE)
            self._places[key] = table.filter(pc.greater(table["samples"], 0))  # an expression takes ten times as long
        return self._places[key]

    def _location(self, name: str) -> Location:
        if name not in self._locations:
            self._locations[name] = location_in_force(self._state, name)
        return self._locations[name]
