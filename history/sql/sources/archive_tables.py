"""The tables of archives of plants, as DuckDB reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from history.codec.row_groups import TIME
from history.sql.sources.plants import EVENTS, VERSIONS, PlantArchives, schema
from history.sql.sources.samples import SAMPLES, SampleSource
from history.sql.sources.scan import Scan, ScannedTable, Scans

_FOREVER = datetime.max.replace(tzinfo=UTC)  # as the database's infinity is read
_INT, _TEXT, _FLOAT = pa.int32(), pa.string(), pa.float64()
_GAP = schema(
    id=pa.int64(),
    source_id=_INT,
    channel_id=_INT,
    from_time=TIME,
    to_time=TIME,
    reason=_TEXT,
    backfilled_at=TIME,
    detail=_TEXT,
    revision=_INT,
    opened_at=TIME,
)
_CHANNEL = schema(
    id=_INT,
    name=_TEXT,
    source_id=_INT,
    address=_TEXT,
    kind=_TEXT,
    unit=_TEXT,
    range_lo=_FLOAT,
    range_hi=_FLOAT,
    attributes=_TEXT,
)
_DESCRIBED = schema(
    channel_id=_INT,
    name=_TEXT,
    kind=_TEXT,
    unit=_TEXT,
    low=_FLOAT,
    high=_FLOAT,
    span=_FLOAT,
    unit_path=_TEXT,
    quantity=_TEXT,
    ends=TIME,
    source_id=_INT,
    source_kind=_TEXT,
    expected=_FLOAT,
    configured_at=TIME,
    wraps_at=_FLOAT,
)
_SOURCE = schema(id=_INT, name=_TEXT, kind=_TEXT, address=_TEXT, installation_id=_TEXT)
_RETIREMENT = schema(channel_id=_INT, from_time=TIME, to_time=TIME)
_QUARANTINE = schema(channel_id=_INT, received_at=TIME)


def tables(archives: PlantArchives, scans: Scans, source: SampleSource) -> dict[str, ScannedTable]:
    """The tables by name: those of history/sql/sources/tables.py but rollups."""

    def listed(schema: Any, rows: Callable[[], Iterable[Mapping[str, Any]]]) -> Callable[[Scan], Iterator[Any]]:
        def read(scan: Scan) -> Iterator[Any]:
            yield from _of_scan(pa.Table.from_pylist(list(rows()), schema), scan)

        return read

    def gaps(scan: Scan) -> Iterator[Any]:
        table = archives.gaps
        n = table.num_rows
        backfilled = pc.if_else(table["backfilled"], table["to_time"], pa.scalar(None, TIME))
        columns = {
            "id": pa.array(range(1, n + 1), pa.int64()),
            "backfilled_at": backfilled,
            **{name: table[name] for name in ("source_id", "channel_id", "from_time", "to_time", "reason", "detail")},
        }
        others = {field.name: pa.nulls(n, field.type) for field in _GAP if field.name not in columns}
        yield from _of_scan(pa.table({**columns, **others}).select(_GAP.names), scan)

    def events(scan: Scan) -> Iterator[Any]:
        for hours in scan.hours(archives.days, "time"):
            for table in archives.events(hours.day):
                yield from _of_scan(table, scan)

    def versions(scan: Scan) -> Iterator[Any]:
        yield from _of_scan(archives.versions, scan)

    def described() -> Iterator[Mapping[str, Any]]:
        return ({**row, "channel_id": row["id"], "ends": _FOREVER} for row in archives.channels)

    readers: dict[str, tuple[Any, Callable[[Scan], Iterator[Any]]]] = {
        "stored_samples": (SAMPLES, source.read),
        "gap": (_GAP, gaps),
        "event": (EVENTS, events),
        "channel": (_CHANNEL, listed(_CHANNEL, lambda: archives.channels)),
        "source": (_SOURCE, listed(_SOURCE, lambda: archives.sources)),
        "channel_version": (VERSIONS, versions),
        "described_channel": (_DESCRIBED, listed(_DESCRIBED, described)),
        "retirement": (_RETIREMENT, listed(_RETIREMENT, tuple)),
        "quarantine": (_QUARANTINE, listed(_QUARANTINE, tuple)),
    }
    return {name: ScannedTable(schema, read, scans) for name, (schema, read) in readers.items()}


def _of_scan(table: Any, scan: Scan) -> Iterator[Any]:
    selected = table.select(scan.schema.names).cast(scan.schema)
    yield from selected.to_batches() or [pa.RecordBatch.from_pylist([], scan.schema)]
