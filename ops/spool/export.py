"""A spool file as CSV: samples and texts with names, times and statuses."""

from __future__ import annotations

import csv
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from core.batch import Batch, EventBatch, SampleBatch
from core.errors import OperationError, SpoolCorrupt
from core.files import atomic_path, file_errors
from core.paths import State
from core.registry import Registry
from core.timestamps import iso
from ingest.spool import dead_letter
from ingest.spool.file import find_damage, read_only
from ingest.spool.format import Record, decode
from ingest.spool.repair import intact_rows
from schema.queries import load

_HEADER = ("source", "channel", "time", "value", "status")


@dataclass(slots=True)
class ExportCounts:
    """Counts of rows and batches that were written."""

    rows: int = 0
    batches: int = 0
    others: int = 0  # events, gaps and increments, which have no value
    damaged: str = ""  # what is wrong with the file

    @property
    def remark(self) -> str:
        """Remark on what was left out, and damage."""
        text = f"; {self.others:,} events, gaps and counts were skipped" if self.others else ""
        return text + (
            f"; the file is damaged ({self.damaged}): only intact batches were exported, some may be in the database"
            if self.damaged
            else ""
        )


def export(state: State, name: str, to: Path | None) -> ExportCounts:
    """Write the file that ``name`` means to ``to``, a new file, or to stdout. Raises OperationError."""
    path = _find(state, name)
    registry = Registry.load(state.registry)
    counts = ExportCounts()
    if to is None:
        _write(path, registry, sys.stdout, counts)
        return counts
    if to.exists():
        raise OperationError(f"{to} already exists: choose another file name")
    with file_errors(to), atomic_path(to) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        _write(path, registry, file, counts)
    return counts


def _find(state: State, name: str) -> Path:
    candidates = (state.spool / f"{name}.sqlite", state.spool / name, Path(name))
    for path in candidates:
        if path.is_file() and path.suffix in (".sqlite", ".json"):
            return path
    spools = ", ".join(sorted(path.name.removesuffix(".sqlite") for path in state.spool.glob("*.sqlite")))
    raise OperationError(f"{name} is not a spool file; known: {spools or 'none'}")


def _write(path: Path, registry: Registry, file: TextIO, counts: ExportCounts) -> None:
    sources = {number: name for name, number in registry.sources.items()}
    channels = {number: name for name, number in registry.pairs()}
    writer = csv.writer(file)
    writer.writerow(_HEADER)
    for batch in _batches(path, counts):
        counts.batches += 1
        source = sources.get(batch.source_id, str(batch.source_id))
        for channel, time, value, status in _values(batch, counts):
            writer.writerow((source, channels.get(channel, str(channel)), iso(time), value, f"0x{status:08X}"))
            counts.rows += 1


def _batches(path: Path, counts: ExportCounts) -> Iterator[Batch]:
    if path.suffix == ".json":
        letter = dead_letter.read(path)
        yield decode(letter.record, letter.sequence)
        return
    counts.damaged = find_damage(path) or ""
    if not counts.damaged:
        try:
            with closing(read_only(path)) as connection:
                for sequence, *columns in connection.execute(load("spool")["select_batches"], (0,)):
                    yield decode(Record(*columns), sequence)
        except (sqlite3.Error, SpoolCorrupt) as error:
            if counts.batches:
                raise OperationError(f"{path} is damaged after {counts.batches} batches: {error}") from error
            counts.damaged = str(error)
        else:
            return
    for sequence, record in intact_rows(path):
        yield decode(record, sequence)


def _values(batch: Batch, counts: ExportCounts) -> Iterator[tuple[int, int, Any, int]]:
    """(channel id, µs, value or text, status)."""
    if isinstance(batch, SampleBatch):
        s = batch.samples
        yield from zip(s.channel.tolist(), s.time.tolist(), s.value.tolist(), s.status.tolist(), strict=True)
        return
    counts.others += len(batch)
    if isinstance(batch, EventBatch):
        for event in batch.events:
            if event.type == "text" and event.channel_id is not None:
                counts.others -= 1
                yield event.channel_id, event.time, event.text or "", event.status or 0
