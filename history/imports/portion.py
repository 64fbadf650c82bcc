"""Samples of a file, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from core.batch import Float64s, Int64s, UInt32s
from core.samples import Samples, Selection
from core.samples import joined as joined_samples


@dataclass(frozen=True, slots=True, eq=False)
class ImportPortion:
    """Samples of consecutive lines, n of them."""

    samples: Samples  # their channels are indices in the reader's ``names``
    line: Int64s  # (n,) from 1
    bytes_read: int  # of the file, so far

    def __len__(self) -> int:
        return len(self.line)

    def part(self, rows: Selection) -> ImportPortion:
        """The samples selected by a mask, a slice or indices."""
        return ImportPortion(self.samples.part(rows), self.line[rows], self.bytes_read)


def joined(portions: Sequence[ImportPortion]) -> ImportPortion:
    """Portions joined one after the other."""
    line = np.concatenate([portion.line for portion in portions])
    return ImportPortion(joined_samples(portion.samples for portion in portions), line, portions[-1].bytes_read)


@dataclass(frozen=True, slots=True, eq=False)
class WideColumn:
    """The cells of a wide file's column that have a sample, as columns of equal length n."""

    channel: int  # index in the reader's ``names``
    rows: NDArray[np.intp]  # (n,)
    value: Float64s  # (n,)
    status: UInt32s  # (n,)


def wide_portion(columns: Sequence[WideColumn], time: Int64s, line: Int64s, bytes_read: int) -> ImportPortion:
    """The samples of rows with these times and lines."""
    rows = np.concatenate([column.rows for column in columns])
    lengths = [len(column.rows) for column in columns]
    channel = np.repeat(np.array([column.channel for column in columns], np.int32), lengths)
    value = np.concatenate([column.value for column in columns])
    status = np.concatenate([column.status for column in columns])
    return ImportPortion(Samples(channel, time[rows], value, status), line[rows], bytes_read)


class FileReader(Protocol):
    """Reads a file of one form."""

    @property
    def file(self) -> Path:
        """The file."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """Names of channels that were read so far, each once."""
        ...

    @property
    def rounded(self) -> Set[int]:
        """Places in ``names`` of channels with an integer, read so far, that no float64 is equal to."""
        ...

    def describe(self) -> Sequence[tuple[str, str]]:
        """Describe how the file is understood, for people: what, and how."""
        ...

    def portions(self) -> Iterator[ImportPortion]:
        """All samples, from the first line on. The same file gives the same portions. Raises OperationError."""
        ...
