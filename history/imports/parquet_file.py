"""Reads the samples of a Parquet file, some rows at a time, by pyarrow (which has no types)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from core.batch import Float64s, Int32s, Int64s, UInt32s, is_rounded
from core.errors import OperationError
from core.files import file_errors
from core.samples import Samples
from core.status_codes import BAD
from history.archive.parquet_writers import EXPORT_METADATA
from history.imports.channel_names import ChannelIndices
from history.imports.csv_layout import Options, Role, column_roles, describe_columns, wide_channels
from history.imports.fields import (
    BadField,
    LineOrder,
    StatusCodes,
    bad_input,
    detect_codes,
    parse_statuses,
    parse_values,
    rounded,
)
from history.imports.portion import ImportPortion, WideColumn, wide_portion
from history.imports.times import TimeFormat, detect

_CELLS = 500_000  # read at a time
_MAGIC = b"PAR1"  # Parquet format, "File format": what a file begins and ends with
_DAMAGE = (pa.ArrowException, OSError)
_NUMERIC = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)


def is_parquet(file: Path, legal: str = "a file: CSV, Parquet, or line protocol") -> bool:
    """Raises OperationError, which says what is legal, if the file can't be read."""
    with file_errors(file, legal), file.open("rb") as raw:
        return raw.read(len(_MAGIC)) == _MAGIC


class ParquetFile:
    """A long or wide table, as of CSV; a line is a row. Raises OperationError.

    Exports of plantlog are long: the columns ``channel_id`` and ``unit`` are left out, values may be NaN, and statuses
    are as they were stored.
    """

    def __init__(self, file: Path, options: Options, cells: int = _CELLS) -> None:
        self.file = file
        self.names: list[str] = []
        self.rounded: set[int] = set()
        self._options = options
        with self._damage():
            table = pq.ParquetFile(file)
        schema, metadata = table.schema_arrow, table.metadata
        self._rows: int = metadata.num_rows
        self._is_export = not EXPORT_METADATA.isdisjoint(metadata.metadata or {})
        usual: dict[str, Role] = {"channel_id": "ignore", "unit": "ignore"} if self._is_export else {}
        self._header: list[str] = schema.names
        roles = column_roles(file, self._header, {**usual, **options.columns})
        at = {role: index for index, role in roles.items() if role != "ignore"}
        self._time_at, self._channel_at, self._value_at = at["time"], at.get("channel"), at.get("value", -1)
        self._status_at = at.get("status")
        wide = {} if self._channel_at is not None else wide_channels(file, self._header, roles, options.names)
        self._wide = {index: number for number, index in enumerate(wide)}
        self.names += wide.values()
        self._used = [name for index, name in enumerate(self._header) if roles.get(index) != "ignore"]
        self._batch = max(1, cells // len(self._used))
        self._indices = ChannelIndices(self.names, options.names)
        self._order = LineOrder()
        self._is_timestamp = pa.types.is_timestamp(schema.field(self._time_at).type)
        first = next(self._batches(), None)
        if first is None:
            raise OperationError(f"{file} has no samples")
        numbers = np.arange(1, first.num_rows + 1)
        with self._field(numbers, self._time_at):
            self._times = self._format(schema.field(self._time_at).type, first)
        self._codes: StatusCodes = "opcua" if self._is_export or options.codes is None else options.codes
        if self._status_at is not None and options.codes is None and not self._is_export:
            with self._field(numbers, self._status_at):
                self._codes = detect_codes(_texts(first[self._header[self._status_at]]))

    def describe(self) -> Sequence[tuple[str, str]]:
        """Describe how the file is understood."""
        form = "wide: a column for each channel" if self._channel_at is None else "long: a sample in each row"
        zone = self._times.zone
        stamp = "in UTC" if zone is None else f"in the time zone {zone.key}"
        written = stamp if self._is_timestamp else self._times.describe()
        lines = [("form", f"Parquet, {form}"), ("time", f"column {self._header[self._time_at]!r}: {written}")]
        roles = (self._channel_at, self._value_at, self._status_at)
        ignored = [name for name in self._header if name not in self._used]
        return lines + describe_columns(self._header, *roles, self._codes, ignored) + self._options.names.describe()

    def portions(self) -> Iterator[ImportPortion]:
        """All samples, from the first row on. Raises OperationError."""
        self._order = LineOrder()
        size, before = self.file.stat().st_size, 0
        for batch in self._batches():
            numbers = np.arange(before + 1, before + batch.num_rows + 1)
            before += batch.num_rows
            yield self._portion(batch, numbers, size * before // self._rows)

    def _batches(self) -> Iterator[Any]:
        with self._damage(), pq.ParquetFile(self.file) as table:
            yield from table.iter_batches(batch_size=self._batch, columns=self._used)

    def _portion(self, batch: Any, numbers: Int64s, bytes_read: int) -> ImportPortion:
        columns = {index: batch[name] for index, name in enumerate(self._header) if name in self._used}
        time_at, channel_at = self._time_at, self._channel_at
        with self._field(numbers, time_at):
            time, later = self._time(columns[time_at])
        if channel_at is None:
            time = self._ordered(np.zeros(len(time), np.int32), time, later, numbers)
            return wide_portion(self._columns(columns, numbers), time, numbers, bytes_read)
        with self._field(numbers, channel_at):
            channel = self._channels(columns[channel_at])
        time = self._ordered(channel, time, later, numbers)
        status = np.zeros(len(numbers), np.uint32)
        if self._status_at is not None:
            with self._field(numbers, self._status_at):
                status = self._statuses(columns[self._status_at])
        with self._field(numbers, self._value_at):
            value, system, indices = self._values(columns[self._value_at], status)
        self.rounded.update(channel[indices].tolist())
        return ImportPortion(Samples(channel, time, value, np.where(system, system, status)), numbers, bytes_read)

    def _format(self, kind: Any, first: Any) -> TimeFormat:
        """Format of the column of times."""
        zone, ambiguous = self._options.zone, self._options.ambiguous
        column = first[self._header[self._time_at]]
        if not self._is_timestamp:
            return detect(_texts(column)[:1000], zone, self._options.date_order, ambiguous)
        if kind.tz is not None and zone is not None:
            raise BadField(0, str(kind), "without --time-zone: the times are in UTC")
        if kind.tz is None and zone is None:
            legal = "times that are adjusted to UTC; or name the time zone: --time-zone Europe/Berlin"
            raise BadField(0, str(kind), legal)
        return TimeFormat("us", zone, ambiguous)

    def _time(self, column: Any) -> tuple[Int64s, Int64s]:
        """µs since 1970, and how much later the second meaning is, as of :class:`TimeFormat`."""
        _no_nulls(column, "a time")
        if not self._is_timestamp:
            return self._times.parse_both(_texts(column))
        unit = column.type.unit
        number: Int64s = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        scale = {"s": 1_000_000, "ms": 1000, "us": 1}
        us = number // 1000 if unit == "ns" else number * scale[unit]
        if self._times.zone is None:
            return us, np.zeros(len(us), np.int64)
        return self._times.to_utc(us, lambda index: str(column[index]), self._times.zone)

    def _ordered(self, channel: Int32s, time: Int64s, later: Int64s, numbers: Int64s) -> Int64s:
        """The times; local times that occur twice are resolved by the order of rows if the user says so."""
        if self._times.ambiguous != "order":
            return time
        with self._field(numbers, self._time_at):
            return self._order.resolve(channel, time, later)

    def _channels(self, column: Any) -> Int32s:
        coded = _coded(column)
        _no_nulls(coded, "the name of a channel")
        texts = coded.dictionary.cast(pa.string()).to_pylist()
        numbers = coded.indices.to_numpy()
        indices = np.zeros(len(texts), np.int32)
        for number in np.unique(numbers).tolist():  # a dictionary may have more than occurs
            try:
                indices[number] = self._indices[texts[number]]
            except BadField as bad:
                raise BadField(int(np.argmax(numbers == number)), bad.found, bad.legal) from None
        channel: Int32s = indices[numbers]
        return channel

    def _statuses(self, column: Any) -> UInt32s:
        """StatusCodes; no status is Good."""
        if self._is_export and pa.types.is_uint32(column.type):
            exported: UInt32s = column.fill_null(0).to_numpy(zero_copy_only=False)
            return exported
        coded = column.cast(pa.string()).fill_null("").dictionary_encode()
        texts, numbers = coded.dictionary.to_pylist(), coded.indices.to_numpy()
        try:
            status: UInt32s = parse_statuses(texts, self._codes)[numbers]
        except BadField as bad:
            raise BadField(int(np.argmax(numbers == bad.index)), bad.found, bad.legal) from None
        return status

    def _values(self, column: Any, status: UInt32s) -> tuple[Float64s, UInt32s, NDArray[np.intp]]:
        """Numbers, statuses of PI's texts, and the indices of what is rounded; a Bad sample may have no value."""
        legal = "a number; only a Bad sample may have none"
        zero = (status & BAD != 0) & column.is_null().to_numpy(zero_copy_only=False)
        if zero.any():
            column = pc.if_else(pa.array(zero), pa.scalar("0").cast(column.type), column)
        _no_nulls(column, legal)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            numbers, statuses = parse_values(column.to_pylist(), self._options.decimal or ".")
            return numbers, statuses, _rounded(column, numbers)
        numbers = _numbers(column)
        if not self._is_export and not (finite := np.isfinite(numbers)).all():
            index = int(np.argmin(finite))
            raise BadField(index, str(numbers[index]), "a finite number")
        return numbers, np.zeros(len(numbers), np.uint32), _rounded(column, numbers)

    def _columns(self, columns: dict[int, Any], numbers: Int64s) -> list[WideColumn]:
        """The cells of a wide file; null is no sample."""
        cells = []
        for index, number in self._wide.items():
            column = columns[index]
            full = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            with self._field(numbers[full], index):
                values, statuses, indices = self._values(column.drop_null(), np.zeros(len(full), np.uint32))
            if len(indices):
                self.rounded.add(number)
            cells.append(WideColumn(number, full, values, statuses))
        return cells

    @contextmanager
    def _field(self, numbers: Int64s, index: int) -> Iterator[None]:
        """Name the row and the column of a BadField."""
        try:
            yield
        except BadField as bad:
            self._fail(bad, int(numbers[bad.index]), index)

    def _fail(self, bad: BadField, row: int, index: int) -> NoReturn:
        raise bad_input(self.file, row, self._header[index], bad.found, bad.legal) from None

    @contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as error:
            reason = str(error).partition("\n")[0]
            raise OperationError(f"{self.file} is not a whole Parquet file ({reason}): copy it again") from None


def _no_nulls(column: Any, legal: str) -> None:
    if column.null_count:
        raise BadField(int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))), "null", legal)


def _coded(column: Any) -> Any:
    """The column with a dictionary."""
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def _texts(column: Any) -> list[str]:
    """Texts and numbers as texts; null is empty."""
    return ["" if value is None else str(value) for value in column.to_pylist()]


def _numbers(column: Any) -> Float64s:
    """Raises BadField for a type without numbers."""
    kind = column.type
    legal = "a column of numbers, booleans or texts with numbers"
    if not any(check(kind) for check in _NUMERIC):
        raise BadField(0, str(kind), legal)
    numeric = column.cast(pa.int8()) if pa.types.is_boolean(kind) else column
    numbers: Float64s = numeric.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def _rounded(column: Any, numbers: Float64s) -> NDArray[np.intp]:
    """Places of integers that no float64 is equal to."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.array(rounded(column.to_pylist(), numbers), np.intp)
    if not (pa.types.is_int64(kind) or pa.types.is_uint64(kind)):
        return np.array([], np.intp)
    return np.flatnonzero(is_rounded(column.to_numpy(zero_copy_only=False), numbers))
