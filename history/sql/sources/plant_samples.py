"""The samples of archives of plants, as DuckDB reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from datetime import date, datetime
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from core.samples import Samples
from core.timestamps import begin, microseconds
from history.archive.channel_table import places_of
from history.archive.meanings import Meanings
from history.codec.row_groups import TIME
from history.sql.sources.held import HELD_US
from history.sql.sources.plants import PlantArchives
from history.sql.sources.portion import ArchivedDay, Day
from history.sql.sources.samples import SampleSource
from history.sql.sources.scan import Hours, Scan, hours_within


class PlantSamples(SampleSource):
    """Reads the samples of the plants, as rows or by kernels."""

    def __init__(self, archives: PlantArchives, executor: Executor, threads: Executor, at_a_time: int) -> None:
        """Read by these executors, so many portions at a time."""
        super().__init__(executor, threads, at_a_time)
        self._archives = archives

    def matching(self, patterns: Sequence[str]) -> list[int]:
        """Channels that have one of these names, in which ``*`` stands for any text."""
        return self._archives.matching(patterns)

    def shortest_interval(self, patterns: Sequence[str] | None) -> float | None:
        """The shortest one (s) in which a channel of such a name is expected to be read; None: there is none."""
        ids = set(self._archives.matching(patterns))
        channels = (row for row in self._archives.channels if row["id"] in ids)
        return min((row["expected"] for row in channels if row["expected"]), default=None)

    def quarantined_channels(self, since: datetime, until: datetime) -> list[int]:
        """None: a quarantine is not archived."""
        return []

    def have_sample_before(self, channels: Sequence[int | None], times: Sequence[datetime | None]) -> list[bool | None]:
        """Return whether each channel has a sample before its time, on any archived day. None: it is not known."""
        return [
            None if channel is None or time is None else self._has_before(channel, time)
            for channel, time in zip(channels, times, strict=True)
        ]

    def _has_before(self, channel: int, before: datetime) -> bool:
        for day in reversed(self._archives.days):
            if begin(day) >= before:
                continue
            has_samples = any(places_of(table, [channel]) for _, _, table in self._archives.places(day, channel))
            if has_samples and (begin(day, 24) <= before or self.first(channel, begin(day), before) is not None):
                return True
        return False

    def held_text(self, channel: int, before: datetime) -> str | None:
        """The last text of a channel before a time, if there is one on the archived days of the month before."""
        until = microseconds(before)
        since = until - HELD_US
        first, last = (pa.scalar(bound, pa.int64()).cast(TIME) for bound in (since, until))
        for hours in hours_within(reversed(self._archives.days), since, until):
            for table in self._archives.events(hours.day, channel):
                is_text = (pc.field("channel_id") == channel) & (pc.field("type") == "text")
                is_good = pc.coalesce(pc.field("status"), pa.scalar(0, pa.int32())) >= 0
                is_within = (pc.field("time") >= first) & (pc.field("time") < last)
                texts = table.filter(is_text & is_good & is_within).sort_by("time")["text"]
                if len(texts):
                    return str(texts[-1])
        return None

    def _meanings(self) -> Callable[[date], Meanings]:
        return cache(self._archives.meanings)

    def _days(self) -> dict[date, bool]:
        return dict.fromkeys(self._archives.days, False)

    def _placed(
        self,
        scan: Scan,
        meanings_of: Callable[[date], Meanings],
        hours: Sequence[Hours],
        in_database: Mapping[date, bool],
    ) -> Iterator[Day]:
        self._archives.tables(hours_of_day.day for hours_of_day in hours)  # several at a time
        return (self._plant_day(scan, meanings_of(hours_of_day.day), hours_of_day) for hours_of_day in hours)

    def _plant_day(self, scan: Scan, meanings: Meanings, hours: Hours) -> Day:
        of_day, parts = replace(scan, _known={}), []  # names may be others on the next day
        for offset, files, table in self._archives.places(hours.day):
            channels = of_day.channels(table["channel_id"].to_pylist(), meanings.of_channel)
            if places := places_of(table, channels):
                parts.append(ArchivedDay.of_files(places, frozenset(), files, None, offset))
        return Day(hours, parts, {}, {})

    def _others(self, day: Day, within: tuple[int, int]) -> Iterator[Samples]:
        return iter(())

    def _require_kept(self, dropped: Mapping[date, dict[int, list[int]]]) -> None:
        """Files of a day that is written anew while it is read are missing, which is an error already."""
