"""Compares the files of an archived day with the seal that lies beside them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.errors import OperationError
from ops.archive.channel_table import same_meaning
from ops.archive.location import Location
from ops.archive.manifest import METADATA, ArchivedFile, DayFolder, Manifest
from ops.archive.sample_file import value_bits
from ops.evidence.reader import Series
from ops.evidence.standalone import (
    Difference,
    SealBundle,
    UnverifiableError,
    compare,
    effective,
    gap_rows,
    names_of,
    row_hours,
)


def problems_of(
    location: Location,
    folder: DayFolder,
    manifest: Manifest,
    anchors: Sequence[str] | None,
    prefix: str = "",
) -> list[str]:
    """What is not as sealed or not as the manifest says; empty: nothing. Reads every file.

    ``anchors``: trusted public keys; None: those beside the seal. ``prefix``: of the files' paths. Raises
    OperationError if the storage fails.
    """
    problems = []
    for file in manifest.files:
        if (size := location.size(prefix + file.path)) is None:
            problems.append(f"{file.path} is missing")
        elif size != file.bytes:
            problems.append(f"{file.path} has {size:,} bytes, {file.bytes:,} by the manifest")
        elif location.facts(prefix + file.path).sha256 != file.sha256:
            problems.append(f"{file.path} is not the file of the manifest: its SHA-256 differs")
    if problems:
        return problems
    try:
        bundle = read_bundle(location, prefix + folder.seal)
        problems += bundle.problems(anchors)
        if (bundle.day, bundle.seals[-1].root) != (manifest.day, manifest.root):
            problems.append(f"{folder.seal} is not the seal of the manifest")
        check = _Check(location, folder, manifest, bundle, prefix)
        return [*problems, *check.channels(), *(one.describe() for one in check.differences())]
    except UnverifiableError as error:
        return [*problems, str(error)]


def read_bundle(location: Location, path: str) -> SealBundle:
    """The seal of a day with all its digests. Raises UnverifiableError."""
    content = location.read(path)
    try:
        return SealBundle.decode(gzip.decompress(content))
    except (OSError, EOFError, zlib.error) as error:
        raise UnverifiableError(f"{path} is damaged: {error}") from error


@contextmanager
def open_parquet(location: Location, path: str, folder: DayFolder, file: ArchivedFile) -> Iterator[Any]:
    """A file of a day as pyarrow's ParquetFile. Raises OperationError if it is damaged, or another day's or plant's."""
    place = f"archive {location.name}: {path}"
    size = location.size(path)
    if size != file.bytes:
        found = "is missing" if size is None else f"has {size:,} bytes"
        raise OperationError(f"{place} {found}, {file.bytes:,} by the manifest: restore the file")
    try:
        with location.opened(path) as source, pq.ParquetFile(source, page_checksum_verification=True) as parquet:
            expected = folder.identity(file.table)[METADATA]
            found_identity = (parquet.metadata.metadata or {}).get(METADATA, b"nothing")
            if found_identity != expected:
                raise OperationError(
                    f"{place} is another file: found {found_identity.decode()}; legal: {expected.decode()}"
                )
            yield parquet
    except (pa.ArrowException, OSError) as error:
        raise OperationError(f"{place} is damaged: {' '.join(str(error).split())}: restore the file") from error


class _Check:
    """The rows of one day against its seal."""

    def __init__(
        self, location: Location, folder: DayFolder, manifest: Manifest, bundle: SealBundle, prefix: str
    ) -> None:
        self._location = location
        self._folder = folder
        self._manifest = manifest
        self._bundle = bundle
        self._prefix = prefix

    def _open(self, file: ArchivedFile) -> Any:
        return open_parquet(self._location, self._prefix + file.path, self._folder, file)

    def channels(self) -> Iterator[str]:
        """What the table of channels says otherwise than the seal."""
        for file in self._manifest.of("channels"):
            with self._open(file) as parquet:
                if not same_meaning(parquet.read(), self._bundle.document, self._folder):
                    yield f"{file.path}: the channels are not described as sealed"

    def differences(self) -> Iterator[Difference]:
        """Hours whose rows are not the sealed ones."""
        sealed = effective(self._bundle.rows, len(self._bundle.seals) - 1)
        names = names_of(self._bundle.document)
        found: set[int] = set()
        for file in self._manifest.of("samples"):
            with self._open(file) as parquet:
                for series in series_of(parquet):
                    number = series.channel_id
                    row = None if number in found else sealed.get(number)
                    was = row.hours.by_hour() if row and row.hours else {}
                    found.add(number)
                    yield from compare(_name(names, number), number, was, series.hours(self._folder.day))
        for number in sorted(set(sealed) - found):
            hours = sealed[number].hours
            yield from compare(_name(names, number), number, hours.by_hour() if hours else {}, {})
        parts = self._bundle.parts[-1]
        for file in self._manifest.of("events"):
            with self._open(file) as parquet:
                hours_found = row_hours(parquet, self._manifest.day)
                yield from compare("events", None, parts.events.by_hour(), hours_found)
        for file in self._manifest.of("gaps"):
            with self._open(file) as parquet:
                if gap_rows(parquet) != parts.gaps:
                    yield Difference("gaps", None, None, self._bundle.seals[-1].gaps, parquet.metadata.num_rows)


def _name(names: Mapping[int, tuple[str, str]], number: int) -> str:
    return names.get(number, (f"channel {number}", ""))[0]


def series_of(parquet: Any) -> Iterator[Series]:
    """The samples of each channel in a file, in the file's order; a row group, or one channel, is in memory."""
    waiting: Series | None = None
    for group in range(parquet.num_row_groups):
        for series in split(parquet.read_row_group(group)):
            if waiting is not None and waiting.channel_id == series.channel_id:
                waiting = joined(waiting, series)
                continue
            if waiting is not None:
                yield waiting
            waiting = series
    if waiting is not None:
        yield waiting


def split(table: Any) -> Iterator[Series]:
    """The samples of each channel in a table that is sorted by channel."""
    channel = table.column("channel_id").to_numpy()
    time = table.column("time").cast(pa.int64()).to_numpy()
    status, value = table.column("status").to_numpy(), value_bits(table)
    edges = [0, *(np.flatnonzero(np.diff(channel)) + 1).tolist(), len(channel)]
    for first, last in pairwise(edges):
        if first < last:
            yield Series(int(channel[first]), time[first:last], value[first:last], status[first:last])


def joined(one: Series, other: Series) -> Series:
    """One after the other, of the same channel."""
    return Series(
        one.channel_id,
        np.concatenate([one.time, other.time]),
        np.concatenate([one.value, other.value]),
        np.concatenate([one.status, other.status]),
    )
