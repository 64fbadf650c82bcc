"""Places of the samples of a day, by channel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from history.archive.archived_samples import ArchivedSamples
from history.archive.channel_table import Place
from history.reading.reader import slices
from history.sql.scan import Hours
from history.sql.task import Stored

_AT_A_TIME = 1_000_000  # samples that are read at a time, about
_PER_HOUR = 3600  # samples of a channel of which nothing is known


@dataclass(frozen=True, slots=True)
class ArchivedDay:
    """A day that an installation has archived."""

    archived: dict[int, Place]  # channels that are read in the archive only
    merged: frozenset[int]  # in the database, or in both
    samples: ArchivedSamples

    def of(self, channels: frozenset[int]) -> ArchivedDay:
        """The same of some channels."""
        archived = {number: self.archived[number] for number in channels if number in self.archived}
        return replace(self, archived=archived, merged=self.merged & channels)

    def stored(self, bounds: tuple[int, int]) -> Stored:
        """The samples within bounds (µs) that are read in the archive only."""
        files = self.samples.files
        paths = {place.file for place in self.archived.values()}
        needed = tuple(one for one in files.manifest.of("samples") if one.amendment or one.path in paths)
        files = replace(files, manifest=replace(files.manifest, files=needed))
        return Stored(files, self.archived, bounds)


@dataclass(frozen=True, slots=True)
class Day:
    """Places where the samples of a day's hours are read."""

    hours: Hours
    parts: list[ArchivedDay]  # one for each installation that archived it
    live: frozenset[int]  # channels that are only in the database
    dropped: dict[int, list[int]]  # what retention has dropped

    def of(self, channels: frozenset[int]) -> Day:
        """The same of some channels."""
        return replace(self, parts=[one.of(channels) for one in self.parts], live=self.live & channels)

    def sizes(self) -> Counter[int]:
        """Approximate number of samples of each channel."""
        n = len(self.hours.hours)
        others = self.live.union(*(one.merged for one in self.parts))
        sizes = Counter(dict.fromkeys(others, n * _PER_HOUR))
        for one in self.parts:
            sizes.update({number: 1 + place.samples * n // 24 for number, place in one.archived.items()})
        return sizes

    def stored(self, within: tuple[int, int]) -> Iterator[Stored]:
        """The samples within bounds (µs) that are read in the archive only."""
        begin, end = self.hours.within
        return (one.stored((max(begin, within[0]), min(end, within[1]))) for one in self.parts if one.archived)


def divided(days: Sequence[Day], *, in_parts: bool) -> Iterator[Sequence[Day]]:
    """The same days of some channels at a time, in their order; so many that their samples fit into memory.

    ``in_parts``: of a channel with too many, some days at a time.
    """
    sizes = Counter[int]()
    for day in days:
        sizes.update(day.sizes())
    some, size = list[int](), 0
    for number in sorted(sizes):
        if some and size + sizes[number] > _AT_A_TIME:
            yield _of(days, frozenset(some))
            some, size = [], 0
        if in_parts and sizes[number] > _AT_A_TIME:
            n = max(1, len(days) * _AT_A_TIME // sizes[number])
            yield from (_of(few, frozenset([number])) for few in slices(days, n))
        else:
            some.append(number)
            size += sizes[number]
    if some:
        yield _of(days, frozenset(some))


def _of(days: Sequence[Day], channels: frozenset[int]) -> Sequence[Day]:
    return [day.of(channels) for day in days]
