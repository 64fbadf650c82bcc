"""Portions of samples: some channels of some days, so many that they fit into memory, wherever they are.

The places of the samples are found by day; a portion is read in this process or in another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from core.samples import Samples, joined, slices
from core.timestamps import hours_begun
from history.archive.channel_table import Place
from history.archive.day_files import DayFiles
from history.archive.location import Location
from history.archive.manifest import FORMAT, ArchivedFile, DayFolder, Manifest
from history.codec.row_groups import VALUES, Rows, joined_parts, samples_of

if TYPE_CHECKING:
    from history.reading.day_samples import DaySamples
    from history.sql.sources.scan import Hours  # which imports pyarrow: 0.3 s that processes can save

Result = TypeVar("Result")
_AT_A_TIME = 1_000_000  # samples that are read at a time, about
_PER_HOUR = 3600  # samples of a channel of which nothing is known
_MAX_FOOTERS = 256
_footers: dict[str, Any] = {}  # of files that this process has opened


@dataclass(frozen=True, slots=True)
class FileSamples:
    """Samples of a day that are read in its files only."""

    day: DayFiles
    files: tuple[ArchivedFile, ...]  # those that are needed
    places: Mapping[int, Place]
    bounds: tuple[int, int]  # µs
    offset: int  # of the ids of channels, which differ between plants

    def __reduce__(self) -> Any:
        """Pickled without what is not read: a year of a large plant has millions of these."""
        files = [(f.path, f.rows, f.bytes, f.sha256, f.amendment, f.footer_crc32) for f in self.files]
        places = [(number, p.samples, p.file, p.first_group, p.last_group) for number, p in self.places.items()]
        folder = self.day.folder
        return _unpickled, (
            self.day.location, folder.installation, folder.day, files, places, self.bounds, self.offset
        )  # fmt: skip

    @property
    def channels(self) -> Iterator[int]:
        """Channels that have samples of the day."""
        return (number + self.offset for number in self.places)

    @property
    def is_amended(self) -> bool:
        """Return whether samples of a channel may be in two files."""
        return any(file.amendment for file in self.files)

    def read(self, names: Sequence[str]) -> Iterator[Rows]:
        """The samples, in the order of the files."""
        for file in self.files:
            for rows in self.day.parts(file, self.places, names, self.bounds, _footers):
                yield rows.shifted(self.offset)


def _unpickled(
    location: Location,
    installation: UUID,
    day: date,
    files: Iterable[tuple[str, int, int, str, bool, int | None]],
    places: Iterable[tuple[int, int, str | None, int, int]],
    bounds: tuple[int, int],
    offset: int,
) -> FileSamples:
    needed = tuple(
        ArchivedFile(path, "samples", rows, size, sha256, is_amendment, crc32)
        for path, rows, size, sha256, is_amendment, crc32 in files
    )
    manifest = Manifest(FORMAT, "", str(installation), str(day), 0, 0, 0, "", 0, 0, needed)
    of_day = DayFiles(location, DayFolder(installation, day), manifest)
    places_by_channel = {number: Place(n, file, first, last) for number, n, file, first, last in places}
    return FileSamples(of_day, needed, places_by_channel, bounds, offset)


@dataclass(frozen=True, slots=True)
class SamplePortion:
    """Samples of some channels."""

    stored: Sequence[FileSamples]
    others: Sequence[Samples]  # those that are not read in the archive only, of a channel each, by time
    names: Sequence[str]  # which of ``value`` and ``status`` are needed
    in_parts: bool  # whether they may be read as some samples of one channel; else channels are whole

    @property
    def n_others(self) -> int:
        """Samples that are not read in the archive only."""
        return sum(len(samples.time) for samples in self.others)

    def read(self) -> Iterator[Samples]:
        """The samples of some channels at a time, by channel and time."""
        rows = (rows for day in self.stored for rows in day.read(self.names))
        is_one_channel = self._is_one_channel()
        if (is_one_channel or len(self.stored) == 1) and self._is_in_order():
            return map(_ascending, joined_parts(rows, whole=not (is_one_channel and self.in_parts)))
        return joined_parts(by_channel([*(samples_of([group]) for group in rows), *self.others], self.names))

    def _is_in_order(self) -> bool:
        """Return whether the samples of a channel are by time as they are read."""
        return (
            not self.others
            and not any(day.is_amended for day in self.stored)
            and all(day.bounds[1] <= other.bounds[0] for day, other in pairwise(self.stored))
        )

    def _is_one_channel(self) -> bool:
        return len({number for day in self.stored for number in day.channels}) == 1


def _ascending(samples: Samples) -> Samples:
    """Whole channels in their order: a file has those of some units, and others' lie between them."""
    if (samples.channel[1:] >= samples.channel[:-1]).all():
        return samples
    return joined(of_channel for _, of_channel in sorted(samples.by_channel(), key=itemgetter(0)))


def by_channel(portions: Iterable[Samples], names: Collection[str] = VALUES) -> Iterator[Rows]:
    """The samples of each channel, by time. Within each of ``portions``, they are in that order already."""
    parts: dict[int, list[Samples]] = {}
    for portion in portions:
        for number, samples in portion.by_channel():
            parts.setdefault(number, []).append(samples)
    for number in sorted(parts):
        ordered = sorted(parts.pop(number), key=lambda samples: int(samples.time[0]))
        samples = samples_of([Rows.of_samples(samples, names) for samples in ordered])
        if any(earlier.time[-1] >= later.time[0] for earlier, later in pairwise(ordered)):  # an amendment
            samples = samples.sorted()
        yield Rows.of_samples(samples, names)


Kernel = Callable[[Iterable[Samples]], Iterable[Result]]  # of samples by channel and time, some at a time


def compute(kernel: Kernel[Result], portion: SamplePortion) -> list[Result]:
    """Results of a kernel, of the samples of a portion."""
    if len(_footers) > _MAX_FOOTERS:
        _footers.clear()
    return list(kernel(portion.read()))


def forget_footers() -> None:
    """Check the footer of each file once more before it is read in this process."""
    _footers.clear()


@dataclass(frozen=True, slots=True)
class ArchivedDay:
    """A day that an installation has archived."""

    archived: dict[int, Place]  # channels that are read in the archive only
    merged: frozenset[int]  # in the database, or in both
    files: DayFiles
    samples: DaySamples | None  # None: there is no database
    offset: int  # of the ids of channels
    by_path: Mapping[str, ArchivedFile]  # files of samples but amendments
    amendments: tuple[ArchivedFile, ...]

    @classmethod
    def of_files(
        cls,
        archived: dict[int, Place],
        merged: frozenset[int],
        files: DayFiles,
        samples: DaySamples | None,
        offset: int = 0,
    ) -> ArchivedDay:
        """A day of all of its files."""
        of_samples = files.manifest.of_table("samples")
        by_path = {file.path: file for file in of_samples if not file.amendment}
        amendments = tuple(file for file in of_samples if file.amendment)
        return cls(archived, merged, files, samples, offset, by_path, amendments)

    def of_channels(self, channels: frozenset[int]) -> ArchivedDay:
        """Day of some of the channels."""
        archived = {number: self.archived[number] for number in channels if number in self.archived}
        merged, unchanged = self.merged & channels, (self.offset, self.by_path, self.amendments)
        return ArchivedDay(archived, merged, self.files, self.samples, *unchanged)

    def stored(self, bounds: tuple[int, int]) -> FileSamples:
        """The samples within bounds (µs) that are read in the archive only."""
        paths = {place.file for place in self.archived.values() if place.file is not None}
        files = (*(self.by_path[path] for path in sorted(paths)), *self.amendments)
        places = self.archived
        if self.offset:
            places = {number - self.offset: place for number, place in places.items()}
        return FileSamples(self.files, files, places, bounds, self.offset)


@dataclass(frozen=True, slots=True)
class Day:
    """Places where the samples of a day's hours are read."""

    hours: Hours
    parts: list[ArchivedDay]  # one for each installation that archived it
    live: Mapping[int, int]  # channels that are only in the database, each with its number of samples, about
    dropped: dict[int, list[int]]  # what retention has dropped

    def of_channels(self, channels: frozenset[int]) -> Day:
        """Day of some of the channels."""
        parts = [day.of_channels(channels) for day in self.parts]
        live = {number: n for number, n in self.live.items() if number in channels}
        return Day(self.hours, parts, live, self.dropped)

    def sizes(self) -> Counter[int]:
        """Approximate number of samples of each channel."""
        n, sizes = len(self.hours.hours), Counter(self.live)
        for day in self.parts:
            sizes.update(dict.fromkeys(day.merged, unknown_size(self.hours)))
            sizes.update({number: 1 + place.samples * n // 24 for number, place in day.archived.items()})
        return sizes

    def stored(self, within: tuple[int, int]) -> Iterator[FileSamples]:
        """The samples within bounds (µs) that are read in the archive only."""
        begin, end = self.hours.within
        return (day.stored((max(begin, within[0]), min(end, within[1]))) for day in self.parts if day.archived)


def unknown_size(hours: Hours) -> int:
    """Number of samples that a channel may have in some hours of a day, where nobody has counted them."""
    return hours_begun(hours.day, hours.hours) * _PER_HOUR


def split_days(days: Sequence[Day], *, in_parts: bool) -> Iterator[Sequence[Day]]:
    """Days of some channels at a time, in their order; so many that their samples fit into memory.

    ``in_parts``: of a channel with too many, some days at a time.
    """
    sizes = Counter[int]()
    for day in days:
        sizes.update(day.sizes())
    numbers, size = list[int](), 0
    for number in sorted(sizes):
        if numbers and size + sizes[number] > _AT_A_TIME:
            yield _of(days, frozenset(numbers))
            numbers, size = [], 0
        if in_parts and sizes[number] > _AT_A_TIME:
            n = max(1, len(days) * _AT_A_TIME // sizes[number])
            yield from (_of(few, frozenset([number])) for few in slices(days, n))
        else:
            numbers.append(number)
            size += sizes[number]
    if numbers:
        yield _of(days, frozenset(numbers))


def _of(days: Sequence[Day], channels: frozenset[int]) -> Sequence[Day]:
    return [day.of_channels(channels) for day in days]
