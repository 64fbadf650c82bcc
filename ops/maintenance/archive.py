"""The job that archives sealed days."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import date

from ingest.config.model import ArchiveOptions
from ingest.config.snapshot import in_force
from ingest.errors import NotAsSealed, OperationError
from ingest.scheduling import lower_priority
from ingest.timestamps import utc
from ops.archive.day import OwnInstallation, archive_day, location_of, own_installation
from ops.archive.location import Location
from ops.archive.manifest import claim
from ops.evidence.reader import connect
from ops.formatting import count
from ops.maintenance.run import Connection, JobContext, JobResult, JobSkipped
from schema.queries import load

log = logging.getLogger(__name__)

_SECONDS = 1200.0  # of a run, after which it begins no other day
_RETRY_SECONDS = 6 * 3600.0  # until a day that could not be archived is read again


class Archiving:
    """The job, and the days that it could not archive."""

    def __init__(self) -> None:
        self._failed: dict[date, tuple[float, str]] = {}  # day → when (monotonic), and why

    async def work(self, context: JobContext, connection: Connection) -> JobResult | JobSkipped:
        """Archive each day that is not there by its newest seal, oldest first."""
        current = in_force(context.state.root, ())
        options = ArchiveOptions() if current is None else current.plant.archive
        if options.location is None:
            return JobSkipped("[archive] has no location")
        own = await own_installation(connection, context.state)
        queries = load("archive")
        for row in await connection.fetch(queries["mark_late"], own.number):
            log.warning("samples of %s came after it was archived and some were dropped: they stay", row["day"])
        days = [row["day"] for row in await connection.fetch(queries["select_due_days"], own.number)]
        now = time.monotonic()
        due = [day for day in days if day not in self._failed or now - self._failed[day][0] >= _RETRY_SECONDS]
        done = samples = size = 0
        if due:
            location = await asyncio.to_thread(location_of, options)
            known = await connection.fetchval(queries["count_archived"], own.number, location.name)
            await asyncio.to_thread(claim, location, known > 0)
            for day in due:
                if time.monotonic() - now >= _SECONDS:
                    break
                added = await self._archive(context, connection, own, location, day)
                samples, size, done = samples + added[0], size + added[1], done + 1
        failed = [f"{day}: {self._failed[day][1]}" for day in days if day in self._failed]
        if failed:
            raise OperationError(f"{count(len(failed), 'day')} could not be archived: {failed[0]}")
        [archived] = await connection.fetch(queries["select_state"], own.number)
        return JobResult(samples, size, _in_words(**archived), more=done < len(due))

    async def _archive(
        self, context: JobContext, connection: Connection, own: OwnInstallation, location: Location, day: date
    ) -> tuple[int, int]:
        """Samples and bytes of a day that was archived; a day that can't be is kept in mind."""
        reading = await connect(context.owner_dsn, "plantlog archive")
        if context.server_is_local:
            lower_priority(reading.get_server_pid())
        try:
            archived = await archive_day(reading, own, location, day)
        except NotAsSealed as error:
            log.warning("%s", error)
            self._failed[day] = time.monotonic(), str(error)
            return 0, 0
        finally:
            reading.terminate()
        self._failed.pop(day, None)
        seal = archived.seal
        await connection.execute(
            load("archive")["insert_archived_day"],
            *(day, own.number, seal.revision, bytes.fromhex(seal.root), location.name),
            *(archived.manifest.samples, archived.bytes, utc(seal.read_from)),
        )
        return archived.manifest.samples, archived.bytes


def _in_words(days: int, last: date | None, late: int) -> str:
    """What is archived, for `status`."""
    text = f"{count(days, 'day')} to {last}" if days else "no sealed day yet"
    return f"{text}; more samples of {count(late, 'dropped day')} came: they are in the database" if late else text
