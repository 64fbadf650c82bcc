"""Reads an archive as Arrow tables: the samples of channels in an interval, whatever days it spans."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from core.errors import OperationError
from core.samples import Samples
from core.timestamps import begin, microseconds
from history.archive.day_files import DayFiles
from history.archive.location import Location, S3Options
from history.archive.manifest import MANIFESTS, DayFolder, Manifest, read_manifest
from history.archive.meanings import TEXT, Meanings
from history.archive_days.verify import problems_of, read_bundle
from history.codec.row_groups import TIME
from history.seals.seal_store import chain_problems
from history.standalone import Key, Seal, UnverifiableError, seal_problems, wrong_key

SAMPLES = pa.schema(
    [
        pa.field("channel_id", pa.int32(), nullable=False),
        pa.field("time", TIME, nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("status", pa.uint32(), nullable=False),
        pa.field("name", TEXT),
        pa.field("unit", TEXT),
    ]
)


@dataclass(frozen=True, slots=True)
class Archive:
    """The archived days of one installation."""

    location: Location
    installation: UUID

    @classmethod
    def open(cls, name: str, installation: UUID | None = None, s3: S3Options | None = None) -> Archive:
        """``name``: a folder or ``s3://BUCKET/PATH``; ``installation``: required if there are several.

        Raises OperationError.
        """
        location = Location.at(name, s3)
        installations = sorted({path.split("/")[1].partition("=")[2] for path in location.listing(MANIFESTS)})
        if installation is None and len(installations) != 1:
            legal = f"one of {', '.join(installations)}" if installations else "a location with archived days"
            raise OperationError(f"archive {name}: installation: found none given; legal: {legal}")
        return cls(location, installation or UUID(installations[0]))

    def days(self) -> list[date]:
        """The archived days, ascending."""
        paths = self.location.listing(f"{MANIFESTS}/installation={self.installation}")
        names = [path.rpartition("/")[2].removesuffix(".json") for path in paths if path.endswith(".json")]
        return sorted(date.fromisoformat(name) for name in names)

    def days_between(self, since: datetime, until: datetime) -> list[date]:
        """Days that have samples of an interval."""
        return [day for day in self.days() if begin(day) < until and begin(day, 24) > since]

    def manifest(self, day: date) -> Manifest:
        """Manifest of an archived day. Raises OperationError."""
        return read_manifest(self.location, DayFolder(self.installation, day))

    def channels(self, day: date) -> Any:
        """The channels as of a day, a row for each meaning (docs/archive.md). Raises OperationError."""
        return self._files(day).channels()

    def verify(self, day: date, anchors: Sequence[str] | None = None) -> list[str]:
        """Differences of a day from its seal. ``anchors``: trusted public keys. Raises OperationError."""
        return problems_of(self._files(day), anchors)

    def chain_problems(self, anchors: Sequence[str]) -> list[str]:
        """Places where the chain of seals of all archived days is cut or signed by another key. ``anchors``: trusted
        public keys. Raises OperationError.

        The days before the first one may have gone from the archive.
        """
        seals: dict[int, Seal] = {}
        keys: dict[str, Key] = {}
        for day in self.days():
            files = self._files(day)
            [file] = files.manifest.of_table("seal")
            try:
                bundle = read_bundle(self.location, file.path)
            except UnverifiableError as error:
                raise OperationError(f"archive {self.location.name}: {error}") from error
            seals |= {seal.serial: seal for seal in bundle.seals}
            keys |= {key.fingerprint: key for key in bundle.keys}
        chain = [seals[serial] for serial in sorted(seals)]
        first = min((seal for seal in chain if seal.revision == 0), key=lambda seal: seal.day, default=None)
        since_first = [seal for seal in chain if first is not None and seal.serial >= first.serial]
        if wrong := wrong_key(since_first, list(keys.values()), anchors):
            return [wrong]
        return chain_problems(since_first, None, from_first=False) + list(
            seal_problems(since_first, list(keys.values()), anchors)
        )

    def samples(self, channels: int | str | Iterable[int | str], since: datetime, until: datetime) -> Any:
        """An Arrow table of the samples with since <= time < until, sorted by day, channel and time.

        ``name`` and ``unit`` are those that the channel had at the time.
        ``channels``: ids, or names as of each day, in which ``*`` stands for any text; or one. Raises OperationError if
        a file is missing, damaged, or another one, and for channels that no archived day has; a day that is not
        archived has no samples.
        """
        chosen = [channels] if isinstance(channels, int | str) else list(channels)
        bounds = microseconds(since), microseconds(until)
        batches = [batch for day in self.days_between(since, until) for batch in self._day(day, chosen, bounds)]
        table = pa.Table.from_batches(batches, SAMPLES).unify_dictionaries()
        read = table.select(["channel_id", "name"]).group_by(["channel_id", "name"]).aggregate([])
        unknown = [channel for channel in chosen if channel != "*" and not _has(read, channel)]
        days = reversed(self.days())
        while unknown and (day := next(days, None)) is not None:
            channels_of_day = self.channels(day)
            unknown = [channel for channel in unknown if not _has(channels_of_day, channel)]
        if unknown:
            names = ", ".join(map(str, unknown))
            raise OperationError(f"archive {self.location.name}: no channel matches {names} (* matches any text)")
        return table

    def _day(self, day: date, chosen: Sequence[int | str], bounds: tuple[int, int]) -> list[Any]:
        """Batches of the samples of a day. If the day is replaced while it is read, the new files are read instead."""
        while True:
            files = self._files(day)
            try:
                channels = files.channels()
                meanings = Meanings.of_day(channels)
                return [_batch(samples, meanings) for _, samples in files.between(_chosen(channels, chosen), *bounds)]
            except OperationError:
                if self.manifest(day) == files.manifest:
                    raise

    def _files(self, day: date) -> DayFiles:
        return DayFiles(self.location, DayFolder(self.installation, day), self.manifest(day))


def _chosen(table: Any, channels: Sequence[int | str]) -> set[int]:
    """The ids of the channels that are wanted."""
    ids = {channel for channel in channels if isinstance(channel, int)}
    patterns = [".*".join(map(re.escape, channel.split("*"))) for channel in channels if isinstance(channel, str)]
    names = zip(table.column("channel_id").to_pylist(), table.column("name").to_pylist(), strict=True)
    return ids | {number for number, name in names if any(re.fullmatch(pattern, name) for pattern in patterns)}


def _has(table: Any, channel: int | str) -> bool:
    """Return whether a table has a channel."""
    ids = {channel} if isinstance(channel, int) else _chosen(table, [channel])
    return not ids.isdisjoint(table.column("channel_id").to_pylist())


def _batch(samples: Samples, meanings: Meanings) -> Any:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(samples.channel),
            pa.array(samples.time, pa.int64()).cast(TIME),
            pa.Array.from_buffers(
                pa.float64(), len(samples), [None, pa.py_buffer(np.ascontiguousarray(samples.value))]
            ),
            pa.array(samples.status, pa.uint32()),
            *meanings.columns(samples.channel, samples.time).values(),
        ],
        schema=SAMPLES,
    )
