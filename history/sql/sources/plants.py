"""Archives of several plants as DuckDB reads them: what the database of each would say is in the files of its days.

Names carry the plant, ``PLANT/…``. Ids are those of each plant, moved so that no two are equal. They stay the same as
long as the file of plants lists the same ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.errors import OperationError
from core.formatting import count
from core.patterns import Patterns
from core.timestamps import begin
from history.archive.channel_table import PLACE
from history.archive.meanings import Meanings
from history.archive_days.plants import REQUESTS
from history.codec.row_groups import TIME
from history.sql.sources.execution import Limits, in_order
from history.standalone import schema_of

if TYPE_CHECKING:
    from history.archive.day_files import DayFiles
    from history.archive_days.plants import Plant, Plants

_IDS = 2**31 - 1
EVENTS, _GAPS = schema_of("events"), schema_of("gaps")
_GAP_KEY = ["source_id", "channel_id", "from_time"]
NOT_ARCHIVED = "not_archived"  # reason of a gap
_SUBMITTED = 4 * REQUESTS  # days at a time, of which some wait
_MAX_CACHED = 10_000_000  # channels of days, of 30 bytes each
_DAY = timedelta(days=1)


def schema(**columns: Any) -> Any:
    """Schema of these columns."""
    return pa.schema([*columns.items()])


VERSIONS = schema(channel_id=pa.int32(), valid_from=TIME, valid_to=TIME, name=pa.string(), unit=pa.string())


class PlantArchives:
    """Channels, sources, gaps and events of the plants, from the files of some of their days."""

    def __init__(
        self,
        plants: Plants,
        since: datetime | None = None,
        until: datetime | None = None,
        limits: Limits | None = None,
    ) -> None:
        """``since``, ``until``: the time that is read (None: all that is archived). ``limits``: those of whoever waits.

        Raises OperationError, also where their time is up.
        """
        self.questions = plants.questions
        self._plants = plants
        self._limits = limits
        self._first = None if since is None else since.date()
        self._last = None if until is None else (until - timedelta(microseconds=1)).date()
        self._size = _IDS // plants.n
        self._cached: dict[tuple[Plant, date], Any] = {}
        self._turn = Lock()  # DuckDB's threads read at the same time
        plants.read(self._all(), lambda: None if limits is None else limits.require_time())

    @property
    def days(self) -> list[date]:
        """All days that a plant has archived, ascending."""
        return sorted({day for plant in self._plants.plants for day in self._plants.days(plant)})

    @property
    def rate(self) -> float:
        """Samples a second of a channel, at most."""
        manifests = [self._plants.manifest(plant, day) for plant, day in self._all()]
        return max((each.samples / 86400 / max(1, each.channels) for each in manifests), default=1.0)

    def notes(self, begins: datetime | None = None) -> Iterator[str]:
        """Lines for people: what is not archived, of the days from a time on."""
        first = date.min if begins is None else begins.date()
        for plant in self._plants.plants:
            if plant.keys is None:
                yield f"{plant.label}the seals are compared with no key of the plant's: any plant's would do"
            days = self._plants.days(plant)
            missing = sum(max(0, (until - max(since, first)).days) for since, until in self._missing(plant))
            if missing:
                yield (
                    f"{plant.label}gaps with the reason {NOT_ARCHIVED} stand for {count(missing, 'day')} of the "
                    f"time that is read: the archive has {count(len(days), 'day')} from {days[0]} to {days[-1]}"
                )

    def tables(self, days: Iterable[date], channel: int | None = None) -> dict[tuple[Plant, date], Any]:
        """The tables of channels (``PLACE``) of days, which are read several at a time. ``channel``: as of places."""
        keys = [(plant, day) for day in days for plant in self._of_day(day, channel)]
        with self._turn:
            missing = [key for key in keys if key not in self._cached]
            if missing and sum(map(len, self._cached.values())) > _MAX_CACHED:
                self._cached.clear()
                missing = keys
            self._cached.update(zip(missing, self._read_places(missing), strict=True))
            return {key: self._cached[key] for key in keys}

    def places(self, day: date, channel: int | None = None) -> Iterator[tuple[int, DayFiles, Any]]:
        """The plants that archived a day, each with the table of its channels that have samples (``PLACE``).

        ``channel``: only its plant.
        """
        for (plant, _), table in self.tables([day], channel).items():
            yield self._offset(plant), self._plants.files(plant, day), table.filter(pc.field("samples") > 0)

    def meanings(self, day: date) -> Meanings:
        """Names and units of all channels on a day."""
        tables = [self._meanings(plant, day) for plant in self._of_day(day)]
        return Meanings.of_day(pa.concat_tables(tables))

    def matching(self, patterns: Sequence[str] | None) -> list[int]:
        """Channels that have one of these names, in which ``*`` stands for any text (None: all)."""
        wanted = Patterns(patterns)
        return [row["id"] for row in self.channels if row["name"] in wanted]

    @cached_property
    def channels(self) -> list[dict[str, Any]]:
        """The channels as they were on the last day that has them, ascending by id."""
        rows = dict[int, dict[str, Any]]()
        tables = self.tables(sorted({day for _, day in self._all()}))
        for plant in self._plants.plants:
            sources, kinds = self._source_ids(plant), {row["id"]: row["kind"] for row in self.sources}
            days, begun = self._days(plant), dict[int, date]()
            lasting: set[int] | None = None  # channels that all later days have
            for day in reversed(days):
                numbers = {*tables[plant, day]["channel_id"].to_pylist()}
                lasting = numbers if lasting is None else lasting & numbers
                begun.update(dict.fromkeys(lasting, day))
                if rows.keys() >= numbers:
                    continue
                files = self._plants.files(plant, day)
                known = set(rows)
                for row in self._moved(files.channels(), plant, "channel_id").to_pylist():  # the last meaning counts
                    if row["channel_id"] not in known:
                        source = sources.get(row["source"])
                        rows[row["channel_id"]] = _channel(row, plant.prefix, source, kinds.get(source))
            for number, day in begun.items():
                if day > days[0]:  # when on that day is not known: at its end, or before a sample
                    rows[number]["configured_at"] = begin(day, 24)
        return [rows[number] for number in sorted(rows)]

    @cached_property
    def sources(self) -> list[dict[str, Any]]:
        """The sources as they were on the last day that has them, ascending by id."""
        rows = dict[int, dict[str, Any]]()
        for plant, day in self._all():
            for source in self._plants.proof(plant, day).sources:
                number = source["id"] + self._offset(plant)
                rows[number] = {
                    "id": number,
                    "name": f"{plant.prefix}{source['name']}",
                    "kind": source["kind"],
                    "address": source["address"],
                    "installation_id": str(plant.installation),
                }
        return [rows[number] for number in sorted(rows)]

    @cached_property
    def versions(self) -> Any:
        """Names and units of channels over time, a row for each change."""
        if not (days := self._all()):
            return VERSIONS.empty_table()
        tables = [self._meanings(plant, day) for plant, day in days]
        table = pa.concat_tables(tables).sort_by([("channel_id", "ascending"), ("valid_from", "ascending")])
        if not table.num_rows:
            return table
        same = np.ones(table.num_rows - 1, np.bool_)
        for name in ("channel_id", "name", "unit"):
            column = table[name].combine_chunks()
            same &= pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
        starts = np.flatnonzero(np.concatenate([[True], ~same]))
        ends = np.append(starts[1:], table.num_rows) - 1
        rows = table.take(pa.array(starts))
        return rows.set_column(rows.schema.get_field_index("valid_to"), "valid_to", table["valid_to"].take(ends))

    @cached_property
    def gaps(self) -> Any:
        """Gaps of all days, each once, and those of days that are not archived."""
        tables = [self._rows(plant, self._plants.files(plant, day), "gaps") for plant, day in self._all()]
        tables += [_missing_gaps(self._source_ids(plant), self._missing(plant)) for plant in self._plants.plants]
        table = pa.concat_tables([_GAPS.empty_table(), *tables])
        whole = table.group_by(_GAP_KEY, use_threads=False).aggregate(
            [("to_time", "last"), ("reason", "last"), ("detail", "last"), ("backfilled", "last")]
        )
        names = [name.removesuffix("_last") for name in whole.schema.names]
        return whole.rename_columns(names).sort_by([(name, "ascending") for name in ("from_time", *_GAP_KEY[:2])])

    def events(self, day: date, channel: int | None = None) -> Iterator[Any]:
        """Tables of the events of a day. ``channel``: only of its plant."""
        for plant in self._of_day(day, channel):
            yield self._rows(plant, self._plants.files(plant, day), "events")

    def _read_places(self, days: Iterable[tuple[Plant, date]]) -> Iterator[Any]:
        """The table of channels of each day, several at a time. Raises OperationError if time is up."""
        with ThreadPoolExecutor(REQUESTS) as threads:
            for table in in_order(lambda day: threads.submit(self._places, *day), days, _SUBMITTED):
                if self._limits is not None:
                    self._limits.require_time()
                yield table

    def _of_day(self, day: date, channel: int | None = None) -> list[Plant]:
        """The plants that archived a day. ``channel``: only its plant."""
        number = None if channel is None else channel // self._size
        plants = (plant for plant in self._plants.plants if number is None or number == plant.number)
        return [plant for plant in plants if day in self._plants.days(plant)]

    def _days(self, plant: Plant) -> list[date]:
        """Archived days of the time that is read, ascending."""
        return [
            day
            for day in self._plants.days(plant)
            if (self._first is None or day >= self._first) and (self._last is None or day <= self._last)
        ]

    def _all(self) -> list[tuple[Plant, date]]:
        return [(plant, day) for plant in self._plants.plants for day in self._days(plant)]

    def _missing(self, plant: Plant) -> list[tuple[date, date]]:
        """Intervals of the time that is read without archived days: the first one, and the one after the last."""
        days = self._plants.days(plant)
        first, last = self._first or days[0], self._last or days[-1]
        present = {*self._days(plant)}
        missing = [first + _DAY * i for i in range((last - first).days + 1) if first + _DAY * i not in present]
        intervals: list[tuple[date, date]] = []
        for day in missing:
            if intervals and intervals[-1][1] == day:
                intervals[-1] = intervals[-1][0], day + _DAY
            else:
                intervals.append((day, day + _DAY))
        return intervals

    def _source_ids(self, plant: Plant) -> dict[str, int]:
        proofs = [self._plants.proof(plant, day) for day in self._days(plant) or self._plants.days(plant)[-1:]]
        return {row["name"]: row["id"] + self._offset(plant) for proof in proofs for row in proof.sources}

    def _offset(self, plant: Plant) -> int:
        return plant.number * self._size

    def _moved(self, table: Any, plant: Plant, *columns: str) -> Any:
        for name in columns:
            ids = table[name]
            if (pc.max(ids).as_py() or 0) >= self._size:
                raise OperationError(f"{plant.label}found {name} {pc.max(ids)}; legal: below {self._size:,}")
            moved = pc.add(ids, pa.scalar(self._offset(plant), pa.int32()))
            table = table.set_column(table.schema.get_field_index(name), name, moved)
        return table

    def _places(self, plant: Plant, day: date) -> Any:
        table = self._moved(self._plants.files(plant, day).channels(PLACE), plant, "channel_id")
        paths = table["file"].dictionary_encode()  # a path has a hundred bytes, and many channels
        return table.set_column(table.schema.get_field_index("file"), "file", paths)

    def _rows(self, plant: Plant, files: DayFiles, kind: Any) -> Any:
        [file] = files.manifest.of_table(kind)
        schema = EVENTS if kind == "events" else _GAPS
        with files.opened(file) as parquet:
            return self._moved(parquet.read(schema.names), plant, "source_id", "channel_id").cast(schema)

    def _meanings(self, plant: Plant, day: date) -> Any:
        table = self._moved(self._plants.files(plant, day).channels(VERSIONS.names), plant, "channel_id")
        named = pc.binary_join_element_wise(plant.prefix, table["name"], "")
        return table.set_column(table.schema.get_field_index("name"), "name", named)


def _channel(row: Mapping[str, Any], prefix: str, source: int | None, kind: str | None) -> dict[str, Any]:
    """A row of the tables ``channel`` and ``described_channel``. ``row``: of the table of channels of a day."""
    attributes = json.loads(row["attributes"] or "{}")
    low, high = row["range_lo"], row["range_hi"]
    name = f"{prefix}{row['name']}"
    return {
        "id": row["channel_id"],
        "name": name,
        "source_id": source,
        "source_kind": kind,
        "address": row["address"],
        "kind": row["kind"],
        "unit": row["unit"],
        "range_lo": low,
        "range_hi": high,
        "low": low,
        "high": high,
        "span": high - low if low is not None and high is not None and high > low else None,
        "attributes": row["attributes"],
        "unit_path": f"{prefix}{row['plant_unit'] or row['name']}",  # a name of one part is its own unit
        "quantity": name.rpartition("/")[2],
        "expected": attributes.get("expected_interval"),
        "wraps_at": attributes.get("wraps_at"),
    }


def _missing_gaps(sources: Mapping[str, int], intervals: Sequence[tuple[date, date]]) -> Any:
    rows = [
        {
            "source_id": source,
            "channel_id": None,
            "from_time": begin(since),
            "to_time": begin(until),
            "reason": NOT_ARCHIVED,
            "detail": None,
            "backfilled": False,
        }
        for source in sources.values()
        for since, until in intervals
    ]
    return pa.Table.from_pylist(rows, _GAPS)
