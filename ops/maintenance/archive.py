"""The job that archives sealed days."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import date, timedelta

from core.config.model import ArchiveOptions
from core.config.snapshot import in_force
from core.errors import NotAsSealed, OperationError
from core.formatting import count
from core.process.scheduling import lower_priority
from history.archive.configured_location import location_of
from history.archive.location import Location, in_thread, responding
from history.archive.manifest import PROBE, claim, remove_leftovers, unfinished_days
from history.archive_days.day import OwnInstallation, archive_day, own_installation
from history.reading.reader import connect
from ops.maintenance.job import Connection, JobContext, JobResult, JobSkipped
from schema.queries import load

log = logging.getLogger(__name__)

_SECONDS = 1200.0  # of a run, after which it begins no other day
_ANSWER_SECONDS = 120.0  # for the location to answer
_MAX_AMENDMENTS = 8  # files, that are then merged
_SETTLED_AFTER = timedelta(days=1)  # without late data, after which amendments are merged
_FAILURES = 3  # days in a row that can't be archived, after which the run ends: it may be the storage
_RETRY_SECONDS = 6 * 3600.0  # until a day that could not be archived is read again


class Archiving:
    """The job, and the days that it could not archive."""

    def __init__(self) -> None:
        # (day, revision) → when it is tried again (monotonic), and why
        self._failed: dict[tuple[date, int], tuple[float, str]] = {}

    async def work(self, context: JobContext, connection: Connection) -> JobResult | JobSkipped:
        """Archive each day that is not there by its newest seal, oldest first."""
        current = in_force(context.state.root, ())
        options = ArchiveOptions() if current is None else current.plant.archive
        if options.location is None:
            return JobSkipped("[archive] has no location")
        installation = await own_installation(connection, context.state)
        queries = load("archive")
        await connection.execute(queries["mark_late"], installation.number)
        due_days = await connection.fetch(
            queries["select_due_days"], installation.number, _MAX_AMENDMENTS, _SETTLED_AFTER
        )
        days = [(row["day"], row["revision"]) for row in due_days]
        now = time.monotonic()
        due = [day for day in days if day not in self._failed or now >= self._failed[day][0]]
        done = samples = size = failures = 0
        has_days = await connection.fetchval(queries["count_archived"], installation.number, options.location) > 0
        if due or has_days:  # what is archived is looked for each time: its disk may not be mounted
            location = await _opened(installation, options, has_days)
            async with responding(location, PROBE, _ANSWER_SECONDS):
                for day in due:
                    if time.monotonic() - now >= _SECONDS:
                        break
                    added = await self._archive(context, installation, location, day)
                    failures = failures + 1 if added is None else 0
                    if added is not None:
                        samples, size = samples + added[0], size + added[1]
                    done += 1
                    if failures == _FAILURES:
                        break
        failed = [f"{day[0]}: {self._failed[day][1]}" for day in days if day in self._failed]
        if failed:
            raise OperationError(f"{count(len(failed), 'day')} could not be archived: {failed[0]}")
        [archived] = await connection.fetch(queries["select_state"], installation.number)
        return JobResult(samples, size, _in_words(**archived), more=done < len(due))

    async def _archive(
        self, context: JobContext, installation: OwnInstallation, location: Location, day: tuple[date, int]
    ) -> tuple[int, int] | None:
        """Samples and bytes of a day that was archived; None: it can't be."""
        reading = await connect(context.owner_dsn, "plantlog archive")
        if context.server_is_local:
            lower_priority(reading.get_server_pid())
        try:
            archived = await archive_day(reading, installation, location, day[0], context.state)
        except OperationError as error:
            log.warning("%s", error)
            retry_seconds = _RETRY_SECONDS if isinstance(error, NotAsSealed) else 0.0
            self._failed[day] = time.monotonic() + retry_seconds, str(error)
            return None
        finally:
            reading.terminate()
        self._failed.pop(day, None)
        return archived.samples, archived.bytes


async def _opened(installation: OwnInstallation, options: ArchiveOptions, has_days: bool) -> Location:
    """The location, without leftovers of a killed writer. Raises OperationError, also if it does not answer.

    ``has_days``: whether days were archived there.
    """

    def swept() -> Location:
        location = location_of(options)
        claim(location, has_days)
        for folder in unfinished_days(location, installation.id):
            remove_leftovers(location, folder)
        return location

    try:
        return await asyncio.wait_for(in_thread(swept), _ANSWER_SECONDS)
    except TimeoutError as error:
        raise OperationError(f"archive {options.location} does not answer for {_ANSWER_SECONDS:.0f} s") from error


def _in_words(days: int, last: date | None, late: int) -> str:
    """Describe what is archived, for `status`."""
    text = f"{count(days, 'day')} to {last}" if days else "no sealed day yet"
    return f"{text}; late samples of {count(late, 'day')} are not in it: they stay in the database" if late else text
