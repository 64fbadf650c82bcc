"""Tasks that read and compute from the samples of some channels, in this process or in another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar

import numpy as np

from history.archive import row_group
from history.archive.channel_table import Place
from history.archive.day_files import DayFiles
from history.archive.manifest import ArchivedFile
from history.archive.row_group import Rows
from history.archive.sample_file import segments
from history.sql.columns import Columns, in_order, together

Result = TypeVar("Result")
_KEPT = 256  # footers


@dataclass(frozen=True, slots=True)
class Stored:
    """Samples of a day that are read in its files only."""

    files: DayFiles  # no others than those that are needed
    places: Mapping[int, Place]
    bounds: tuple[int, int]  # µs

    @property
    def is_amended(self) -> bool:
        """Whether samples of a channel may be in two files."""
        return any(file.amendment for file in self.files.manifest.files)

    def read(self, names: Sequence[str], footers: dict[str, Any]) -> Iterator[Rows]:
        """The samples, in the order of the files. Row groups of other channels are not read.

        ``footers``: of files that were read before.
        """
        for file in self.files.manifest.files:
            for found in self._read(file, names, footers):
                yield from self._only(found)

    def _read(self, file: ArchivedFile, names: Sequence[str], footers: dict[str, Any]) -> Iterator[Rows]:
        with self.files.opened(file, footers) as parquet:
            checked = file.footer_crc32 is not None
            if file.amendment:
                first, last = min(self.places), max(self.places)
                every, metadata = range(parquet.num_row_groups), parquet.metadata
                groups = [n for n in every if not checked or row_group.may_have(metadata.row_group(n), first, last)]
            else:
                here = (one for one in self.places.values() if one.file == file.path)
                groups = sorted({group for one in here for group in range(one.first_group, one.last_group + 1)})
            yield from row_group.read(parquet, groups, names, self.bounds, checked=checked)

    def _only(self, found: Rows) -> Iterator[Rows]:
        """Without those of other channels."""
        channel = found.columns["channel_id"]
        if not isinstance(channel, np.ndarray):
            if channel in self.places:
                yield found
        elif self.places.keys() >= {int(channel[rows.start]) for rows in segments(channel)}:
            yield found
        elif (chosen := np.isin(channel, list(self.places))).any():
            yield found.part(chosen)


@dataclass(frozen=True, slots=True)
class Task(Generic[Result]):
    """Computation from the samples of some channels."""

    stored: Sequence[Stored]
    others: Sequence[Columns]  # those that are not read in the archive only, of a channel each, by time
    names: Sequence[str]  # which of ``value`` and ``status`` are needed
    made: Callable[[Iterable[Columns]], Iterable[Result]]  # of samples by channel and time, some at a time
    in_parts: bool  # whether these may be some of one channel; else channels are whole

    def done(self, footers: dict[str, Any]) -> list[Result]:
        """``footers``: of files that were read before."""
        if len(footers) > _KEPT:
            footers.clear()
        return list(self.made(self._read(footers)))

    def _read(self, footers: dict[str, Any]) -> Iterator[Columns]:
        found = (rows for one in self.stored for rows in one.read(self.names, footers))
        one = self._is_one_channel()
        if (one or len(self.stored) == 1) and self._is_in_order():
            return together(found, whole=not (one and self.in_parts))
        return together(in_order([*(row_group.joined([rows]) for rows in found), *self.others]))

    def _is_in_order(self) -> bool:
        """Whether the samples of a channel are by time as they are read."""
        return (
            not self.others
            and not any(one.is_amended for one in self.stored)
            and all(one.bounds[1] <= other.bounds[0] for one, other in pairwise(self.stored))
        )

    def _is_one_channel(self) -> bool:
        return len({number for one in self.stored for number in one.places}) == 1
