"""The samples of archive and database together, each once.

Those of a channel and day come from the archive if all that is stored of them is there, by the rule by which retention
may drop them; from the database if the day is not archived; else from both, as ``plantlog evidence verify`` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from datetime import date, datetime, timedelta
from typing import Any

import asyncpg
import numpy as np

from core.errors import OperationError
from core.paths import State
from core.samples import Samples
from core.timestamps import begin
from history.archive.archived_days import ArchivedDays
from history.archive.channel_table import places_of
from history.archive.meanings import Meanings
from history.reading.day_samples import DaySamples
from history.sql.sources.held import HELD_US
from history.sql.sources.portion import ArchivedDay, Day, unknown_size
from history.sql.sources.reader import ReaderConnection
from history.sql.sources.samples import SampleSource
from history.sql.sources.scan import Hours, Scan
from schema.queries import load

_TABLES = ("samples_raw", "samples_packed")


class DatabaseSamples(SampleSource):
    """Reads samples of archive and database."""

    def __init__(
        self, reader: ReaderConnection, state: State, executor: Executor, threads: Executor, at_a_time: int
    ) -> None:
        """``state``: the appliance's; the others as of :class:`SampleSource`."""
        super().__init__(executor, threads, at_a_time)
        self._reader = reader
        self.days = ArchivedDays(state.root)

    def _dropped_before(self, channel: int, before: datetime) -> bool:
        """Return whether an archived day of which samples were dropped has one of a channel before a time."""
        for dropped in self._reader.fetch_once(load("sql")["select_dropped_days"], before):
            for row in self._archived([dropped["day"]])[dropped["day"]]:
                if channel in places_of(self.days.places(self.days.files(row, dropped["day"])), [channel]) and (
                    begin(dropped["day"], 24) <= before
                    or self.first(channel, begin(dropped["day"]), before) is not None
                ):
                    return True
        return False

    def matching(self, patterns: Sequence[str]) -> list[int]:
        """Channels that have one of these names, in which ``*`` stands for any text."""
        ids: list[int] = self._value("select_matching_channels", patterns)
        return ids

    def shortest_interval(self, patterns: Sequence[str] | None) -> float | None:
        """The shortest one (s) in which a channel of such a name is expected to be read; None: there is none."""
        shortest: float | None = self._value("select_shortest_interval", patterns)
        return shortest

    def quarantined_channels(self, since: datetime, until: datetime) -> list[int]:
        """Channels of which samples were quarantined with since <= time < until."""
        return self._value("select_quarantined_channels", since, until) or []

    def have_sample_before(self, channels: Sequence[int | None], times: Sequence[datetime | None]) -> list[bool | None]:
        """Return whether each channel has a sample before its time: 1 ms each. None: it is not known."""
        rows = self._reader.fetch(load("sql")["select_have_sample_before"], channels, times)
        return [
            stored or (self._dropped_before(channel, time) if channel and time else None)
            for channel, time, (stored,) in zip(channels, times, rows, strict=True)
        ]

    def held_text(self, channel: int, before: datetime) -> str | None:
        """The last text of a channel before a time, if there is one in the month before: 1 ms."""
        since = before - timedelta(microseconds=HELD_US)
        rows = self._reader.fetch(load("sql")["select_held_text"], channel, since, before)
        return rows[0]["text"] if rows else None

    def _value(self, section: str, *arguments: Any) -> Any:
        """Value of the only row of a query."""
        [row] = self._reader.fetch_once(load("sql")[section], *arguments)
        return row[0]

    def _meanings(self) -> Callable[[date], Meanings]:
        """Meanings of channels by the day."""
        meanings = Meanings([tuple(row) for row in self._reader.fetch(load("sql")["select_meanings"])])
        return lambda _: meanings

    def _days(self) -> dict[date, bool]:
        """Day → whether the database may have samples of it."""
        rows = self._reader.fetch(load("sql")["select_days"], _TABLES)
        return {row["day"]: row["in_database"] for row in rows}

    def _placed(
        self,
        scan: Scan,
        meanings_of: Callable[[date], Meanings],
        hours: Sequence[Hours],
        in_database: Mapping[date, bool],
    ) -> Iterator[Day]:
        """Days, of which the next one is looked at when it is needed; what is archived is looked up for all at once."""
        archived = self._archived([hours_of_day.day for hours_of_day in hours])
        for hours_of_day in hours:
            day = hours_of_day.day
            yield self._day(scan, meanings_of(day), hours_of_day, archived[day], in_database[day])

    def _day(
        self, scan: Scan, meanings: Meanings, hours: Hours, archived: Sequence[asyncpg.Record], in_database: bool
    ) -> Day:
        rows = self._reader.fetch(load("evidence")["select_channels"], *hours.bounds) if in_database else []
        sizes = {row["channel_id"]: unknown_size(hours) if row["n"] is None else row["n"] for row in rows}
        stored = set(scan.channels(sizes, meanings.of_channel))
        parts = [self._parts(scan, meanings, hours.day, row, stored) for row in archived]
        archived_channels = {number for part in parts for number in (*part.archived, *part.merged)}
        live = {number: sizes[number] for number in stored - archived_channels}
        return Day(hours, parts, live, _dropped(archived))

    def _others(self, day: Day, within: tuple[int, int]) -> Iterator[Samples]:
        """The samples of a day that are not read in the archive only, of a channel at a time."""
        live = DaySamples(self._reader.connection, day.hours.day), day.live
        sources = [live, *((part.samples, part.merged) for part in day.parts)]
        for samples, channels in sources:
            if samples is None or not channels:
                continue
            for of_channel in self._read(samples, sorted(channels), day.hours.hours).values():
                first, last = np.searchsorted(of_channel.time, within).tolist()
                if first < last:
                    yield of_channel.part(slice(first, last))

    def _read(self, samples: DaySamples, channels: Sequence[int], hours: range) -> dict[int, Samples]:
        """The samples of channels, all at once: days are divided by channels so that they fit into memory."""
        return self._reader.run(lambda _: samples.read(channels, hours))

    def _require_kept(self, dropped: Mapping[date, dict[int, list[int]]]) -> None:
        """Raise OperationError if more was dropped of the days since: it was read neither here nor there, perhaps."""
        for day, rows in self._archived(list(dropped)).items():
            if _dropped(rows) != dropped[day]:
                raise OperationError(f"samples of {day} were dropped while they were read: run the query again")

    def _archived(self, days: Sequence[date]) -> dict[date, list[asyncpg.Record]]:
        rows: dict[date, list[asyncpg.Record]] = {day: [] for day in days}
        for row in self._reader.fetch(load("sql")["select_archived"], days):
            rows[row["day"]].append(row)
        return rows

    def _parts(self, scan: Scan, meanings: Meanings, day: date, row: asyncpg.Record, stored: set[int]) -> ArchivedDay:
        files, whole_channels = self.days.files(row, day), frozenset(row["whole"])
        table = self.days.places(files)
        channels = scan.channels({*table["channel_id"].to_pylist(), *whole_channels}, meanings.of_channel)
        places = places_of(table, channels)
        same_rows = self._reader.fetch(load("sql")["select_in_archive"], day, row["number"], channels) if stored else []
        same_channels = {same["channel_id"] for same in same_rows}
        merged = {
            number
            for number in channels
            if number not in same_channels and (number in whole_channels or number in stored)
        }
        archived = {number: places[number] for number in channels if number in places and number not in merged}
        samples = DaySamples(self._reader.connection, day, files, whole_channels)
        return ArchivedDay.of_files(archived, frozenset(merged), files, samples)


def _dropped(rows: Sequence[asyncpg.Record]) -> dict[int, list[int]]:
    """Samples that retention dropped of a day: by installation, the channels that the database still has whole."""
    return {row["number"]: row["whole"] for row in rows if row["dropped"]}
