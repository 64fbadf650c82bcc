"""Reads an archive as Arrow tables: samples, curves and gaps of channels in an interval, whatever days it spans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.errors import OperationError
from core.patterns import Patterns, no_match, unmatched
from core.samples import Samples, changes
from core.status_codes import BAD
from core.timestamps import microseconds, touched
from history.archive.day_files import DayFiles
from history.archive.location import Location, S3Options
from history.archive.manifest import DayFolder, Manifest, archived_days, read_manifest
from history.archive.meanings import TEXT, Meanings
from history.archive.parquet_writers import table_of
from history.archive_days.verify import proof_of
from history.codec.row_groups import TIME

SAMPLES = pa.schema(
    [
        pa.field("channel_id", pa.int32(), nullable=False),
        pa.field("time", TIME, nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("status", pa.uint32(), nullable=False),
        pa.field("name", TEXT),
        pa.field("unit", TEXT),
    ]
)

_KEYS = [SAMPLES.field("channel_id"), SAMPLES.field("name"), SAMPLES.field("unit"), SAMPLES.field("time")]
_VALUES = [pa.field(name, pa.float64()) for name in ("min", "sum", "max")]
_TIMES = [pa.field(name, TIME) for name in ("first_good", "last_good", "last")]
_COUNTS = [pa.field(name, pa.int64(), nullable=False) for name in ("n", "n_good")]
_PARTS = pa.schema([*_KEYS, *_VALUES, *_TIMES, *_COUNTS])
GAPS = pa.schema(
    [
        pa.field("channel_id", pa.int32(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("from_time", TIME, nullable=False),
        pa.field("to_time", TIME, nullable=False),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
        pa.field("backfilled", pa.bool_()),
    ]
)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Archive:
    """The archived days of one installation."""

    location: Location
    installation: UUID

    @classmethod
    def open(cls, name: str, installation: UUID | None = None, s3: S3Options | None = None) -> Archive:
        """``name``: a folder or ``s3://BUCKET/PATH``; ``installation``: required if there are several.

        Raises OperationError, also if no day of it is archived there.
        """
        location = Location.at(name, s3)
        installations = list(archived_days(location))
        chosen = installations[0] if installation is None and len(installations) == 1 else installation
        if chosen not in installations:
            legal = f"one of {', '.join(map(str, installations))}" if installations else "a location with archived days"
            raise OperationError(f"archive {name}: installation: found {chosen or 'none given'}; legal: {legal}")
        return cls(location, chosen)

    def days(self) -> list[date]:
        """The archived days, ascending."""
        return archived_days(self.location, self.installation).get(self.installation, [])

    def days_between(self, since: datetime, until: datetime) -> list[date]:
        """Days that have samples of an interval."""
        return touched(self.days(), since, until)

    def manifest(self, day: date) -> Manifest:
        """Manifest of an archived day. Raises OperationError."""
        return read_manifest(self.location, DayFolder(self.installation, day))

    def channels(self, day: date) -> Any:
        """The channels as of a day, a row for each meaning (docs/archive.md). Raises OperationError."""
        return self._files(day).channels()

    def channels_of(self, day: date, channels: Sequence[int | str]) -> Any:
        """The rows of :meth:`channels` of some channels: ids, or names with ``*``. Raises OperationError."""
        table = self.channels(day)
        ids = _chosen(table, channels)
        return table.filter(pc.is_in(table["channel_id"], pa.array(sorted(ids), pa.int32())))

    def kinds(self, channels: int | str | Iterable[int | str], since: datetime, until: datetime) -> dict[str, str]:
        """Names of channels in an interval, in order, and their kinds. Raises OperationError as :meth:`samples`."""
        chosen, days = _listed(channels), self.days_between(since, until)
        tables = [self.channels_of(day, chosen).select(["channel_id", "name", "kind"]) for day in days]
        if tables:
            self._require_known(chosen, pa.concat_tables(tables))
        return dict(
            sorted(pair for table in tables for pair in zip(*(table[i].to_pylist() for i in (1, 2)), strict=True))
        )

    def samples_of(self, day: date, ids: Sequence[int], within: tuple[int, int]) -> list[tuple[int, Samples]]:
        """Channels with their samples of a day, by time. ``within``: since and until (µs). Raises OperationError."""
        return self._of_day(day, lambda files: list(files.between(ids, *within)))

    def samples(self, channels: int | str | Iterable[int | str], since: datetime, until: datetime) -> Any:
        """An Arrow table of the samples with since <= time < until, sorted by day, channel and time.

        ``name`` and ``unit`` are those that the channel had at the time.
        ``channels``: ids, or names as of each day, in which ``*`` stands for any text; or one. Raises OperationError if
        a file is missing, damaged, or another one, and for channels that no archived day has; a day that is not
        archived has no samples.
        """
        return self._table(_listed(channels), since, until, SAMPLES, _batch).unify_dictionaries()

    def series(self, channels: int | str | Iterable[int | str], since: datetime, until: datetime, step: int) -> Any:
        """An Arrow table of curves: for each channel and bucket with samples, ``min``, ``avg`` and ``max`` of the good
        ones (null: there are none), their number ``n_good``, and ``n``, that of all. Buckets begin at multiples of
        ``step`` (µs); one in which the name or unit changes has a row of each.

        By channel and time. Raises OperationError as :meth:`samples`.
        """
        return self.buckets(channels, since, until, step).drop_columns([field.name for field in _TIMES])

    def buckets(self, channels: int | str | Iterable[int | str], since: datetime, until: datetime, step: int) -> Any:
        """The table of :meth:`series`, and the times of the ``first_good`` and the ``last_good`` sample (null: there is
        none) and of the ``last`` one."""
        parts = self._table(_listed(channels), since, until, _PARTS, partial(_buckets, step))
        keys = [field.name for field in _KEYS]
        merges = [(name, "min") for name in ("min", "first_good")]
        merges += [(name, "max") for name in ("max", "last_good", "last")]
        merges += [(name, "sum") for name in ("sum", "n", "n_good")]
        table = parts.unify_dictionaries().group_by(keys, use_threads=False).aggregate(merges)
        averages = pc.divide(table["sum_sum"], table["n_good_sum"])  # null, where the sum is
        columns = {
            **{name: table[name] for name in keys},
            **{"min": table["min_min"], "avg": averages, "max": table["max_max"]},
            **{"first_good": table["first_good_min"], "last_good": table["last_good_max"], "last": table["last_max"]},
            **{"n": table["n_sum"], "n_good": table["n_good_sum"]},
        }
        return pa.table(columns).sort_by([("channel_id", "ascending"), ("time", "ascending")])

    def gaps(self, channels: int | str | Iterable[int | str], since: datetime, until: datetime) -> Any:
        """An Arrow table of the recorded gaps of channels that overlap since <= time < until, by channel and time.

        A gap of a whole source is one of each of its channels. Names are those of the last day. An open gap lasts until
        the end of the last archived day. Raises OperationError as :meth:`samples`.
        """
        chosen, bounds = _listed(channels), (microseconds(since), microseconds(until))
        gaps: dict[tuple[int, int, str], tuple[Any, ...]] = {}
        names: dict[int, str] = {}
        for day in self.days_between(since, until):
            names_of_day, rows = self._of_day(day, lambda files: _gaps_of_day(files, chosen))
            names |= names_of_day
            gaps |= {(row[0], row[1], row[3]): row for row in rows if row[1] < bounds[1] and row[2] > bounds[0]}
        self._require_known(chosen, pa.table({"channel_id": [*names], "name": [*names.values()]}))
        rows = [(number, names[number], *rest) for number, *rest in (gaps[key] for key in sorted(gaps))]
        return table_of(rows, GAPS)

    def _table(
        self,
        chosen: Sequence[int | str],
        since: datetime,
        until: datetime,
        schema: Any,
        make: Callable[[Samples, Meanings], Any],
    ) -> Any:
        """Batches that are made of the samples of a channel and day, as a table."""
        bounds = microseconds(since), microseconds(until)

        def read(files: DayFiles) -> list[Any]:
            channels = files.channels()
            meanings = Meanings.of_day(channels)
            return [make(samples, meanings) for _, samples in files.between(_chosen(channels, chosen), *bounds)]

        batches = [batch for day in self.days_between(since, until) for batch in self._of_day(day, read)]
        table = pa.Table.from_batches(batches, schema)
        self._require_known(chosen, table)
        return table

    def _require_known(self, chosen: Sequence[int | str], table: Any) -> None:
        """Raise OperationError for channels that neither a table nor an archived day has."""
        read = table.select(["channel_id", "name"]).unify_dictionaries().group_by(["channel_id", "name"]).aggregate([])
        unknown = _unknown([channel for channel in chosen if channel != "*"], read)
        days = reversed(self.days())
        while unknown and (day := next(days, None)) is not None:
            unknown = _unknown(unknown, self.channels(day))
        if unknown:
            raise no_match(f"archive {self.location.name}: channels", unknown)

    def _of_day(self, day: date, read: Callable[[DayFiles], Result]) -> Result:
        """Contents of a day. If the day is replaced while it is read, the new files are read instead."""
        while True:
            files = self._files(day)
            try:
                return read(files)
            except OperationError:
                if self.manifest(day) == files.manifest:
                    raise

    def _files(self, day: date) -> DayFiles:
        return DayFiles(self.location, DayFolder(self.installation, day), self.manifest(day))


def _chosen(table: Any, channels: Sequence[int | str]) -> set[int]:
    """The ids of the channels that are wanted."""
    ids = {channel for channel in channels if isinstance(channel, int)}
    wanted = Patterns(channel for channel in channels if isinstance(channel, str))
    names = zip(table.column("channel_id").to_pylist(), table.column("name").to_pylist(), strict=True)
    return ids | {number for number, name in names if name in wanted}


def _unknown(channels: Sequence[int | str], table: Any) -> list[int | str]:
    """The channels that a table does not have."""
    ids = set(table.column("channel_id").to_pylist())
    names = (name for name in table.column("name").to_pylist() if name is not None)
    missing = set(unmatched((channel for channel in channels if isinstance(channel, str)), names))
    return [one for one in channels if (one not in ids if isinstance(one, int) else one in missing)]


def _listed(channels: int | str | Iterable[int | str]) -> list[int | str]:
    return [channels] if isinstance(channels, int | str) else list(channels)


def _gaps_of_day(files: DayFiles, chosen: Sequence[int | str]) -> tuple[dict[int, str], list[tuple[Any, ...]]]:
    """Channel id → name, of the channels; and their gaps: channel id, then the fields from from_time on."""
    channels = files.channels(("channel_id", "name", "source"))
    ids = _chosen(channels, chosen)
    numbers, labels, sources = (channels[name].to_pylist() for name in ("channel_id", "name", "source"))
    names = dict(zip(numbers, labels, strict=True))
    rows = files.rows("gaps")
    of_source: dict[int, set[int]] = {}
    if any(channel is None for _, channel, *_ in rows):
        source_ids = {source["name"]: source["id"] for source in proof_of(files.location, files.manifest).sources}
        for number, source in zip(numbers, sources, strict=True):
            of_source.setdefault(source_ids.get(source, 0), set()).add(number)
    return {number: name for number, name in names.items() if number in ids}, [
        (number, *gap)
        for source, channel, *gap in rows
        for number in (of_source.get(source, set()) if channel is None else {channel})
        if number in ids and number in names
    ]


def _buckets(step: int, samples: Samples, meanings: Meanings) -> Any:
    """Buckets of a channel and day as a batch of _PARTS."""
    time, value = samples.time, samples.value
    good = (samples.status < BAD) & ~np.isnan(value)
    number = time // step
    meaning = meanings.columns(samples.channel, time)
    row = meaning["unit"].indices.fill_null(-1).to_numpy()
    first = np.flatnonzero(changes(number) | changes(row))
    lengths = np.diff(np.append(first, len(time)))
    n_good = np.add.reduceat(good.astype(np.int64), first) if len(first) else np.empty(0, np.int64)

    def reduced(reduce: np.ufunc, column: Any, neutral: float) -> Any:
        """Reduction of the good samples of each bucket; null: there are none."""
        of_good = np.where(good, column, column.dtype.type(neutral))
        parts = reduce.reduceat(of_good, first) if len(first) else of_good
        return pa.array(parts, pa.from_numpy_dtype(column.dtype), mask=n_good == 0)

    bounds = np.iinfo(np.int64)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(samples.channel[first]),
            *(meaning[name].take(pa.array(first)) for name in ("name", "unit")),
            pa.array(number[first] * step).cast(TIME),
            reduced(np.minimum, value, np.inf),
            reduced(np.add, value, 0),
            reduced(np.maximum, value, -np.inf),
            reduced(np.minimum, time, bounds.max).cast(TIME),
            reduced(np.maximum, time, bounds.min).cast(TIME),
            pa.array(time[first + lengths - 1]).cast(TIME),
            *(pa.array(counts, pa.int64()) for counts in (lengths, n_good)),
        ],
        schema=_PARTS,
    )


def _batch(samples: Samples, meanings: Meanings) -> Any:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(samples.channel),
            pa.array(samples.time, pa.int64()).cast(TIME),
            pa.Array.from_buffers(
                pa.float64(), len(samples), [None, pa.py_buffer(np.ascontiguousarray(samples.value))]
            ),
            pa.array(samples.status, pa.uint32()),
            *meanings.columns(samples.channel, samples.time).values(),
        ],
        schema=SAMPLES,
    )
