"""``plantlog source import-history``: check files, show what they contain and where it goes, ask, and store it."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress

from core.batch import ROUNDED_DETAIL, Event
from core.config.model import WriterOptions
from core.config.snapshot import in_force
from core.database import FAILURES, connect_writer
from core.errors import DatabaseError, OperationError
from core.formatting import count, names_text
from core.installation import installation_of
from core.paths import State
from core.samples import Samples
from core.terminal import confirm
from core.time_limits import TimeLimits
from core.timestamps import iso, microseconds, now_us, timestamp
from history.imports.channel_names import ChannelNames
from history.imports.check import Checked, Duplicates, check
from history.imports.csv_file import CsvFile
from history.imports.csv_layout import Options, find_layout
from history.imports.fields import bad_input
from history.imports.kinds import KINDS, GivenKinds
from history.imports.line_protocol_file import LineProtocolFile, is_line_protocol
from history.imports.parquet_file import ParquetFile, is_parquet
from history.imports.portion import FileReader, ImportPortion
from history.imports.store import NO_CHANNEL, Channel, ImportCounts, Store, create_channels
from history.imports.whole_hours import regroup
from ingest.push.channels import load_created
from schema.queries import load


@dataclass(frozen=True, slots=True)
class _Targets:
    """The channels and archived days that the samples of a file go to.

    ``channels``: in the order of its names, rows of section ``select_channels``; None: to be created.
    """

    channels: Sequence[asyncpg.Record | None]
    amended_days: Sequence[date]  # those in the archive that retention would drop otherwise


def run(
    state: State,
    files: Sequence[Path],
    options: Options,
    duplicates: Duplicates,
    source: str,
    kinds: GivenKinds,
    who: str,
    yes: bool,
    console: Console,
) -> None:
    """Import ``files`` for ``who``. Raises OperationError, with nothing stored, if one of them has an error."""
    dsn = state.dsn("owner")
    snapshot = in_force(state.root, tags_of=())
    writer = WriterOptions() if snapshot is None else snapshot.plant.writer
    limits = TimeLimits(writer.future_limit, writer.oldest)
    with ExitStack() as stack:
        checked_files: list[tuple[Checked, KeptPortions]] = []
        with _progress(console) as progress:
            for reader in [_reader(file, options) for file in files]:
                kept = stack.enter_context(closing(KeptPortions(state.root)))
                bar = _bar(progress, "check", reader.file)

                def keep(portion: ImportPortion, kept: KeptPortions = kept, bar: Callable[[int], None] = bar) -> None:
                    kept.add(portion)
                    bar(portion.bytes_read)

                checked_files.append((check(reader, now_us(), limits, keep, duplicates), kept))
        options.names.require_used()
        kinds.require_used([name for checked, _ in checked_files for name in checked.reader.names])
        asyncio.run(_Import(state, dsn, writer.time_out, source, kinds, who, console).run(checked_files, yes))


def _reader(file: Path, options: Options) -> FileReader:
    if is_parquet(file):
        return ParquetFile(file, options)
    if is_line_protocol(file):
        if options.names != ChannelNames():
            raise OperationError(f"--prefix, --rename: {file} is line protocol; legal: --channel names its channels")
        ignored = [name for name, role in options.columns.items() if role == "ignore"]
        return LineProtocolFile(file, options.template, ignored)
    return CsvFile(file, find_layout(file, options))


def _progress(console: Console) -> Progress:
    return Progress(console=console, transient=True, disable=not console.is_terminal)


def _bar(progress: Progress, step: str, file: Path) -> Callable[[int], None]:
    task = progress.add_task(f"{step} {file.name}", total=file.stat().st_size)
    return lambda done: progress.update(task, completed=done)


@dataclass(frozen=True, slots=True)
class _Import:
    state: State
    dsn: str
    time_out: float
    source: str
    kinds: GivenKinds
    who: str
    console: Console

    async def run(self, checked_files: Sequence[tuple[Checked, KeptPortions]], yes: bool) -> None:
        try:
            connection = await connect_writer(self.dsn, self.time_out, "plantlog import")
        except FAILURES as error:
            raise DatabaseError(f"database error: {error}; nothing was imported") from error
        try:
            for checked, _ in checked_files:
                self._show(checked, await self._targets(connection, checked))
            if not yes:
                confirm(sys.stdin.isatty, lambda: typer.confirm("Import this?", err=True), "imported")
            for checked, portions in checked_files:
                await self._store(connection, checked, portions)
        except FAILURES as error:
            message = str(error) or type(error).__name__
            raise DatabaseError(
                f"database error: {message}; what was stored stays. Run the command again: it continues there"
            ) from error
        finally:
            connection.terminate()

    async def _targets(self, connection: asyncpg.Connection[Any], checked: Checked) -> _Targets:
        """Channels that the samples go to. Raises OperationError if they can't."""
        names = checked.reader.names
        queries = load("history_import")
        installation = installation_of(self.state.root)
        rows_by_name = await _rows_by_name(connection, checked)
        limits: list[int] = []  # since when the samples of each channel are kept
        kept = {row["class"]: row["since"] for row in await connection.fetch(queries["select_kept"])}
        default = await connection.fetchval(queries["select_default_class"], installation)
        for index, name in enumerate(names):
            row = rows_by_name.get(name)
            line = int(checked.first_line[index])
            if row is not None and row["installation_id"] != installation:
                raise bad_input(checked.file, line, "channel", name, "channels of this installation")
            if row is not None and row["kind"] == "text":
                raise bad_input(checked.file, line, "channel", name, "channels with numbers: this one has texts")
            if row is not None and self.kinds.of(name) not in (None, row["kind"]):
                raise OperationError(f"--kind: {name} is {row['kind']} already; legal: channels that are created")
            since = kept.get(default if row is None else row["class"])
            limits.append(np.iinfo(np.int64).min if since is None else microseconds(since))
        amendable = {row["day"] for row in await connection.fetch(queries["select_amendable"], installation)}
        days = checked.hours.days_before(np.array(limits, np.int64))
        for index, day in days:
            if day not in amendable:
                first = int(checked.first[index])
                is_first = timestamp(first).date() == day
                legal = (
                    f"times from {iso(limits[index])} on, or of archived days while days are archived: [retention] "
                    f"drops other samples of {names[index]}. Keep them longer, or leave them out"
                )
                at = iso(first) if is_first else day.isoformat()
                known_line = int(checked.first_line[index]) if is_first else None
                raise bad_input(checked.file, known_line, "time", at, legal)
        return _Targets([rows_by_name.get(name) for name in names], sorted({day for _, day in days}))

    def _show(self, checked: Checked, targets: _Targets) -> None:
        reader = checked.reader
        lines = [f"{checked.file}:", *(f"  {label:8} {how}" for label, how in checked.describe())]
        for example in checked.examples:
            lines.append(
                f"  line {example.line}: {example.channel} = {example.value!r} at {iso(example.time)}, "
                f"status 0x{example.status:08X}"
            )
        created = _missing(checked, targets)
        span = f"from {iso(int(checked.first.min()))} to {iso(int(checked.last.max()))}"
        channels = int(np.count_nonzero(checked.counts))
        lines.append(f"  {count(checked.samples, 'sample')} of {count(channels, 'channel')}, {span}")
        if created:
            lines.append(f"  creates {count(len(created), 'channel')} of source {self.source}: {names_text(created)}")
            for kind in KINDS:
                if of_kind := [name for name in created if self.kinds.of(name) == kind]:
                    lines.append(f"    {kind}, as --kind says: {names_text(of_kind)}")
            lines += [f"    {hint}" for hint in self._hints(checked, created)]
        by_source: dict[str, list[str]] = {}
        for name, row, n in zip(reader.names, targets.channels, checked.counts, strict=True):
            if row is not None and n:
                renamed = "" if row["now"] == name else f" (now {row['now']})"
                by_source.setdefault(row["source"], []).append(name + renamed)
        for source, names in sorted(by_source.items()):
            lines.append(f"  adds to {count(len(names), 'channel')} of source {source}: {names_text(names)}")
        if days := [day.isoformat() for day in targets.amended_days]:
            lines.append(f"  amends {count(len(days), 'day')} of the archive: {names_text(days)}")
        if reader.rounded:
            names = [reader.names[index] for index in sorted(reader.rounded)]
            lines.append(f"  rounds integers beyond 2^53 of {count(len(names), 'channel')}: {names_text(names)}")
        self.console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)

    async def _store(
        self, connection: asyncpg.Connection[Any], checked: Checked, portions: Iterable[ImportPortion]
    ) -> None:
        channels, created = await self._channels(connection, checked)
        store = Store(connection, self.time_out, checked, channels)
        await store.begin(checked.describe())
        await store.record(self._event(checked, "begun", None))
        for index in sorted(checked.reader.rounded):
            channel = channels[index]
            await store.record(Event("rounded", now_us(), channel.id, detail=ROUNDED_DETAIL), channel.source_id)
        with _progress(self.console) as progress:
            bar = _bar(progress, "import", checked.file)
            for part in regroup(portions, checked.hours):
                await store.add(part)
                bar(part.portion.bytes_read)
        await store.record(self._event(checked, "done", store.counts))
        lines = [_outcome(store.counts), *(f"created as {hint}" for hint in self._hints(checked, created))]
        text = "\n".join(f"{checked.file}: {line}" for line in lines)
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _hints(self, checked: Checked, created: Collection[str]) -> Iterator[str]:
        """Lines about channels that were created, or are to be, whose values do not look like analog ones."""
        names = enumerate(checked.reader.names)
        others = {name: place for place, name in names if name in created and self.kinds.of(name) is None}
        return checked.forms.hints(others)

    async def _channels(
        self, connection: asyncpg.Connection[Any], checked: Checked
    ) -> tuple[Sequence[Channel], Sequence[str]]:
        """The channels of the reader's names, and those of them that were missing, and are created."""
        targets = await self._targets(connection, checked)
        if created := _missing(checked, targets):
            last_ids = load_created(self.state.root).last_ids
            installation: UUID | None = installation_of(self.state.root)
            kinds = {name: self.kinds.of(name) or "analog" for name in created}
            await create_channels(connection, installation, self.source, kinds, last_ids)
            targets = await self._targets(connection, checked)
            if missing := _missing(checked, targets):
                raise DatabaseError(f"channel {missing[0]} can't be created in source {self.source}")
        channels = [NO_CHANNEL if row is None else Channel(row["id"], row["source_id"]) for row in targets.channels]
        return channels, created

    def _event(self, checked: Checked, outcome: str, counts: ImportCounts | None) -> Event:
        detail = {
            "file": checked.file.name,
            "sha256": checked.sha256,
            "samples": checked.samples,
            "channels": int(np.count_nonzero(checked.counts)),
            "first": iso(int(checked.first.min())),
            "last": iso(int(checked.last.max())),
            "account": self.who,
            "host": socket.gethostname(),
            "outcome": outcome,
            **(
                {}
                if counts is None
                else {"new": counts.new, "known": counts.stored_before, "conflicts": counts.conflicts}
            ),
        }
        return Event("import", now_us(), text=f"{self.who}: {checked.file.name}: {outcome}", detail=detail)


async def _rows_by_name(connection: asyncpg.Connection[Any], checked: Checked) -> dict[str, asyncpg.Record]:
    """The channels that had the names of a file at the times of their samples, or have or had them else.

    Raises OperationError for a name of several channels, and for two names of one with samples of one time.
    """
    names = checked.reader.names
    filled = [index for index, n in enumerate(checked.counts.tolist()) if n]
    spans = {names[index]: (int(checked.first[index]), int(checked.last[index])) for index in filled}
    lines = {names[index]: int(checked.first_line[index]) for index in filled}
    times = [[timestamp(span[end]) for span in spans.values()] for end in (0, 1)]
    rows_by_name: dict[str, asyncpg.Record] = {}
    for row in await connection.fetch(load("history_import")["select_channels"], list(spans), *times):
        name = row["name"]
        if row["then"] and row["id"] != rows_by_name.setdefault(name, row)["id"]:
            until = iso(microseconds(row["until"]))
            legal = (
                f"samples of one channel: until {until}, it was the name of what is {row['now']} now. Import earlier "
                "and later samples as two files"
            )
            raise bad_input(checked.file, lines[name], "channel", name, legal)
        rows_by_name.setdefault(name, row)
    by_channel: dict[int, list[str]] = {}
    for name, row in rows_by_name.items():
        for other in by_channel.setdefault(row["id"], []):
            if spans[name][0] <= spans[other][1] and spans[other][0] <= spans[name][1]:
                legal = f"another name than {other}, which is a name of the same channel: see --rename"
                raise bad_input(checked.file, lines[name], "channel", name, legal)
        by_channel[row["id"]].append(name)
    return rows_by_name


def _missing(checked: Checked, targets: _Targets) -> list[str]:
    """The names of channels that have samples and are to be created."""
    columns = zip(checked.reader.names, targets.channels, checked.counts, strict=True)
    return [name for name, row, n in columns if row is None and n]


def _outcome(counts: ImportCounts) -> str:
    text = f"{count(counts.new, 'sample')} stored, {counts.stored_before:,} already there"
    if counts.conflicts:
        text += f", {counts.conflicts:,} refused because another value is there (events of type conflict)"
    return text


class KeptPortions:
    """Portions in a file without a name in ``folder``, 32 bytes a sample; it is gone when the process ends.

    Raises OperationError if it can't be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bytes_read: list[int] = []
        try:
            self._file = TemporaryFile(dir=folder)  # noqa: SIM115  (close() closes it)
        except OSError as error:
            raise self._failure(error) from None

    def close(self) -> None:
        """Remove the portions."""
        self._file.close()

    def add(self, portion: ImportPortion) -> None:
        """Keep the next portion."""
        try:
            s = portion.samples
            for column in (s.channel, s.time, s.value, s.status, portion.line):
                np.save(self._file, column, allow_pickle=False)
            self._file.flush()
        except OSError as error:
            raise self._failure(error) from None
        self._bytes_read.append(portion.bytes_read)

    def __iter__(self) -> Iterator[ImportPortion]:
        self._file.seek(0)
        for bytes_read in self._bytes_read:
            channel, time, value, status, line = (np.load(self._file, allow_pickle=False) for _ in range(5))
            yield ImportPortion(Samples(channel, time, value, status), line, bytes_read)

    def _failure(self, error: OSError) -> OperationError:
        return OperationError(f"{self._folder}: {error.strerror}; checked samples are kept there, 32 bytes each")
