"""Where the samples of a day are read, and what reads those that are in the archive only."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from ingest.timestamps import microseconds
from ops.archive import row_group
from ops.archive.archived_samples import ArchivedSamples
from ops.archive.channel_table import Place
from ops.archive.manifest import ArchivedFile
from ops.archive.sample_file import segments
from ops.sql.columns import Columns, together
from ops.sql.scan import Hours, Scan

Task: TypeAlias = Callable[[], list[Columns]]
_PORTION = 1_000_000  # samples that a thread reads at a time, about


@dataclass(frozen=True, slots=True)
class Parts:
    """Where the samples of an archived day are read, by channel."""

    archived: dict[int, Place]  # in the archive
    merged: list[int]  # in the database, or in both
    samples: ArchivedSamples

    def of(self, channels: Collection[int]) -> Parts:
        """The same of some channels."""
        archived = {number: self.archived[number] for number in channels if number in self.archived}
        return replace(self, archived=archived, merged=[number for number in self.merged if number in channels])


@dataclass(frozen=True, slots=True)
class Day:
    """Where the samples of a day's hours are read."""

    hours: Hours
    parts: list[Parts]  # one for each installation that archived it
    live: list[int]  # channels that are only in the database
    dropped: dict[int, list[int]]  # what retention has dropped

    def of(self, channels: Collection[int]) -> Day:
        """The same of some channels."""
        live = [number for number in self.live if number in channels]
        return replace(self, parts=[one.of(channels) for one in self.parts], live=live)

    def channels(self) -> set[int]:
        """All of them."""
        return {*self.live, *(number for one in self.parts for number in (*one.archived, *one.merged))}

    @property
    def is_amended(self) -> bool:
        """Whether samples of a channel may be in two files."""
        return any(file.amendment for one in self.parts for file in one.samples.files.manifest.of("samples"))


def tasks_of(scan: Scan, day: Day, within: tuple[int, int] | None = None) -> list[Task]:
    """What reads a day's samples of channels that are read in the archive only. Row groups of others are not read.

    ``within`` (µs): no others than with such times.
    """
    return [task for parts in day.parts for task in _of_parts(parts, scan, day.hours, within)]


def _of_parts(parts: Parts, scan: Scan, hours: Hours, within: tuple[int, int] | None) -> Iterator[Task]:
    files = parts.samples.files
    groups: dict[str | None, set[int]] = {}
    samples: Counter[str | None] = Counter()
    for place in parts.archived.values():
        groups.setdefault(place.file, set()).update(range(place.first_group, place.last_group + 1))
        samples[place.file] += place.samples
    names = [name for name in ("value", "status") if scan.mentions(name)]
    bounds = microseconds(hours.bounds[0]), microseconds(hours.bounds[1])
    bounds = bounds if within is None else (max(bounds[0], within[0]), min(bounds[1], within[1]))

    def read(file: ArchivedFile, some: Sequence[int] | None) -> list[Columns]:
        with files.opened(file) as parquet:
            groups = range(parquet.num_row_groups) if some is None else some
            columns = row_group.read(parquet, groups, names, bounds, checked=file.footer_crc32 is not None)
            return list(together(_only(parts.archived, one) for one in columns))

    for file in files.manifest.of("samples"):
        here = sorted(groups.get(file.path, ()))
        n = math.ceil(samples[file.path] * len(hours.hours) / 24 / _PORTION)
        yield from (partial(read, file, some.tolist()) for some in np.array_split(here, max(1, n)) if len(some))
        if file.amendment and parts.archived:
            yield partial(read, file, None)


def _only(channels: Mapping[int, Place], found: Columns) -> Columns:
    """The samples of some channels; sorted by channel."""
    channel = found["channel_id"]
    if channels.keys() >= {int(channel[rows.start]) for rows in segments(channel)}:
        return found
    inside = np.isin(channel, list(channels))
    return {name: column[inside] for name, column in found.items()}
