"""``plantlog export``: a sealed day as Parquet files, each with the seal inside.

Rows are sorted by channel and time and streamed: a row group of samples is in memory, not the day. Values are written
with the encoding that makes this day's own samples smallest, measured on a part of them: a dictionary is best where
values recur (transmitters with a resolution), splitting by byte where they don't (noise).
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import asyncpg

from ingest.errors import OperationError
from ops.evidence import parquet, standalone
from ops.evidence.keys import stored_keys
from ops.evidence.reading import Series, begin, channels_of, closes, connect, event_rows, gap_rows, gaps_digest, read
from ops.evidence.standalone import EVENT_WIDTHS, Carried, Hours, Row, compare, row_bytes, tagged
from ops.evidence.stored import SealedDay, sealed_day, seals
from schema.queries import load

_SAMPLES = 1_000_000  # in memory, unless a single channel has more
_PROBED = 12  # channels that decide the encoding
_HOUR_US = 3_600_000_000
_EVENT_ROWS = 50_000
VERIFIER = "verify_plantlog.py"


@dataclass(frozen=True, slots=True)
class Exported:
    """Files with their rows; hours in which what was written is not what was sealed."""

    files: list[tuple[Path, int]]
    differs: int


async def export(dsn: str, day: date, to: Path, patterns: Sequence[str], with_verifier: bool) -> Exported:
    """Write ``to`` (samples) and, beside it, ``.events.parquet`` and ``.gaps.parquet``. Raises OperationError."""
    base = to.name.removesuffix(".parquet")
    paths = [to, to.with_name(f"{base}.events.parquet"), to.with_name(f"{base}.gaps.parquet")]
    verifier = to.with_name(VERIFIER)
    for path in paths:
        if path.exists():
            raise OperationError(f"{path} exists already: give the name of a new file with --to")
    connection = await connect(dsn, "plantlog export")
    partial = [path.with_name(path.name + ".partial") for path in paths]
    try:
        day_seals = [one for one in await seals(connection) if one.day == day.isoformat()]
        if not day_seals:
            when = await closes(connection, day)
            makes = f"from {when:%Y-%m-%d %H:%M} UTC on " if when > datetime.now(UTC) else ""
            raise OperationError(f"{day} has no seal: {makes}`plantlog seal {day}` makes it")
        sealed = await sealed_day(connection, day, day_seals)
        writing = _Export(connection, sealed, await stored_keys(connection))
        rows, differs = await writing.samples(partial[0], patterns)
        events, events_differ = await writing.events(partial[1])
        gaps, gaps_differ = await writing.gaps(partial[2])
        for path, done in zip(paths, partial, strict=True):
            done.replace(path)
        if with_verifier:
            shutil.copyfile(standalone.__file__, verifier)
        counts = [rows, events, gaps]
        return Exported(list(zip(paths, counts, strict=True)), differs + events_differ + gaps_differ)
    except OSError as error:
        raise OperationError(f"{to}: {error.strerror or error}") from error
    finally:
        for path in partial:
            path.unlink(missing_ok=True)
        connection.terminate()


@dataclass(frozen=True, slots=True)
class _Export:
    connection: asyncpg.Connection[Any]
    sealed: SealedDay
    keys: list[standalone.Key]

    async def samples(self, path: Path, patterns: Sequence[str]) -> tuple[int, int]:
        """Rows written, hours that differ from the seal."""
        sealed = self.sealed
        every = sorted(set(await channels_of(self.connection, sealed.day)) | set(sealed.hours()))
        chosen = every
        if patterns:
            wanted = {row["id"] for row in await self.connection.fetch(load("evidence")["names"], list(patterns))}
            chosen = [number for number in every if number in wanted]
            if not chosen:
                raise OperationError(f"no channel with samples on {sealed.day} is called {', '.join(patterns)}")
        meanings, hours = sealed.meanings(), sealed.hours()
        probe = [one async for one in self._series(chosen[:: max(1, len(chosen) // _PROBED)][:_PROBED], hour=12)]
        rows = differs = 0
        with ExitStack() as stack:
            file = parquet.SampleFile(path, parquet.best_encoding(probe))
            stack.callback(file.abandon)
            async for one in self._series(chosen):
                for (_, name, unit), part in one.by_meaning(meanings.get(one.channel_id, [(0, "", "")])):
                    file.write(part, name, unit)
                rows += len(one.time)
                was = hours[one.channel_id].by_hour() if one.channel_id in hours else {}
                differs += sum(1 for _ in compare("", None, was, one.hours(sealed.day)))
                hours.pop(one.channel_id, None)
            differs += sum(1 for number in hours if number in set(chosen) for n in hours[number].n if n)
            file.close(self._carried("samples", frozenset(chosen) if patterns else None).encode())
        return rows, differs

    async def _series(self, channels: Sequence[int], hour: int | None = None) -> AsyncIterator[Series]:
        """Whole days of channels, or one hour, some channels at a time."""
        day = self.sealed.day
        span = (begin(day), begin(day, 24)) if hour is None else (begin(day, hour), begin(day, hour + 1))
        size, done = 1, 0
        while part := channels[done : done + size]:
            found = await read(self.connection, part, *span)
            done += len(part)
            size = max(1, min(2 * size, size * _SAMPLES // max(1, sum(len(one.time) for one in found))))
            for one in found:
                yield one

    async def events(self, path: Path) -> tuple[int, int]:
        """Rows written, hours that differ."""
        found: dict[int, list[bytes]] = {}
        rows: list[tuple[Any, ...]] = []
        total, first = 0, int(begin(self.sealed.day).timestamp()) * 1_000_000
        with ExitStack() as stack:
            file = parquet.RowFile(path, parquet.EVENTS)
            stack.callback(file.abandon)
            async with self.connection.transaction():
                async for values in event_rows(self.connection, self.sealed.day):
                    rows.append(values)
                    found.setdefault((values[0] - first) // _HOUR_US, []).append(
                        row_bytes(*values, widths=EVENT_WIDTHS)
                    )
                    if len(rows) == _EVENT_ROWS:
                        file.write(rows)
                        total, rows = total + len(rows), []
            file.write(rows)
            file.close(self._carried("events", frozenset()).encode())
        hours = Hours.of({hour: (len(of), tagged("event hour", *of)) for hour, of in found.items()})
        differs = sum(1 for _ in compare("", None, self.sealed.parts[-1].events.by_hour(), hours.by_hour()))
        return total + len(rows), differs

    async def gaps(self, path: Path) -> tuple[int, int]:
        """Rows written, 1 where they differ."""
        rows = await gap_rows(self.connection, self.sealed.day)
        with ExitStack() as stack:
            file = parquet.RowFile(path, parquet.GAPS)
            stack.callback(file.abandon)
            file.write(rows)
            file.close(self._carried("gaps", frozenset()).encode())
        return len(rows), int(gaps_digest(rows) != self.sealed.parts[-1].gaps)

    def _carried(self, table: str, chosen: frozenset[int] | None) -> Carried:
        """What goes into a file; hours of ``chosen`` channels only (None: of all)."""
        sealed = self.sealed
        rows = [
            row if chosen is None or row.channel_id in chosen else Row(row.channel_id, row.revision, None, row.digest)
            for row in sealed.rows
        ]
        complete = not chosen  # events and gaps are always whole
        day, seals_of = sealed.day.isoformat(), sealed.seals
        return Carried(
            table, day, complete, seals_of, sealed.parts, rows, self.keys, sealed.document, sealed.differs
        )  # fmt: skip
