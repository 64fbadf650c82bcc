"""The samples of an archived day, from the files that its manifest names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from core.batch import Int64s
from core.errors import OperationError
from core.samples import Samples, joined
from history.archive.channel_table import PLACE, Place, places_of
from history.archive.location import Location
from history.archive.manifest import METADATA, ArchivedFile, DayFolder, Manifest, find_manifest, footer_crc32
from history.codec import row_groups
from history.codec.row_groups import SAMPLES, Rows
from history.standalone import UnverifiableError, require_schema, rows_of, schema_of

ROWS = {table: schema_of(table) for table in ("events", "gaps")}
TABLES = {**ROWS, "samples": SAMPLES}


@dataclass(frozen=True, slots=True)
class DayFiles:
    """The files of a day. Samples that came after it was archived are in files of their own: its amendments."""

    location: Location
    folder: DayFolder
    manifest: Manifest
    incoming: frozenset[str] = frozenset()  # paths of files that are not published yet

    def path(self, file: ArchivedFile) -> str:
        """Path of a file."""
        return f"{self.folder.incoming}/{file.path}" if file.path in self.incoming else file.path

    @contextmanager
    def opened(self, file: ArchivedFile, footers: dict[str, Any] | None = None) -> Iterator[Any]:
        """A file as pyarrow's ParquetFile. Raises OperationError if it is damaged, or another day's or plant's.

        ``footers``: those of files that were opened before, by their hash: they are not read and checked again.
        """
        path = self.path(file)
        file_name = f"archive {self.location.name}: {path}"
        size = self.location.size(path)
        if size != file.bytes:
            size_found = f"is missing, {file.bytes:,} bytes" if size is None else f"has {size:,} bytes, {file.bytes:,}"
            raise OperationError(f"{file_name} {size_found} by the manifest: {self._remedy(file)}")
        try:
            with ExitStack() as stack:
                source = stack.enter_context(self.location.opened(path))
                footer = None if footers is None else footers.get(file.sha256)
                options = {"pre_buffer": self.location.is_remote, "page_checksum_verification": True}
                parquet = stack.enter_context(pq.ParquetFile(source, metadata=footer, **options))
                if footer is None:
                    self._check(parquet, source, file, file_name)
                if footers is not None:
                    footers[file.sha256] = parquet.metadata
                yield parquet
        except (pa.ArrowException, OSError) as error:
            problem = " ".join(str(error).split())
            raise OperationError(f"{file_name} is damaged: {problem}: {self._remedy(file)}") from error

    def _remedy(self, file: ArchivedFile) -> str:
        """Remedy where a file can't be read: maintenance removes those that it has replaced."""
        manifest = find_manifest(self.location, self.folder)
        if manifest is None or file.path in {*(one.path for one in manifest.files), *self.incoming}:
            return "restore the file"
        return "its day was archived anew while it was read: ask again"

    def _check(self, parquet: Any, source: Any, file: ArchivedFile, file_name: str) -> None:
        """The metadata say that it is this file, and its footer is as written. Raises OperationError."""
        expected = self.folder.identity(file.table)[METADATA]
        metadata = (parquet.metadata.metadata or {}).get(METADATA, b"nothing")
        if metadata != expected:
            raise OperationError(f"{file_name} is another file: found {metadata.decode()}; legal: {expected.decode()}")
        if file.table in TABLES:
            try:
                require_schema(parquet, TABLES[file.table])
            except UnverifiableError as error:
                raise OperationError(f"{file_name}: {error}") from error
        if file.footer_crc32 not in (None, footer_crc32(source)):
            raise OperationError(f"{file_name} is damaged: its footer is not as written: restore the file")

    def channels(self, columns: Sequence[str] | None = None) -> Any:
        """The table of channels (docs/archive.md), or some of its columns."""
        [file] = self.manifest.of_table("channels")
        with self.opened(file) as parquet:
            return parquet.read(columns, use_threads=False)  # few rows: threads take longer to be woken

    def channel_ids(self) -> list[int]:
        """Ids of channels with samples; one that was renamed on the day occurs twice."""
        table = self.channels(("channel_id", "samples"))
        ids: list[int] = table["channel_id"].to_numpy()[table["samples"].to_numpy() > 0].tolist()
        return ids

    def places(self, channels: Collection[int] | None = None) -> dict[int, Place]:
        """Channel id → place of its samples, if it has some. ``channels``: only these."""
        return places_of(self.channels(PLACE), channels)

    def rows(self, table: Literal["events", "gaps"]) -> list[tuple[Any, ...]]:
        """Events or gaps, as the specification's fields."""
        [file] = self.manifest.of_table(table)
        with self.opened(file) as parquet:
            return list(rows_of(parquet, ROWS[table].names))

    def between(self, channels: Collection[int], since: int, until: int) -> Iterator[tuple[int, Samples]]:
        """Channels and their samples with since <= time < until (µs), by time. What statistics say is not read."""
        return self._by_channel(channels, (since, until))

    def samples(self, channels: Collection[int] | None = None) -> Iterator[tuple[int, Samples]]:
        """Channels (None: all) and their samples by time, in the order of the files.

        They are what any reader of Parquet finds in the pages, whatever statistics say: for evidence.
        """
        return self._by_channel(channels, None)

    def parts(
        self,
        file: ArchivedFile,
        places: Mapping[int, Place] | None,
        names: Collection[str] = row_groups.VALUES,
        bounds: tuple[int, int] | None = None,
        footers: dict[str, Any] | None = None,
    ) -> Iterator[Rows]:
        """The samples of channels in a file, in its order. Row groups of other channels are not read.

        ``places``: of the channels; None: of all. ``names``: which of value and status are needed; ``bounds``: of the
        times (µs); None: there are none, and statistics are not used. ``footers``: see :meth:`opened`.
        """
        groups: Iterable[int] | None = None
        if places is not None and not file.amendment:
            places_in_file = (place for place in places.values() if place.file == file.path)
            groups = sorted(
                {group for place in places_in_file for group in range(place.first_group, place.last_group + 1)}
            )
            if not groups:
                return
        checked = bounds is not None and file.footer_crc32 is not None
        with self.opened(file, footers) as parquet:
            if groups is None:
                groups = range(parquet.num_row_groups)
                if places is not None and checked:
                    first, last, metadata = min(places), max(places), parquet.metadata
                    groups = [group for group in groups if row_groups.may_have(metadata.row_group(group), first, last)]
            for rows in row_groups.read(parquet, groups, names, bounds, checked=checked):
                chosen = rows if places is None else rows.of_channels(places)
                if chosen is not None:
                    yield chosen

    def _by_channel(
        self, channels: Collection[int] | None, bounds: tuple[int, int] | None
    ) -> Iterator[tuple[int, Samples]]:
        places = None if channels is None else self.places(channels)
        if places == {}:
            return
        added: dict[int, list[Samples]] = {}
        for number, samples in self._read(places, bounds, amendment=True):
            added.setdefault(number, []).append(samples)
        for number, samples in self._read(places, bounds, amendment=False):
            yield number, merged([samples, *added.pop(number, ())])
        for number in sorted(added):
            yield number, merged(added[number])

    def _read(
        self, places: Mapping[int, Place] | None, bounds: tuple[int, int] | None, *, amendment: bool
    ) -> Iterator[tuple[int, Samples]]:
        """Channels and their samples in the amendments or in the other files; one row group or channel is in memory."""
        for file in self.manifest.of_table("samples"):
            if file.amendment == amendment:
                for samples in row_groups.joined_parts(self.parts(file, places, bounds=bounds)):
                    yield from samples.by_channel()


def merged(parts: Iterable[Samples]) -> Samples:
    """All samples of a channel by time; samples with equal times stay in the order of the parts."""
    present = [part for part in parts if len(part)]
    return joined(present).sorted() if len(present) > 1 else joined(present)


def time_mask(samples: Samples, times: Int64s) -> NDArray[np.bool_]:
    """Mask of samples whose time is among ``times``, ascending, (n,)."""
    if not len(times):
        return np.zeros(len(samples), np.bool_)
    nearest = np.minimum(np.searchsorted(times, samples.time), len(times) - 1)
    mask: NDArray[np.bool_] = times[nearest] == samples.time
    return mask
