"""Archives one sealed day of this installation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any
from uuid import UUID

import asyncpg

from ingest.config.model import ArchiveOptions
from ingest.errors import NotAsSealed, OperationError
from ingest.installation import installation_of
from ops.archive.location import Location, S3Options
from ops.archive.manifest import DayFolder, Manifest
from ops.archive.writer import DayWriter, Origin
from ops.evidence.keys import stored_keys
from ops.evidence.scope import load_scope
from ops.evidence.seal_store import sealed_day, seals_of_day
from ops.evidence.standalone import Seal
from ops.paths import State
from schema.queries import load


@dataclass(frozen=True, slots=True)
class Archived:
    """A day that was archived."""

    manifest: Manifest
    seal: Seal
    bytes: int  # of all files


@dataclass(frozen=True, slots=True)
class OwnInstallation:
    """This installation as the database knows it."""

    id: UUID
    number: int
    plant: str


async def own_installation(connection: asyncpg.Connection[Any], state: State) -> OwnInstallation:
    """Of a state folder. Raises OperationError if it is not registered."""
    own = installation_of(state.root)
    for row in await connection.fetch(load("evidence")["select_numbers"]):
        if row["id"] == own:
            return OwnInstallation(row["id"], row["number"], row["plant"])
    raise OperationError(f"{state.root} is not registered in this database: run `plantlog up`")


def location_of(options: ArchiveOptions) -> Location:
    """The location that ``[archive]`` names. Raises OperationError if it or the key can't be used."""
    assert options.location is not None
    if options.key_file is None or options.s3_endpoint is None:
        return Location.at(options.location)
    try:
        words = options.key_file.read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise OperationError(f"[archive] key_file: {options.key_file}: {error}") from error
    if len(words) != 2:
        raise OperationError(
            f"[archive] key_file: {options.key_file}: found {len(words)} words; legal: one line with the access key "
            "ID, a space, and the secret access key"
        )
    s3 = S3Options(
        access_key=words[0],
        secret_key=words[1],
        endpoint=options.s3_endpoint,
        region=options.s3_region,
        ca_file=str(options.ca_file or ""),
        host_style=options.s3_uri_style == "host",
    )
    return Location.at(options.location, s3)


async def archive_day(
    connection: asyncpg.Connection[Any], own: OwnInstallation, location: Location, day: date
) -> Archived:
    """Write a day into the archive, or write it again by its newest seal. Raises OperationError."""
    seals = await seals_of_day(connection, own.number, day)
    if not seals:
        raise OperationError(f"{day} is not sealed: run `plantlog seal {day}`")
    sealed = await sealed_day(connection, day, seals)
    if sealed.problems or not sealed.document:
        problems = sealed.problems or ["the document with the names of its channels is missing"]
        raise NotAsSealed(f"{day} is not archived: {'; '.join(problems)}: see `plantlog verify {day}`")
    seal = seals[-1]
    scope = await load_scope(connection, seal.installation)
    origin = Origin(own.plant, scope, await stored_keys(connection, seal.chain))
    manifest = await DayWriter(connection, location, DayFolder(own.id, day), sealed, origin).write()
    return Archived(manifest, seal, sum(file.bytes for file in manifest.files))
