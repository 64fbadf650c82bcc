"""The archived days that the database knows of."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import asyncpg

from ingest.errors import OperationError
from ops.archive.configured import location_in_force
from ops.archive.day_files import DayFiles
from ops.archive.location import Location
from ops.archive.manifest import DayFolder, read_manifest


class ArchivedDays:
    """Finds their files."""

    def __init__(self, state: Path) -> None:
        """``state``: the state folder. Keys of S3 are those that the configuration in force names."""
        self._state = state
        self._locations: dict[str, Location] = {}

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

    def _location(self, name: str) -> Location:
        if name not in self._locations:
            self._locations[name] = location_in_force(self._state, name)
        return self._locations[name]
