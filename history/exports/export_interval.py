"""``plantlog evidence export --from --until``: any interval as Parquet files, of sealed days or not.

They have no seal inside, as a seal covers whole days; whole hours are compared with their seal all the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from core.errors import OperationError
from core.files import atomic_path
from core.formatting import count
from core.paths import State
from core.patterns import no_match
from core.timestamps import begin, days_between, hours_between, microseconds
from history.archive.archived_days import ArchivedDays
from history.archive.parquet_writers import EVENTS, GAPS, INTERVAL_METADATA, RowFile, SampleFile
from history.exports.export import exporting, new_files
from history.reading.day_samples import DaySamples
from history.reading.hours import by_label, hour_digests
from history.reading.reader import add_event, gap_rows, gap_rows_between
from history.reading.scope import Scope
from history.seals.partial_digests import ByHour
from history.seals.seal_store import SealedDay, sealed_day, seals_of_day
from history.standalone import (
    ChannelLabel,
    HourDigests,
    compare,
    event_digests,
    gaps_digest,
    labels_of,
)
from schema.queries import load

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ExportedDay:
    """Exported part of a day (UTC)."""

    day: str
    serial: int | None  # of the newest seal; None: the day is not sealed
    revision: int | None
    differs: int  # whole hours of channels that are not as sealed
    event_hours_differ: int  # whole hours of events that are not
    gaps_differ: bool  # gaps of the day are not

    @property
    def as_sealed(self) -> bool:
        """Return whether nothing is known to differ from the seal."""
        return not (self.differs or self.event_hours_differ or self.gaps_differ)

    def describe(self) -> str:
        """A line for people."""
        if self.revision is None:
            return f"{self.day}: not sealed"
        hours = {"channels": self.differs, "events": self.event_hours_differ}
        differ = [f"{count(n, 'hour')} of {what}" for what, n in hours.items() if n]
        differ += ["gaps of the day"] if self.gaps_differ else []
        state = "as sealed" if not differ else f"NOT as sealed: {', '.join(differ)}"
        return f"{self.day}: sealed (revision {self.revision}, serial {self.serial}); whole hours are {state}"


@dataclass(frozen=True, slots=True)
class IntervalResult:
    """Files with their rows, and the days."""

    files: list[tuple[Path, int]]
    days: list[ExportedDay]


@dataclass(frozen=True, slots=True)
class ExportInterval:
    """Interval since <= time < until, of channels (patterns; none: of all)."""

    since: datetime
    until: datetime
    patterns: Sequence[str]

    def days(self) -> list[date]:
        """Days (UTC) that it touches."""
        return days_between(self.since, self.until)

    def hours(self, day: date, inside: bool = False) -> range:
        """Hours of a day that it touches, or that are in it as a whole."""
        if not inside:
            return hours_between(self.since, self.until, day)
        first, last = begin(day) - max(self.since, begin(day)), min(self.until, begin(day, 24)) - begin(day)
        return range(-(first // _HOUR), last // _HOUR)


async def export_interval(
    dsn: str,
    state: State,
    interval: ExportInterval,
    to: Path,
    installation: str | None = None,
) -> IntervalResult:
    """Write ``to`` (samples, by day, channel and time) and, beside it, events and gaps. Raises OperationError.

    ``dsn``: the reader's.
    """
    paths = new_files(to)
    if installation == "all":
        raise OperationError("--installation: found all; legal: one installation")
    async with exporting(dsn, state, installation, to) as (connection, scope):
        chosen = None
        if interval.patterns:
            rows = await connection.fetch(load("evidence")["select_matching_channels"], list(interval.patterns))
            chosen = {row["id"] for row in rows}
            if not chosen:
                raise no_match("--channel", interval.patterns)
        with ExitStack() as stack:
            samples_path, events_path, gaps_path = [stack.enter_context(atomic_path(path)) for path in paths]
            writer = _Writer(connection, interval, scope, chosen, ArchivedDays(state.root))
            return await writer.write(paths, samples_path, events_path, gaps_path)


@dataclass(frozen=True, slots=True)
class _Writer:
    connection: asyncpg.Connection[Any]
    interval: ExportInterval
    scope: Scope
    selected: set[int] | None  # channels; None: all
    archived: ArchivedDays

    async def write(
        self, paths: Sequence[Path], samples_path: Path, events_path: Path, gaps_path: Path
    ) -> IntervalResult:
        """Write all files."""
        days: list[ExportedDay] = []
        n_samples = n_events = 0
        with ExitStack() as stack:
            samples = SampleFile(samples_path, "byte_stream_split")
            events, gaps = RowFile(events_path, EVENTS), RowFile(gaps_path, GAPS)
            for file in (samples, events, gaps):
                stack.callback(file.abandon)
            for day in self.interval.days():
                seals = await seals_of_day(self.connection, self.scope.number, day)
                sealed = await sealed_day(self.connection, day, seals) if seals else None
                chain = seals[0].chain if seals else self.scope.chain
                stored = await DaySamples.of_day(self.connection, self.archived, day, chain)
                n, differs = await self._samples(samples, stored, sealed)
                rows, event_hours = await self._events(stored, sealed)
                events.write(rows)
                gaps_differ = sealed is not None and await self._gaps_differ(sealed)
                n_samples, n_events = n_samples + n, n_events + len(rows)
                serial, revision = (seals[-1].serial, seals[-1].revision) if seals else (None, None)
                days.append(ExportedDay(day.isoformat(), serial, revision, differs, event_hours, gaps_differ))
            gap_rows = await self._gaps()
            gaps.write(gap_rows)
            span = {"from": self.interval.since.isoformat(), "until": self.interval.until.isoformat()}
            metadata = {INTERVAL_METADATA: json.dumps({**span, "days": [asdict(day) for day in days]}).encode()}
            for part in (samples, events, gaps):
                part.close(metadata)
        counts = [n_samples, n_events, len(gap_rows)]
        return IntervalResult(list(zip(paths, counts, strict=True)), days)

    async def _samples(self, file: SampleFile, stored: DaySamples, sealed: SealedDay | None) -> tuple[int, int]:
        """Rows written, and whole hours of channels that are not as sealed."""
        day, whole_hours = stored.day, set(self.interval.hours(stored.day, inside=True))
        labels = await self._labels(day, sealed)
        digests: Mapping[int, HourDigests] = sealed.hours() if sealed is not None else {}
        channels = sorted({*await stored.channels(self.scope), *digests})
        channels = [number for number in channels if self.selected is None or number in self.selected]
        bounds = microseconds(self.interval.since), microseconds(self.interval.until)
        now: dict[int, ByHour] = {}
        rows = 0
        async for number, samples in stored.stream(channels, self.interval.hours(day)):
            now[number] = hour_digests(samples, day)
            first, last = np.searchsorted(samples.time, bounds).tolist()
            cut = samples.part(slice(first, last))
            for (_, name, unit), part in by_label(cut, labels.get(number, [(0, "", "")])):
                file.write(part, name, unit)
            rows += last - first
        if sealed is None:
            return rows, 0
        sealed_hours = {number: digests[number].by_hour() for number in channels if number in digests}
        differences = (
            difference
            for number in channels
            for difference in compare("", number, sealed_hours.get(number, {}), now.get(number, {}))
        )
        return rows, sum(difference.hour in whole_hours for difference in differences)

    async def _labels(self, day: date, sealed: SealedDay | None) -> dict[int, list[ChannelLabel]]:
        if sealed is not None:
            return sealed.labels()
        span = begin(day), begin(day, 24)
        text = await self.connection.fetchval(load("evidence")["build_document"], *span, self.scope.number)
        return labels_of(text)

    async def _events(self, stored: DaySamples, sealed: SealedDay | None) -> tuple[list[tuple[Any, ...]], int]:
        """Rows, and whole hours that are not as sealed."""
        first, last = microseconds(self.interval.since), microseconds(self.interval.until)
        rows: list[tuple[Any, ...]] = []
        hours: dict[int, list[bytes]] = {}
        async for row in stored.event_rows(self._sealed_scope(sealed)):
            add_event(hours, row, stored.day)
            selected = self.selected is None or row[4] is None or row[4] in self.selected
            if first <= row[0] < last and selected and self.scope.covers(row[3], row[4]):
                rows.append(row)
        if sealed is None:
            return rows, 0
        differences = compare("events", None, sealed.parts[-1].events.by_hour(), event_digests(hours))
        whole_hours = self.interval.hours(stored.day, inside=True)
        return rows, sum(difference.hour in whole_hours for difference in differences)

    async def _gaps_differ(self, sealed: SealedDay) -> bool:
        rows = await gap_rows(self.connection, sealed.day, self._sealed_scope(sealed))
        return gaps_digest(rows) != sealed.parts[-1].gaps

    def _sealed_scope(self, sealed: SealedDay | None) -> Scope:
        return self.scope if sealed is None else self.scope.of_installation(sealed.seals[-1].installation)

    async def _gaps(self) -> list[tuple[Any, ...]]:
        """Gaps of the selected channels, and of sources that they are or were read from."""
        rows = await gap_rows_between(self.connection, self.interval.since, self.interval.until, self.scope)
        if (selected := self.selected) is None:
            return rows
        of_channels = await self.connection.fetch(load("evidence")["select_channel_sources"])
        sources = {row["source_id"] for row in of_channels if row["id"] in selected}
        return [row for row in rows if row[0] in sources and (row[1] is None or row[1] in selected)]
