"""The tables that DuckDB reads: samples and events of archive and database together, and what only the database has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, timedelta
from typing import Any, TypeAlias

import pyarrow as pa

from core.timestamps import begin, microseconds
from history.codec.row_groups import TIME
from history.sql.sources.database import DatabaseSamples
from history.sql.sources.reader import ReaderConnection
from history.sql.sources.samples import SAMPLES
from history.sql.sources.scan import Scan, ScannedTable, Scans
from history.standalone import schema_of
from schema.queries import load

Read: TypeAlias = Callable[[Scan], Iterator[Any]]
_EVENTS = schema_of("events")
_MAX_ROWS = 50_000  # of rollups, in memory as Python's objects
_TYPES: Mapping[str, Any] = {
    "bool": pa.bool_(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float8": pa.float64(),
    "text": pa.string(),
    "timestamptz": TIME,
}
_WHOLE = ("gap", "source", "retirement", "quarantine")  # read at once
_OF_CHANNELS = {"channel": "id", "channel_version": "channel_id", "described_channel": "channel_id"}  # ids
_ROLLUPS = {  # view → section, its tables, and rows of an hour
    "samples_1m": ("select_minutes", ("rollup_1m", "rollup_1m_packed"), 60),
    "samples_1h": ("select_hours", ("rollup_1h",), 1),
}


def tables(reader: ReaderConnection, source: DatabaseSamples, scans: Scans, once: bool) -> dict[str, ScannedTable]:
    """The tables by name. ``once``: whether events and rollups are read once only, for several queries that belong
    together."""
    readers = _Tables(reader, source)
    others = {
        "event": (_EVENTS, readers.events),
        **{name: readers.rollups(name) for name in _ROLLUPS},
    }
    small = {
        **{name: readers.small_table(name) for name in _WHOLE},
        **{name: readers.channel_table(name, column) for name, column in _OF_CHANNELS.items()},
    }
    return {
        "stored_samples": ScannedTable(SAMPLES, source.read, scans),
        **{name: ScannedTable(columns, read, scans) for name, (columns, read) in small.items()},
        **{
            name: ScannedTable(columns, _once(read) if once else read, scans)
            for name, (columns, read) in others.items()
        },
    }


def _once(read: Read) -> Read:
    """Reads the same rows for the same conditions."""
    rows: dict[Any, list[Any]] = {}

    def reads(scan: Scan) -> Iterator[Any]:
        key = (tuple(scan.schema.names), str(scan.condition))
        if "..." in key[1]:  # not the whole condition
            yield from read(scan)
            return
        if key not in rows:
            rows[key] = list(read(scan))
        yield from rows[key]

    return reads


class _Tables:
    def __init__(self, reader: ReaderConnection, source: DatabaseSamples) -> None:
        self._reader = reader
        self._source = source
        self._queries = load("sql")

    def _columns(self, section: str) -> Any:
        statement = self._reader.run(lambda connection: connection.prepare(self._queries[section]))
        return pa.schema([(attribute.name, _TYPES[attribute.type.name]) for attribute in statement.get_attributes()])

    def small_table(self, name: str) -> tuple[Any, Read]:
        """A table with few rows: its columns, and a function that reads it."""
        columns = self._columns(f"select_{name}")

        def read(scan: Scan) -> Iterator[Any]:
            yield _batch(self._reader.fetch_once(self._queries[f"select_{name}"]), columns, scan)

        return columns, read

    def channel_table(self, name: str, column: str) -> tuple[Any, Read]:
        """A table with channel ids in a column: its columns, and a function that reads the required rows."""
        columns = self._columns(f"select_{name}")

        def read(scan: Scan) -> Iterator[Any]:
            ids = tuple(scan.channels(self._channel_ids(), column=column)) if scan.limits(column) else None
            yield _batch(self._reader.fetch_once(self._queries[f"select_{name}"], ids), columns, scan)

        return columns, read

    def rollups(self, name: str) -> tuple[Any, Read]:
        """Rollups, which are read some channels at a time."""
        section, stored, per_hour = _ROLLUPS[name]
        columns = self._columns(section)

        def read(scan: Scan) -> Iterator[Any]:
            channels = scan.channels(self._channel_ids())
            days = self._days(stored)
            days = sorted({*days, *(day + timedelta(days=1) for day in days)})  # values hold for up to 24 hours
            for hours in scan.hours(days, "bucket"):
                size = max(1, _MAX_ROWS // (per_hour * len(hours.hours)))
                for first in range(0, len(channels), size):
                    ids = channels[first : first + size]
                    yield _batch(self._reader.fetch(self._queries[section], ids, *hours.bounds), columns, scan)

        return columns, read

    def events(self, scan: Scan) -> Iterator[Any]:
        """Reads events by the day; those that retention dropped are in the archive."""
        dropped_until = self._reader.run(lambda c: c.fetchval(self._queries["select_events_dropped_until"]))
        types = None
        if scan.mentions("type"):
            types = scan.types(row["type"] for row in self._reader.fetch_once(self._queries["select_event_types"]))
        all_hours = list(scan.hours(self._days(("event",)), "time"))
        rows = self._reader.fetch(self._queries["select_days_of_events"], [hours.day for hours in all_hours], types)
        in_database = {row["day"] for row in rows}
        for hours in all_hours:
            first, last = hours.bounds
            among = hours.day in in_database
            stored = self._reader.fetch(self._queries["select_events_of"], first, last, types) if among else []
            rows_by_key = {
                (row[0], row[1]): row for row in ((microseconds(row[0]), *row[1:]) for row in map(tuple, stored))
            }
            if dropped_until is not None and begin(hours.day) < dropped_until:
                for row in self._archived_events(hours.day):
                    if microseconds(first) <= row[0] < microseconds(last):
                        rows_by_key.setdefault((row[0], row[1]), row)
            if rows_by_key:
                yield _batch([rows_by_key[key] for key in sorted(rows_by_key)], _EVENTS, scan)

    def _archived_events(self, day: date) -> Iterator[tuple[Any, ...]]:
        for row in self._reader.fetch(self._queries["select_archived"], [day]):
            yield from self._source.days.files(row, day).rows("events")

    def _channel_ids(self) -> list[int]:
        [row] = self._reader.fetch_once(self._queries["select_channel_ids"])
        ids: list[int] = row[0]
        return ids

    def _days(self, stored: tuple[str, ...]) -> list[date]:
        return [row["day"] for row in self._reader.fetch_once(self._queries["select_days"], stored)]


def _batch(rows: Iterable[Iterable[Any]], columns: Any, scan: Scan) -> Any:
    """Rows with some columns as a batch with those of a scan."""
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [pa.array(values[columns.get_field_index(field.name)], field.type) for field in scan.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=scan.schema)
