"""Writes a sealed day into an archive: samples, channels, events, gaps, the seal, and last the manifest.

Files are written beside the archive's tables, read again from the storage, and compared with the seal. Only what is as
sealed is moved into place, under names that no earlier file has, and is there once the manifest names it: a failure at
any moment leaves the archive as it was.
"""

from __future__ import annotations

import gzip
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from core.errors import NotAsSealed
from core.samples import NO_SAMPLES, Samples, joined, slices
from history.archive.channel_table import Place, channel_table, plant_unit, write_channels
from history.archive.day_files import ROWS, DayFiles
from history.archive.location import Location, clean_up, in_thread, in_threads
from history.archive.manifest import (
    FORMAT,
    ArchivedFile,
    DayFolder,
    Manifest,
    Proof,
    Table,
    find_manifest,
    footer_crc32,
    remove_leftovers,
)
from history.archive.parquet_writers import RowFile
from history.archive.sample_file import SampleWriter
from history.archive_days.verify import verify_files
from history.reading.day_samples import DaySamples, only_stored
from history.reading.reader import gap_rows
from history.reading.scope import Scope
from history.seals.seal_store import SealedDay
from history.standalone import Key, SealBundle, gaps_digest

_FILE_SAMPLES = 10_000_000  # units with fewer share a file
_EVENT_ROWS = 50_000
_CHANNELS = 64  # of which a day is in memory
_MAX_LISTED = 3  # problems that an error names


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of an archived day."""

    plant: str
    scope: Scope  # what the seal covers
    keys: Sequence[Key]


class DayWriter:
    """Writes one day: all of it, or only what is new."""

    def __init__(
        self,
        location: Location,
        folder: DayFolder,
        sealed: SealedDay,
        origin: Origin,
        samples: DaySamples,
        before: DayFiles | None = None,
    ) -> None:
        """``before``: what is archived of the day, if retention may have dropped some of it."""
        self._location = location
        self._folder = folder
        self._sealed = sealed
        self._origin = origin
        self._samples = samples
        self._before = before
        self._generation = 1
        self._proof: Proof | None = None
        self._files: list[ArchivedFile] = []
        self._written: list[tuple[Table, str, int]] = []  # with path and rows
        self._amendment = ""  # its path
        self._places: dict[int, Place] = {}

    async def write(self) -> Manifest:
        """Write, verify and publish the day. Raises OperationError; the archive is then as it was."""
        return await self._published(self._write_samples, None)

    async def amend(self, changed: Sequence[int]) -> Manifest | None:
        """A day with a file of what was added to the channels ``changed``; the other samples stay where they are.

        None: samples that are in the archive are not sealed any more, so that the day must be written again.
        """
        assert self._before is not None
        additions: list[Samples] = []
        for part in slices(changed, _CHANNELS):
            archived = await in_thread(self._archived, part)
            for number, samples in (await self._samples.read(part, range(24))).items():
                before = archived.pop(number, NO_SAMPLES)
                new = only_stored(before, samples)
                additions += [new] if len(new) else []
                if len(samples) - len(before) != len(new):
                    return None
            if archived:
                return None
        return await self._published(lambda: self._write_amendment(additions), frozenset(changed))

    def _archived(self, channels: Sequence[int]) -> dict[int, Samples]:
        assert self._before is not None
        return dict(self._before.samples(channels))

    async def _published(
        self, write_samples: Callable[[], Awaitable[None]], changed: frozenset[int] | None
    ) -> Manifest:
        location, folder = self._location, self._folder
        manifest = await in_thread(find_manifest, location, folder)
        self._generation = manifest.generation + 1 if manifest is not None else 1
        await in_thread(remove_leftovers, location, folder)  # of a run that was killed
        try:
            await in_thread(location.write, f"{folder.incoming}/begun", b"")
            await write_samples()
            await self._rows()
            await in_thread(self._channels_and_seal)
            files = await in_thread(self._day_files)
            problems, _ = await in_thread(verify_files, files, None, changed)
            if problems:
                more = f", and {len(problems) - _MAX_LISTED:,} more" if len(problems) > _MAX_LISTED else ""
                raise NotAsSealed(
                    f"{folder.day} is not archived, because it is not as sealed: "
                    f"{'; '.join(problems[:_MAX_LISTED])}{more}: see `plantlog evidence verify {folder.day}`"
                )
            await in_thread(self._publish, files.manifest)
        finally:
            await clean_up(remove_leftovers, location, folder)
        return files.manifest

    async def _write_samples(self) -> None:
        """Files of the samples, by unit of the plant."""
        sealed = self._sealed.hours()
        present = await self._samples.channels(self._origin.scope)
        counts = {number: sum(sealed[number].n) if number in sealed else 0 for number in {*present, *sealed}}
        names = {number: name for number, (name, _) in self._sealed.names().items()}
        for number, channels in enumerate(files_of(counts, names), 1):
            path = self._folder.file("samples", self._generation, number)
            async with in_threads(self._sample_file(path)) as file:
                rows = 0
                async for channel, samples in self._samples.stream(channels):
                    first, last = await in_thread(file.write, samples)
                    rows += len(samples)
                    self._places[channel] = Place(len(samples), path, first, last)
            self._written.append(("samples", path, rows))

    async def _write_amendment(self, additions: Sequence[Samples]) -> None:
        """A file of what was added; the others are taken over."""
        assert self._before is not None
        self._files += self._before.manifest.of_table("samples")
        self._places = await in_thread(self._before.places)
        if not additions:
            return
        path = self._folder.file("samples", self._generation)
        async with in_threads(self._sample_file(path)) as file:
            for channel, samples in joined(additions).sorted().by_channel():
                await in_thread(file.write, samples)
                place = self._places.get(channel, Place(0))
                self._places[channel] = replace(place, samples=place.samples + len(samples))
        self._written.append(("samples", path, sum(map(len, additions))))
        self._amendment = path

    @contextmanager
    def _sample_file(self, path: str) -> Iterator[SampleWriter]:
        with self._location.created(f"{self._folder.incoming}/{path}") as sink:
            file = SampleWriter(sink, self._folder.identity("samples"))
            try:
                yield file
                file.close()
            except BaseException:
                file.abandon()
                raise

    async def _rows(self) -> None:
        """Files of events and gaps. As long as the seal is the same, they are what they were."""
        before, scope = self._before, self._origin.scope
        same = before is not None and before.manifest.revision == self._sealed.seals[-1].revision
        async with in_threads(self._row_file("events", ROWS["events"])) as add:
            waiting: list[tuple[Any, ...]] = []
            if before is not None and same:
                waiting = await in_thread(before.rows, "events")
            else:
                async for values in self._samples.event_rows(scope):
                    waiting.append(values)
                    if len(waiting) == _EVENT_ROWS:
                        await in_thread(add, waiting)
                        waiting = []
            await in_thread(add, waiting)
        async with in_threads(self._row_file("gaps", ROWS["gaps"])) as add:
            gaps = await gap_rows(self._samples.connection, self._sealed.day, scope)
            if before is not None and gaps_digest(gaps) != self._sealed.parts[-1].gaps:
                gaps = await in_thread(before.rows, "gaps")  # what became of gaps after the day was sealed is no news
            await in_thread(add, gaps)

    @contextmanager
    def _row_file(self, table: Table, schema: Any) -> Iterator[Callable[[Sequence[tuple[Any, ...]]], None]]:
        """A file of rows: a function that adds some."""
        path, rows = self._folder.file(table, self._generation), 0

        def add(new_rows: Sequence[tuple[Any, ...]]) -> None:
            nonlocal rows
            file.write(new_rows)
            rows += len(new_rows)

        with self._location.created(f"{self._folder.incoming}/{path}") as sink:
            file = RowFile(sink, schema)
            try:
                yield add
                file.close(self._folder.identity(table))
            except BaseException:
                file.abandon()
                raise
        self._written.append((table, path, rows))

    def _channels_and_seal(self) -> None:
        path, sealed = self._folder.file("channels", self._generation), self._sealed
        table = channel_table(sealed.document, self._folder, self._places)
        with self._location.created(f"{self._folder.incoming}/{path}") as sink:
            write_channels(sink, table, self._folder.identity("channels"))
        self._written.append(("channels", path, table.num_rows))
        keys = list(self._origin.keys)
        bundle = SealBundle(
            "day", str(sealed.day), True, sealed.seals, sealed.parts, sealed.rows, keys, sealed.document, sealed.differs
        )  # fmt: skip
        self._proof = Proof.of_bundle(bundle)
        path = self._folder.seal(self._generation)
        with self._location.created(f"{self._folder.incoming}/{path}") as sink:
            sink.write(gzip.compress(bundle.encode(), mtime=0))
        self._written.append(("seal", path, 1))

    def _day_files(self) -> DayFiles:
        """Files that were written, as they are in the storage, and files that were taken over."""
        files = list(self._files)
        for table, path, rows in self._written:
            incoming, crc32 = f"{self._folder.incoming}/{path}", None
            digest = self._location.digest(incoming)
            if table != "seal":
                with self._location.opened(incoming) as source:
                    crc32 = footer_crc32(source)
            files.append(ArchivedFile(path, table, rows, digest.bytes, digest.sha256, path == self._amendment, crc32))
        seal, origin = self._sealed.seals[-1], self._origin
        manifest = Manifest(
            format=FORMAT,
            plant=origin.plant,
            installation=str(self._folder.installation),
            day=str(self._folder.day),
            generation=self._generation,
            revision=seal.revision,
            serial=seal.serial,
            root=seal.root,
            samples=sum(place.samples for place in self._places.values()),
            channels=len(self._places),
            files=tuple(files),
            proof=self._proof,
        )
        written = frozenset(path for _, path, _ in self._written)
        return DayFiles(self._location, self._folder, manifest, written)

    def _publish(self, manifest: Manifest) -> None:
        """Move the files into place, and then the manifest."""
        location, folder = self._location, self._folder
        for _, path, _ in self._written:
            location.move(f"{folder.incoming}/{path}", path)
        location.write(folder.manifest, manifest.encode())


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
        if files and samples <= room:
            files[-1] += units[unit]
            room -= samples
        else:
            files.append(units[unit])
            room = _FILE_SAMPLES - samples
    return [sorted(channels) for channels in files]
