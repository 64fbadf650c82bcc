"""``plantlog evidence export``: a sealed day as Parquet files, each with the seal inside.

Rows are sorted by channel and time and streamed: a row group of samples is in memory, not the day. Values are written
with the encoding that makes this day's own samples smallest, measured on a part of them: a dictionary is best where
values recur (transmitters with a resolution), splitting by byte where they don't (noise).
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import asyncpg

from core.errors import OperationError
from core.files import atomic_path, write_atomically
from core.paths import State
from history import standalone
from history.archive.archived_days import ArchivedDays
from history.archive.parquet_writers import EVENTS, GAPS, RowFile, SampleFile, best_encoding
from history.reading.day_samples import DaySamples
from history.reading.hours import by_label, hour_digests
from history.reading.reader import add_event, connected, gap_rows, has_data, seal_time
from history.reading.scope import Scope, choose, load_scope
from history.seals.keys import stored_keys
from history.seals.seal_store import SealedDay, sealed_day, seals_of_day
from history.standalone import (
    METADATA,
    ChannelDigests,
    SealBundle,
    compare,
    event_digests,
    gaps_digest,
)
from schema.queries import load

_PROBE_CHANNELS = 12  # channels that decide the encoding
_EVENT_ROWS = 50_000
VERIFIER = "verify_plantlog.py"


@dataclass(frozen=True, slots=True)
class ExportResult:
    """Files with their rows; hours in which what was written is not what was sealed."""

    files: list[tuple[Path, int]]
    differs: int


def new_files(to: Path) -> list[Path]:
    """The files of an export: ``to`` (samples), and events and gaps beside it. Raises OperationError if one exists."""
    base = to.name.removesuffix(".parquet")
    paths = [to, to.with_name(f"{base}.events.parquet"), to.with_name(f"{base}.gaps.parquet")]
    for path in paths:
        if path.exists():
            raise OperationError(f"{path} already exists: choose another file with --to")
    return paths


@asynccontextmanager
async def exporting(
    dsn: str, state: State, installation: str | None, to: Path
) -> AsyncIterator[tuple[asyncpg.Connection[Any], Scope]]:
    """A connection, and the scope of one installation. Raises OperationError, also for errors of files, with ``to``."""
    async with connected(dsn, "plantlog export") as connection:
        try:
            [chain] = await choose(connection, state, installation)
            yield connection, await load_scope(connection, chain.number)
        except OSError as error:
            raise OperationError(f"{to}: {error.strerror or error}") from error


async def export(
    dsn: str,
    state: State,
    day: date,
    to: Path,
    patterns: Sequence[str],
    with_verifier: bool,
    installation: str | None = None,
) -> ExportResult:
    """Write ``to`` (samples) and, beside it, ``.events.parquet`` and ``.gaps.parquet``. Raises OperationError.

    ``installation``: the plant or the beginning of the id of another one than the state folder's.
    """
    paths = new_files(to)
    verifier = to.with_name(VERIFIER)
    if installation == "all":
        raise OperationError("--installation: found all; legal: one installation, because a file has its seals")
    async with exporting(dsn, state, installation, to) as (connection, scope):
        day_seals = await seals_of_day(connection, scope.chain, day)
        if not day_seals:
            when = await seal_time(connection, day)
            closed = when <= datetime.now(UTC)
            if closed and not await has_data(connection, day, scope):
                raise OperationError(f"no data on {day}: nothing to export")
            after = "" if closed else f" after {when:%Y-%m-%d %H:%M} UTC"
            raise OperationError(
                f"{day} is not sealed: run `plantlog evidence seal {day}`{after}; --from and --until export it as it is"
            )
        sealed = await sealed_day(connection, day, day_seals)
        keys = await stored_keys(connection, day_seals[0].chain)
        day_samples = await DaySamples.of_day(connection, ArchivedDays(state.root), day, day_seals[0].chain)
        writer = _Export(day_samples, scope.of_installation(day_seals[0].installation), sealed, keys)
        with ExitStack() as stack:
            samples_path, events_path, gaps_path = [stack.enter_context(atomic_path(path)) for path in paths]
            rows, differs = await writer.samples(samples_path, patterns)
            events, events_differ = await writer.events(events_path)
            gaps, gaps_differ = await writer.gaps(gaps_path)
        if with_verifier:
            write_atomically(verifier, inspect.getsource(standalone))
        counts = [rows, events, gaps]
        return ExportResult(list(zip(paths, counts, strict=True)), differs + events_differ + gaps_differ)


@dataclass(frozen=True, slots=True)
class _Export:
    stored: DaySamples
    scope: Scope
    sealed: SealedDay
    keys: list[standalone.Key]

    async def samples(self, path: Path, patterns: Sequence[str]) -> tuple[int, int]:
        """Rows written, hours that differ from the seal."""
        sealed = self.sealed
        all_channels = sorted({*await self.stored.channels(self.scope), *sealed.hours()})
        channels = all_channels
        if patterns:
            matching = {
                row["id"]
                for row in await self.stored.connection.fetch(
                    load("evidence")["select_matching_channels"], list(patterns)
                )
            }
            channels = [number for number in all_channels if number in matching]
            if not channels:
                raise OperationError(f"no channel with samples on {sealed.day} matches {', '.join(patterns)}")
        labels, hours = sealed.labels(), sealed.hours()
        probe = channels[:: max(1, len(channels) // _PROBE_CHANNELS)][:_PROBE_CHANNELS]
        probed = await self.stored.read(probe, range(12, 13))
        rows = differs = 0
        with ExitStack() as stack:
            file = SampleFile(path, best_encoding(probed.values()))
            stack.callback(file.abandon)
            async for channel, samples in self.stored.stream(channels):
                for (_, name, unit), part in by_label(samples, labels.get(channel, [(0, "", "")])):
                    file.write(part, name, unit)
                rows += len(samples)
                sealed_hours = hours[channel].by_hour() if channel in hours else {}
                differs += sum(1 for _ in compare("", None, sealed_hours, hour_digests(samples, sealed.day)))
                hours.pop(channel, None)
            differs += sum(1 for number in hours if number in set(channels) for n in hours[number].n if n)
            file.close({METADATA: self._bundle("samples", frozenset(channels) if patterns else None).encode()})
        return rows, differs

    async def events(self, path: Path) -> tuple[int, int]:
        """Rows written, hours that differ."""
        rows_by_hour: dict[int, list[bytes]] = {}
        rows: list[tuple[Any, ...]] = []
        total = 0
        with ExitStack() as stack:
            file = RowFile(path, EVENTS)
            stack.callback(file.abandon)
            async for values in self.stored.event_rows(self.scope):
                rows.append(values)
                add_event(rows_by_hour, values, self.sealed.day)
                if len(rows) == _EVENT_ROWS:
                    file.write(rows)
                    total, rows = total + len(rows), []
            file.write(rows)
            file.close({METADATA: self._bundle("events", frozenset()).encode()})
        events = self.sealed.parts[-1].events.by_hour()
        differs = sum(1 for _ in compare("", None, events, event_digests(rows_by_hour)))
        return total + len(rows), differs

    async def gaps(self, path: Path) -> tuple[int, int]:
        """The number of gaps written, and 1 if they differ from the seal, else 0."""
        rows = await gap_rows(self.stored.connection, self.sealed.day, self.scope)
        with ExitStack() as stack:
            file = RowFile(path, GAPS)
            stack.callback(file.abandon)
            file.write(rows)
            file.close({METADATA: self._bundle("gaps", frozenset()).encode()})
        return len(rows), int(gaps_digest(rows) != self.sealed.parts[-1].gaps)

    def _bundle(self, table: str, channels: frozenset[int] | None) -> SealBundle:
        """Content of a file; hours of ``channels`` channels only (None: of all)."""
        sealed = self.sealed
        rows = [
            row
            if channels is None or row.channel_id in channels
            else ChannelDigests(row.channel_id, row.revision, None, row.digest)
            for row in sealed.rows
        ]
        complete = not channels  # events and gaps are always whole
        day, seals_of = sealed.day.isoformat(), sealed.seals
        return SealBundle(
            table, day, complete, seals_of, sealed.parts, rows, self.keys, sealed.document, sealed.differs
        )  # fmt: skip
