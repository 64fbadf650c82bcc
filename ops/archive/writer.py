"""Writes a sealed day into an archive: samples, channels, events, gaps, the seal, and last the manifest.

Files are written beside the archive's tables, read again from the storage, and compared with the seal. Only what is as
sealed is moved into place, so that a failure at any moment leaves the archive as it was.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncpg

from ingest.errors import NotAsSealed, OperationError
from ops.archive.channel_table import Place, channel_table, plant_unit, write_channels
from ops.archive.location import Location
from ops.archive.manifest import FORMAT, ArchivedFile, DayFolder, Manifest, Table
from ops.archive.sample_file import SampleWriter
from ops.archive.verify import problems_of
from ops.evidence import parquet
from ops.evidence.reader import begin, channels_of, event_rows, gap_rows, stream
from ops.evidence.scope import Scope
from ops.evidence.seal_store import SealedDay
from ops.evidence.standalone import Key, SealBundle

_FILE_SAMPLES = 10_000_000  # units with fewer share a file
_EVENT_ROWS = 50_000
_NAMED = 3  # problems that an error names
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Origin:
    """What a day comes from."""

    plant: str
    scope: Scope  # what the seal covers
    keys: Sequence[Key]


class DayWriter:
    """Writes one day."""

    def __init__(
        self,
        connection: asyncpg.Connection[Any],
        location: Location,
        folder: DayFolder,
        sealed: SealedDay,
        origin: Origin,
    ) -> None:
        self._connection = connection
        self._location = location
        self._folder = folder
        self._sealed = sealed
        self._origin = origin
        self._files: list[tuple[Table, str, int]] = []  # with path and rows
        self._places: dict[int, Place] = {}

    async def write(self) -> Manifest:
        """Write, verify and publish. Raises OperationError; the archive is then as it was."""
        location, incoming = self._location, self._folder.incoming
        await _in_thread(location.clear, incoming)  # of a run that was killed
        try:
            await self._samples()
            await self._rows()
            await _in_thread(self._channels_and_seal)
            manifest = await _in_thread(self._manifest)
            problems = await _in_thread(problems_of, location, self._folder, manifest, None, f"{incoming}/")
            if problems:
                more = f", and {len(problems) - _NAMED:,} more" if len(problems) > _NAMED else ""
                raise NotAsSealed(
                    f"{self._folder.day} is not archived, because it is not as sealed: "
                    f"{'; '.join(problems[:_NAMED])}{more}: see `plantlog verify {self._folder.day}`"
                )
            await _in_thread(self._publish, manifest)
        finally:
            with suppress(OperationError):
                await _in_thread(location.clear, incoming)
        return manifest

    async def _samples(self) -> None:
        """Files of the samples, by unit of the plant."""
        day, sealed = self._sealed.day, self._sealed.hours()
        present = await channels_of(self._connection, day, self._origin.scope)
        counts = {number: sum(sealed[number].n) if number in sealed else 0 for number in {*present, *sealed}}
        names = {number: name for number, (name, _) in self._sealed.names().items()}
        for number, channels in enumerate(files_of(counts, names), 1):
            path = self._folder.file("samples", number)
            with ExitStack() as stack:
                sink = stack.enter_context(self._location.created(f"{self._folder.incoming}/{path}"))
                file = SampleWriter(sink, self._folder.identity("samples"))
                stack.callback(file.abandon)
                rows = 0
                async for series in stream(self._connection, channels, begin(day), begin(day, 24)):
                    first, last = await _in_thread(file.write, series)
                    rows += len(series.time)
                    self._places[series.channel_id] = Place(len(series.time), path, first, last)
                await _in_thread(file.close)
            self._files.append(("samples", path, rows))

    async def _rows(self) -> None:
        """Files of events and gaps."""
        day, scope = self._sealed.day, self._origin.scope
        with self._row_file("events", parquet.EVENTS) as add:
            waiting: list[tuple[Any, ...]] = []
            async with self._connection.transaction():
                async for values in event_rows(self._connection, day, scope):
                    waiting.append(values)
                    if len(waiting) == _EVENT_ROWS:
                        add(waiting)
                        waiting = []
            add(waiting)
        with self._row_file("gaps", parquet.GAPS) as add:
            add(await gap_rows(self._connection, day, scope))

    @contextmanager
    def _row_file(self, table: Table, schema: Any) -> Iterator[Callable[[Sequence[tuple[Any, ...]]], None]]:
        """A file of rows: a function that adds some."""
        path, rows = self._folder.file(table), 0

        def add(found: Sequence[tuple[Any, ...]]) -> None:
            nonlocal rows
            file.write(found)
            rows += len(found)

        with self._location.created(f"{self._folder.incoming}/{path}") as sink, ExitStack() as stack:
            file = parquet.RowFile(sink, schema)
            stack.callback(file.abandon)
            yield add
            file.close(self._folder.identity(table))
        self._files.append((table, path, rows))

    def _channels_and_seal(self) -> None:
        path, sealed = self._folder.file("channels"), self._sealed
        table = channel_table(sealed.document, self._folder, self._places)
        with self._location.created(f"{self._folder.incoming}/{path}") as sink:
            write_channels(sink, table, self._folder.identity("channels"))
        self._files.append(("channels", path, table.num_rows))
        keys = list(self._origin.keys)
        bundle = SealBundle(
            "day", str(sealed.day), True, sealed.seals, sealed.parts, sealed.rows, keys, sealed.document, sealed.differs
        )  # fmt: skip
        with self._location.created(f"{self._folder.incoming}/{self._folder.seal}") as sink:
            sink.write(gzip.compress(bundle.encode(), mtime=0))
        self._files.append(("seal", self._folder.seal, 1))

    def _manifest(self) -> Manifest:
        """What was written, as it is in the storage."""
        files = []
        for table, path, rows in self._files:
            facts = self._location.facts(f"{self._folder.incoming}/{path}")
            files.append(ArchivedFile(path, table, rows, facts.bytes, facts.sha256))
        seal, origin = self._sealed.seals[-1], self._origin
        return Manifest(
            format=FORMAT,
            plant=origin.plant,
            installation=str(self._folder.installation),
            day=str(self._folder.day),
            revision=seal.revision,
            serial=seal.serial,
            root=seal.root,
            samples=sum(place.samples for place in self._places.values()),
            channels=len(self._places),
            files=tuple(files),
        )

    def _publish(self, manifest: Manifest) -> None:
        """Move the files into place, the manifest last, and remove those of an earlier revision."""
        location, folder = self._location, self._folder
        for file in manifest.files:
            location.move(f"{folder.incoming}/{file.path}", file.path)
        location.write(folder.manifest, manifest.encode())
        kept = {file.path for file in manifest.files}
        for path in location.listing(folder.table("samples")):
            if path not in kept:
                location.remove(path)


async def _in_thread(work: Callable[..., _T], *arguments: Any) -> _T:
    """What ``work`` returns. Cancelled, it waits for the thread: nothing else may touch the file before that."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def files_of(counts: Mapping[int, int], names: Mapping[int, str]) -> list[list[int]]:
    """The channels of each file, ascending: a unit of the plant, or several small ones.

    ``counts``: channel id → samples; ``names``: channel id → name on the day.
    """
    units: dict[str, list[int]] = {}
    for channel in sorted(counts):
        units.setdefault(plant_unit(names.get(channel, "")), []).append(channel)
    files: list[list[int]] = []
    room = 0
    for unit in sorted(units):
        samples = sum(counts[channel] for channel in units[unit])
        if samples <= room:
            files[-1] += units[unit]
            room -= samples
        else:
            files.append(units[unit])
            room = _FILE_SAMPLES - samples
    return [sorted(channels) for channels in files]
