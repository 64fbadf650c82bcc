"""Tables as DuckDB reads them: with the conditions of the query, so that only what may meet them is read.

DuckDB hands the comparisons of a query with constants to the tables that it reads, as an expression of pyarrow. pyarrow
says which of many partitions cannot meet it: here hours, and channels. The others are read, and the expression is
applied to each row of them.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from core.timestamps import HOUR_US, begin, microseconds
from history.codec.row_groups import TIME

_DESCRIBED = ("name", "unit")  # columns that are known by the channel, but for changes of its meaning
_NULL = re.compile(r"(?<!if_else\()is_(?:null|valid)\((\w+)")  # not that of IN, which is NULL for NULL


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours of a day, from the first to the last that is needed."""

    day: date
    hours: range

    @property
    def bounds(self) -> tuple[Any, Any]:
        """Bounds of the times."""
        return begin(self.day, self.hours.start), begin(self.day, self.hours.stop)

    @property
    def within(self) -> tuple[int, int]:
        """Bounds of the times, in µs."""
        first, last = map(microseconds, self.bounds)
        return first, last


def hours_within(days: Iterable[date], since: int, until: int) -> list[Hours]:
    """Hours with times since <= time < until (µs)."""
    parts = []
    for day in days:
        first, last = ((us - microseconds(begin(day))) / HOUR_US for us in (since, until))
        if hours := range(max(0, math.floor(first)), min(24, math.ceil(last))):
            parts.append(Hours(day, hours))
    return parts


class Scans:
    """The scans of a session.

    DuckDB lets go of a scan that it no longer needs, and pyarrow's threads read on. A thread that does so while the
    interpreter ends would keep the process from ending (apache/arrow, issue 50482), so a session waits for it.
    """

    def __init__(self, failures: list[BaseException] | None = None) -> None:
        """``failures``: gets what ended a query: DuckDB passes on no more than a text."""
        self.failures = [] if failures is None else failures
        self._changed = threading.Condition()
        self._reading = 0
        self._ended = False

    def read(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches of a scan, until :meth:`end`."""
        while self._may_read():
            try:
                batch = next(batches, None)
            except BaseException as error:
                self.failures.append(error)
                raise
            finally:
                self._has_read()
            if batch is None:
                return
            yield batch

    def end(self, seconds: float) -> None:
        """No thread reads any more, after so many seconds at most."""
        with self._changed:
            self._ended = True
            self._changed.wait_for(lambda: not self._reading, seconds)

    def _may_read(self) -> bool:
        with self._changed:
            self._reading += not self._ended
            return not self._ended

    def _has_read(self) -> None:
        with self._changed:
            self._reading -= 1
            self._changed.notify_all()


@dataclass(slots=True)
class Scan:
    """Part of a table that a query needs."""

    schema: Any  # the columns that it reads, or has conditions on
    condition: Any  # an expression of pyarrow; None: there is none
    only: frozenset[int] | None = None  # channels; None: all
    _known: dict[Any, bool] = field(default_factory=dict)  # whether a partition can meet it

    @property
    def _plain(self) -> Any:
        """The schema without dictionaries, which conditions are not about."""
        return pa.schema([(field.name, getattr(field.type, "value_type", field.type)) for field in self.schema])

    def mentions(self, *names: str) -> bool:
        """Return whether columns are needed."""
        return any(name in self.schema.names for name in names)

    def limits(self, column: str) -> bool:
        """Return whether the condition is about a column."""
        return _named(self.condition, column)

    def hours(self, days: Iterable[date], column: str) -> Iterator[Hours]:
        """Hours whose rows can meet the condition by the time in a column; of days between others, all."""
        possible = self._possible([(day, _between(column, day, range(24))) for day in days], column)
        for day in possible:
            hours = list(range(24))
            if day in (possible[0], possible[-1]):
                hours = self._possible([(hour, _between(column, day, range(hour, hour + 1))) for hour in hours], column)
            if hours:
                yield Hours(day, range(hours[0], hours[-1] + 1))

    def channels(
        self,
        ids: Iterable[int],
        described: Callable[[int], Sequence[Mapping[str, Any]]] | None = None,
        column: str = "channel_id",
    ) -> list[int]:
        """Channels whose rows can meet the condition, ascending. ``column``: has their ids.

        ``described``: for each meaning that a channel had, the values that other columns have in its rows; None: they
        are not known.
        """
        candidates = sorted(set(ids) if self.only is None else self.only.intersection(ids))
        columns = [name for name in (column, *(_DESCRIBED if described else ())) if name in self.schema.names]
        others = [name for name in self.schema.names if name not in columns]
        # Unknown values are NULL in the rows below, which can't decide a condition about NULL.
        tests_null = any(column in others for column in _NULL.findall(f"{self.condition}"))
        if tests_null or not _named(self.condition, *columns):
            return candidates
        if new := [number for number in candidates if number not in self._known]:
            self._learn(new, column, described)
        return [number for number in candidates if self._known[number]]

    def _learn(
        self, new: list[int], column: str, described: Callable[[int], Sequence[Mapping[str, Any]]] | None
    ) -> None:
        """Find out which channels' rows can meet the condition."""
        rows: dict[str, list[Any]] = {column: new}
        if described is not None and _named(self.condition, *_DESCRIBED):
            meanings = [(number, meaning) for number in new for meaning in described(number)]
            rows[column] = [number for number, _ in meanings]
            rows |= {name: [meaning.get(name) for _, meaning in meanings] for name in _DESCRIBED}
        n = len(rows[column])
        values = [pa.array(rows.get(field.name, [None] * n), field.type) for field in self._plain]
        table = pa.Table.from_arrays(values, schema=self._plain).append_column("row", pa.array(range(n)))
        self._known.update(dict.fromkeys(new, False))
        unmet = set(table.filter(~self.condition).column("row").to_pylist())  # false, whatever is unknown
        self._known.update((number, True) for row, number in enumerate(rows[column]) if row not in unmet)

    def types(self, names: Iterable[str]) -> list[str]:
        """Types of events whose rows can meet the condition."""
        return self._possible([(name, ds.field("type") == name) for name in names], "type")

    def _possible(self, parts: Sequence[tuple[Any, Any]], *columns: str) -> list[Any]:
        """The keys of those partitions that can meet the condition, in their order."""
        if not parts or not _named(self.condition, *columns):
            return [key for key, _ in parts]
        # No file of these names is ever opened.
        partitions = ds.FileSystemDataset.from_paths(
            [str(index) for index in range(len(parts))],
            schema=self._plain,
            format=ds.ParquetFileFormat(),
            filesystem=pafs.LocalFileSystem(),
            partitions=[expression for _, expression in parts],
        )
        indices = sorted(int(fragment.path) for fragment in partitions.get_fragments(self.condition))
        return [parts[index][0] for index in indices]


class ScannedTable(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A table that DuckDB reads through :meth:`scanner`."""

    def __init__(self, schema: Any, read: Callable[[Scan], Iterator[Any]], scans: Scans) -> None:
        """``read``: yields record batches with the columns of a scan."""
        self._schema = schema
        self._read = read
        self._scans = scans

    @property
    def schema(self) -> Any:
        """All columns."""
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> Any:  # noqa: A002
        """Function that DuckDB calls for each use of the table in a query."""
        names = list(self._schema.names if columns is None else columns)
        needed = [field for field in self._schema if field.name in names or _named(filter, field.name)]
        scan = Scan(pa.schema(needed or [self._schema.field(0)]), filter)
        return ds.Scanner.from_batches(
            self._scans.read(self._read(scan)), schema=scan.schema, columns=names, filter=filter
        )


def _named(condition: Any, *names: str) -> bool:
    """Return whether a condition has one of these columns, or a text that looks like it."""
    return condition is not None and any(re.search(rf"\b{name}\b", str(condition)) for name in names)


def _between(column: str, day: date, hours: range) -> Any:
    first, last = (
        pa.scalar(microseconds(begin(day, hour)), pa.int64()).cast(TIME) for hour in (hours.start, hours.stop)
    )
    return (ds.field(column) >= first) & (ds.field(column) < last)
