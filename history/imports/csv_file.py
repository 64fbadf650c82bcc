"""Reads the samples of a CSV file, some lines at a time."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO, TextIOWrapper
from operator import methodcaller
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from core.batch import Float64s, Int32s, Int64s, UInt32s
from core.samples import Samples
from core.status_codes import BAD
from history.imports.channel_names import ChannelIndices
from history.imports.csv_layout import CsvLayout, undecodable
from history.imports.fields import (
    EXACT,
    BadField,
    LineOrder,
    bad_input,
    parse_statuses,
    parse_values,
    rounded,
)
from history.imports.portion import ImportPortion, WideColumn, wide_portion

_CHARACTERS = 4_000_000  # read at a time
_NO_END = "a line end: the file ends in the middle of a line. If it is whole, add a line end"


class CsvFile:
    """A file of one layout."""

    def __init__(self, file: Path, layout: CsvLayout, characters: int = _CHARACTERS) -> None:
        self.file = file
        self.names: list[str] = list(layout.wide.values())
        self.rounded: set[int] = set()
        self._layout = layout
        self._characters = characters
        self._indices = ChannelIndices(self.names, layout.names)
        self._order = LineOrder()
        self._wide = {index: number for number, index in enumerate(layout.wide)}

    def describe(self) -> Sequence[tuple[str, str]]:
        """Describe how the file is understood."""
        return self._layout.describe()

    def portions(self) -> Iterator[ImportPortion]:
        """All samples, from the first line on. Raises OperationError."""
        layout = self._layout
        before = layout.header_lines  # lines
        self._order = LineOrder()
        try:
            with self.file.open("rb") as raw, TextIOWrapper(raw, layout.encoding, newline="") as text:
                for _ in range(layout.header_lines):
                    text.readline()
                while block := text.read(self._characters):
                    block += text.readline()
                    portion = usual_portion(block, layout, self._indices, self._wide, before, raw.tell())
                    if portion is not None:
                        yield portion
                        before += block.count("\n")
                        continue
                    lines = StringIO(block, newline="").readlines()
                    if not lines[-1].endswith(("\n", "\r")):
                        last = before + len(lines)
                        raise bad_input(self.file, last, "line", lines[-1], _NO_END)
                    yield self._portion(lines, before, raw.tell())
                    before += len(lines)
            if layout.rows is not None and layout.rows != before - layout.header_lines:
                rows_read = f"{before - layout.header_lines} rows"
                raise bad_input(self.file, before, "line", rows_read, f"{layout.rows}, as the file says")
        except UnicodeError as error:
            raise undecodable(self.file, layout.encoding, error) from None

    def _portion(self, lines: Sequence[str], before: int, bytes_read: int) -> ImportPortion:
        columns, numbers = self._split(lines, before) or self._parsed(lines, before)
        time_at = self._layout.time_at
        try:
            time, later = self._layout.times.parse_both(columns[time_at])
        except BadField as bad:
            self._fail(bad, numbers[bad.index], time_at)
        if self._layout.channel_at is not None:
            channel, value, status = self._long(columns, numbers, self._layout.channel_at)
            time = self._ordered(channel, time, later, numbers)
            return ImportPortion(Samples(channel, time, value, status), numbers, bytes_read)
        time = self._ordered(np.zeros(len(time), np.int32), time, later, numbers)
        return wide_portion(self._columns(columns, numbers), time, numbers, bytes_read)

    def _ordered(self, channel: Int32s, time: Int64s, later: Int64s, numbers: Int64s) -> Int64s:
        """The times; local times that occur twice are resolved by the order of lines if the user says so."""
        if self._layout.times.ambiguous != "order":
            return time
        try:
            return self._order.resolve(channel, time, later)
        except BadField as bad:
            self._fail(bad, numbers[bad.index], self._layout.time_at)

    def _split(self, lines: Sequence[str], before: int) -> tuple[Sequence[Sequence[str]], Int64s] | None:
        """The columns of lines without quotes, and their numbers, at a third of what the module csv takes.

        None: a line has quotes, other ends or another number of fields than the first one.
        """
        delimiter, width = self._layout.delimiter, len(self._layout.header)
        text = "".join(lines).replace("\r\n", "\n")
        if '"' in text or "\r" in text or set(map(methodcaller("count", delimiter), lines)) != {width - 1}:
            return None
        cells = text.replace("\n", delimiter).split(delimiter)
        columns = [cells[index:-1:width] for index in range(width)]
        return columns, np.arange(before + 1, before + len(lines) + 1)

    def _parsed(self, lines: Sequence[str], before: int) -> tuple[Sequence[Sequence[str]], Int64s]:
        """The columns of any lines, and their numbers. Raises OperationError."""
        rows = self._rows(lines, before)
        width = len(self._layout.header)
        numbers = np.arange(before + 1, before + len(rows) + 1)
        if set(map(len, rows)) != {width}:
            for number, row in zip(numbers.tolist(), rows, strict=True):
                if row and len(row) != width:
                    legal = f"{width} fields, as in the first line: {', '.join(self._layout.header)}"
                    raise bad_input(self.file, number, "line", f"{len(row)} fields", legal)
            numbers = numbers[[bool(row) for row in rows]]  # without empty lines
            rows = [row for row in rows if row]
        return list(zip(*rows, strict=True)) if rows else [()] * width, numbers

    def _rows(self, lines: Sequence[str], before: int) -> list[list[str]]:
        reader = csv.reader(lines, delimiter=self._layout.delimiter, strict=True)
        rows: list[list[str]] = []
        legal = "fields whose quotes are closed in the same line"
        try:
            for row in reader:
                rows.append(row)
        except csv.Error as error:
            raise bad_input(self.file, before + len(rows) + 1, "line", str(error), legal) from None
        if len(rows) != len(lines):
            index = next(i for i, row in enumerate(rows) if any("\n" in cell or "\r" in cell for cell in row))
            raise bad_input(self.file, before + index + 1, "line", lines[index].rstrip("\r\n"), legal)
        return rows

    def _long(
        self, columns: Sequence[Sequence[str]], numbers: Int64s, channel_at: int
    ) -> tuple[Int32s, Float64s, UInt32s]:
        """Channel, value and status of each line."""
        layout, n = self._layout, len(numbers)
        column = channel_at
        try:
            names = columns[column]
            try:
                channel = np.fromiter(map(self._indices.__getitem__, names), np.int32, n)
            except BadField as bad:
                raise BadField(names.index(bad.found), bad.found, bad.legal) from None
            status = np.zeros(n, np.uint32)
            if layout.status_at is not None:
                column = layout.status_at
                status = parse_statuses(columns[column], layout.codes)
            column = layout.value_at
            texts = columns[column]
            if "" in texts:  # a Bad sample may have no value
                texts = ["0" if not text and code & BAD else text for text, code in zip(texts, status, strict=True)]
            value, system = parse_values(texts, layout.decimal)
            self.rounded.update(channel[rounded(texts, value)].tolist())
            return channel, value, np.where(system, system, status)
        except BadField as bad:
            self._fail(bad, numbers[bad.index], column)

    def _columns(self, columns: Sequence[Sequence[str]], numbers: Int64s) -> list[WideColumn]:
        """The cells of a wide file; empty ones are no samples."""
        cells = []
        for index, number in self._wide.items():
            texts = columns[index]
            full = np.arange(len(texts))
            if "" in texts:
                full = full[[bool(text) for text in texts]]
                texts = [text for text in texts if text]
            try:
                values, statuses = parse_values(texts, self._layout.decimal)
            except BadField as bad:
                self._fail(bad, numbers[full[bad.index]], index)
            if rounded(texts, values):
                self.rounded.add(number)
            cells.append(WideColumn(number, full, values, statuses))
        return cells

    def _fail(self, bad: BadField, line: int, column: int) -> NoReturn:
        raise bad_input(self.file, int(line), self._layout.header[column], bad.found, bad.legal) from None


def usual_portion(
    block: str, layout: CsvLayout, ids: Mapping[str, int], wide: Mapping[int, int], before: int, bytes_read: int
) -> ImportPortion | None:
    """The samples of whole lines, ``before`` of which precede them. None: some are unusual or wrong.

    ``ids``: text of a channel → index of its name. ``wide``: column → index of its channel's name.
    """
    text = block.replace("\r\n", "\n")
    if '"' in text or "\r" in text or layout.decimal != "." or layout.times.ambiguous == "order":
        return None
    try:
        columns = _columns(text, layout)
        if columns.num_rows != text.count("\n"):
            return None  # empty lines
        time = _times(columns[layout.time_at], layout)
        if time is None:
            return None
        number = np.arange(before + 1, before + len(time) + 1)
        if layout.channel_at is None:
            return wide_portion(_cells(columns, wide), time, number, bytes_read)
        coded = columns[layout.channel_at].dictionary_encode()
        indices = np.array([ids[name] for name in coded.dictionary.to_pylist()], np.int32)
        status = np.zeros(len(time), np.uint32)
        if layout.status_at is not None:
            statuses = columns[layout.status_at].dictionary_encode()
            status = parse_statuses(statuses.dictionary.to_pylist(), layout.codes)[statuses.indices.to_numpy()]
        channel: Int32s = indices[coded.indices.to_numpy()]
        return ImportPortion(Samples(channel, time, _numbers(columns[layout.value_at]), status), number, bytes_read)
    except (pa.ArrowInvalid, BadField):
        return None


def _columns(text: str, layout: CsvLayout) -> Any:
    """A record batch of texts, with a column for each one of the file."""
    names = [str(index) for index in range(len(layout.header))]
    content = text.encode()
    table = pyarrow.csv.read_csv(
        pa.BufferReader(content),
        pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(content) + 1),
        pyarrow.csv.ParseOptions(delimiter=layout.delimiter, quote_char=False, ignore_empty_lines=False),
        pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )
    return table.combine_chunks().to_batches()[0]


def _times(column: Any, layout: CsvLayout) -> Int64s | None:
    """µs. None: they are not of one length, or not all as usual."""
    n = len(column)
    _, offsets, content = column.buffers()
    at = np.frombuffer(offsets, np.int32, n + 1)
    width = int(at[1] - at[0])
    if width == 0 or (np.diff(at) != width).any():
        return None
    chars: NDArray[np.uint8] = np.frombuffer(content, np.uint8, n * width).reshape(n, width)
    return layout.times.parse_fixed(chars)


def _numbers(column: Any) -> Float64s:
    """Numbers of a column. Raises ArrowInvalid or BadField."""
    numbers: Float64s = column.cast(pa.float64()).to_numpy()
    if not np.isfinite(numbers).all():
        raise BadField(int(np.argmin(np.isfinite(numbers))), "", "a finite number")
    zeros = column.filter(pa.array(numbers == 0))
    if (np.abs(numbers) >= EXACT).any() or pc.any(pc.match_substring_regex(zeros, "[1-9]")).as_py():
        raise BadField(0, "", "as the text says it")  # it may be rounded
    return numbers


def _cells(columns: Any, wide: Mapping[int, int]) -> list[WideColumn]:
    """The cells of a wide file; empty ones are no samples. Raises ArrowInvalid or BadField."""
    cells = []
    for index, channel in wide.items():
        column = columns[index]
        full = np.flatnonzero(pc.binary_length(column).to_numpy())
        values = _numbers(column if len(full) == len(column) else column.take(pa.array(full)))
        cells.append(WideColumn(channel, full, values, np.zeros(len(full), np.uint32)))
    return cells
