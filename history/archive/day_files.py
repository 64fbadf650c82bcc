"""The samples of an archived day, from the files that its manifest names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from core.batch import Int64s
from core.errors import OperationError
from core.samples import NO_SAMPLES, Samples, joined
from history.archive import row_group
from history.archive.channel_table import PLACE, Place, places_of
from history.archive.location import Location
from history.archive.manifest import METADATA, ArchivedFile, DayFolder, Manifest, footer_crc32
from history.codec.row_groups import SAMPLES, value_bits
from history.reading import parquet as rows_in
from history.standalone import UnverifiableError, require_schema, rows_of

ROWS = {"events": rows_in.EVENTS, "gaps": rows_in.GAPS}
TABLES = {**ROWS, "samples": SAMPLES}


@dataclass(frozen=True, slots=True)
class DayFiles:
    """The files of a day. Samples that came after it was archived are in files of their own: its amendments."""

    location: Location
    folder: DayFolder
    manifest: Manifest
    incoming: frozenset[str] = frozenset()  # paths of files that are not published yet

    def place(self, file: ArchivedFile) -> str:
        """Place of a file."""
        return f"{self.folder.incoming}/{file.path}" if file.path in self.incoming else file.path

    @contextmanager
    def opened(self, file: ArchivedFile, footers: dict[str, Any] | None = None) -> Iterator[Any]:
        """A file as pyarrow's ParquetFile. Raises OperationError if it is damaged, or another day's or plant's.

        ``footers``: those of files that were opened before, by their hash: they are not read and checked again.
        """
        path = self.place(file)
        where = f"archive {self.location.name}: {path}"
        size = self.location.size(path)
        if size != file.bytes:
            size_found = f"is missing, {file.bytes:,} bytes" if size is None else f"has {size:,} bytes, {file.bytes:,}"
            raise OperationError(f"{where} {size_found} by the manifest: restore the file")
        try:
            with ExitStack() as stack:
                source = stack.enter_context(self.location.opened(path))
                footer = None if footers is None else footers.get(file.sha256)
                options = {"pre_buffer": self.location.is_remote, "page_checksum_verification": True}
                parquet = stack.enter_context(pq.ParquetFile(source, metadata=footer, **options))
                if footer is None:
                    self._check(parquet, source, file, where)
                if footers is not None:
                    footers[file.sha256] = parquet.metadata
                yield parquet
        except (pa.ArrowException, OSError) as error:
            raise OperationError(f"{where} is damaged: {' '.join(str(error).split())}: restore the file") from error

    def _check(self, parquet: Any, source: Any, file: ArchivedFile, where: str) -> None:
        """The metadata say that it is this file, and its footer is as written. Raises OperationError."""
        expected = self.folder.identity(file.table)[METADATA]
        metadata = (parquet.metadata.metadata or {}).get(METADATA, b"nothing")
        if metadata != expected:
            raise OperationError(f"{where} is another file: found {metadata.decode()}; legal: {expected.decode()}")
        if file.table in TABLES:
            try:
                require_schema(parquet, TABLES[file.table])
            except UnverifiableError as error:
                raise OperationError(f"{where}: {error}") from error
        if file.footer_crc32 not in (None, footer_crc32(source)):
            raise OperationError(f"{where} is damaged: its footer is not as written: restore the file")

    def channels(self, columns: Sequence[str] | None = None) -> Any:
        """The table of channels (docs/archive.md), or some of its columns."""
        [file] = self.manifest.of_table("channels")
        with self.opened(file) as parquet:
            return parquet.read(columns)

    def channel_ids(self) -> list[int]:
        """Ids of channels with samples; one that was renamed on the day occurs twice."""
        table = self.channels(("channel_id", "samples"))
        ids: list[int] = table["channel_id"].to_numpy()[table["samples"].to_numpy() > 0].tolist()
        return ids

    def places(self, channels: Collection[int] | None = None) -> dict[int, Place]:
        """Channel id → where its samples are, of those that have some. ``channels``: of others not."""
        return places_of(self.channels(PLACE), channels)

    def rows(self, table: Literal["events", "gaps"]) -> list[tuple[Any, ...]]:
        """Events or gaps, as the specification's fields."""
        [file] = self.manifest.of_table(table)
        with self.opened(file) as parquet:
            return list(rows_of(parquet, ROWS[table].names))

    def between(self, channels: Collection[int], since: int, until: int) -> Iterator[tuple[int, Samples]]:
        """Channels and their samples with since <= time < until (µs). Row groups without any are not read."""
        for channel, samples in self.samples(channels, (since, until)):
            first, last = np.searchsorted(samples.time, (since, until)).tolist()
            if first < last:
                yield channel, samples.part(slice(first, last))

    def samples(
        self, channels: Collection[int] | None = None, bounds: tuple[int, int] | None = None
    ) -> Iterator[tuple[int, Samples]]:
        """Channels (None: all) and their samples by time, in the order of the files. ``bounds``: row groups without
        such times need not be read.
        """
        places = self.places(channels)
        with ExitStack() as stack:
            added = [
                _Added(stack.enter_context(self.opened(f))) for f in self.manifest.of_table("samples") if f.amendment
            ]
            yielded: set[int] = set()
            for file in [one for one in self.manifest.of_table("samples") if not one.amendment]:
                here = {number: place for number, place in places.items() if place.file == file.path}
                if channels is not None and not here:
                    continue
                groups = sorted({g for one in here.values() for g in range(one.first_group, one.last_group + 1)})
                with self.opened(file) as parquet:
                    if bounds is not None and file.footer_crc32 is not None:
                        metadata = parquet.metadata
                        groups = [one for one in groups if not row_group.is_outside(metadata.row_group(one), bounds)]
                    for number, samples in by_channel(parquet, None if channels is None else groups):
                        if channels is None or number in here:
                            yielded.add(number)
                            yield number, merged([samples, *(one.of_channel(number) for one in added)])
            others = {number for one in added for number in one.channels()} - yielded
            for number in sorted(others if channels is None else others & set(channels)):
                yield number, merged([one.of_channel(number) for one in added])


class _Added:
    """An amendment: few samples of any channels, which are looked up by channel."""

    def __init__(self, parquet: Any) -> None:
        self._parquet = parquet
        metadata = parquet.metadata
        statistics = [metadata.row_group(g).column(0).statistics for g in range(metadata.num_row_groups)]
        self._bounds = [(one.min, one.max) for one in statistics]
        self._last: tuple[int, dict[int, Samples]] = (-1, {})

    def channels(self) -> set[int]:
        """Channels with samples in it."""
        return {number for group in range(len(self._bounds)) for number in self._group(group)}

    def of_channel(self, channel: int) -> Samples:
        """A channel's samples."""
        groups = [group for group, (first, last) in enumerate(self._bounds) if first <= channel <= last]
        return merged([self._group(group).get(channel, NO_SAMPLES) for group in groups])

    def _group(self, group: int) -> dict[int, Samples]:
        if self._last[0] != group:
            self._last = group, dict(samples_of(self._parquet.read_row_group(group)).by_channel())
        return self._last[1]


def by_channel(parquet: Any, groups: Iterable[int] | None = None) -> Iterator[tuple[int, Samples]]:
    """Channels and their samples in a file, or some row groups of it; one group, or one channel, is in memory."""
    waiting = NO_SAMPLES
    for group in range(parquet.num_row_groups) if groups is None else groups:
        *complete, (_, waiting) = joined((waiting, samples_of(parquet.read_row_group(group)))).by_channel()
        yield from complete
    yield from waiting.by_channel()


def samples_of(table: Any) -> Samples:
    """The samples of a table with the file's columns."""
    channel, status = table.column("channel_id").to_numpy(), table.column("status").to_numpy()
    time = table.column("time").cast(pa.int64()).to_numpy()
    return Samples(channel, time, value_bits(table).view(np.float64), status)


def merged(parts: Iterable[Samples]) -> Samples:
    """All samples of a channel by time; those of one time stay in the order of the parts."""
    present = [one for one in parts if len(one)]
    return joined(present).sorted() if len(present) > 1 else joined(present)


def among(samples: Samples, times: Int64s) -> NDArray[np.bool_]:
    """Mask of samples whose time is among ``times``, ascending, (n,)."""
    if not len(times):
        return np.zeros(len(samples), np.bool_)
    places = np.minimum(np.searchsorted(times, samples.time), len(times) - 1)
    mask: NDArray[np.bool_] = times[places] == samples.time
    return mask
