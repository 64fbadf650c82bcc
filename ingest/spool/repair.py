"""A damaged spool file: kept aside, its intact rows into a fresh file under the same sequences, the rest on record.

Whoever finds the damage repairs it, collector or writer, holding the lock; the other one sees another file at the path
and goes on with that. Every step can be interrupted: the damaged file stays where it is until the fresh one is durable.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ingest.batch import Gap, GapBatch, now_us
from ingest.errors import SpoolCorrupt, SpoolError
from ingest.spool import aside, trouble
from ingest.spool.file import LATEST_SEQUENCE, connect, identity, insert, last_sequence, note_crc32
from ingest.spool.format import Record, decode, encode
from ingest.spool.pages import Pages, Value
from ingest.spool.sidecar import Lock, Mark, read_mark, read_sources
from schema.queries import load

log = logging.getLogger(__name__)

_READY = "ready.sqlite"  # in the folder of a repair: complete and durable, to be put in place
_CLOCK_US = 1_000_000  # batches of two sources may be received in another order than they are appended
_LONGEST_AHEAD = 2**62  # no sequence is beyond
_BEGIN = Mark(0, 0)


@dataclass(slots=True)
class _Found:
    """What is left of a file."""

    intact: list[tuple[int, int, int]] = field(default_factory=list)  # sequence, source id, received_at µs
    notes: dict[str, set[str]] = field(default_factory=dict)
    last: int | None = None  # the highest sequence ever given, where that can be read


@dataclass(frozen=True, slots=True)
class _Lost:
    """Batches of unknown content between two known ones: sequences from ``first`` to ``last``."""

    first: int
    last: int


def repair(path: Path, seen: tuple[int, int] | None, why: str) -> None:
    """Put a fresh file in place of the damaged one at ``path``, which the caller knows as ``seen``, and has closed.

    Returns when there is one, whoever made it. Raises SpoolFull where the disk has no room for it, SpoolError where it
    can't be done; the damaged file is then still in place.
    """
    with closing(Lock(path)) as lock:
        try:
            with lock.exclusive():
                if identity(path) == seen:
                    _repair(path, why)
        except (OSError, sqlite3.Error) as error:
            kind = type(trouble.said(path, error))
            raise kind(f"{path.name} is damaged ({why}) and can't be repaired: {error}") from error


def complete(path: Path) -> None:
    """Finish what a killed process had begun: a fresh file that is durable goes to its place."""
    if not any(_of(path)):
        return
    with closing(Lock(path)) as lock, lock.exclusive():
        for folder in _of(path):
            _put_in_place(path, folder)


def damaged_files(path: Path) -> list[Path]:
    """The damaged files that were kept of the spool file at ``path``, oldest first."""
    return sorted((path.parent / aside.FOLDER).glob(f"{path.stem}-*/{path.name}"))


def intact(path: Path) -> Iterator[tuple[int, Record]]:
    """Sequence and row of every intact batch of a damaged file, in no order, also of deleted ones that still stand."""
    seen: set[int] = set()
    with Pages(path, path.with_name(path.name + "-wal")) as pages:
        for row in pages.rows():
            match row:
                case [int(sequence), None, *_] if len(row) == 10 and sequence not in seen:
                    if (record := _intact(sequence, row)) is not None:
                        seen.add(sequence)
                        yield sequence, record


def _of(path: Path) -> Iterator[Path]:
    for ready in sorted((path.parent / aside.FOLDER).glob(f"{path.stem}-*/{_READY}")):
        yield ready.parent


def _repair(path: Path, why: str) -> None:
    log.error("%s is damaged: %s", path, why)
    folder = _new_folder(path)
    try:
        for part in (path, path.with_name(path.name + "-wal")):
            with suppress(FileNotFoundError):
                os.link(part, folder / part.name)
        fresh = folder / "fresh.sqlite"
        batches, gaps = _write(fresh, path, folder, why)
        fresh.rename(folder / _READY)
        aside.sync(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # links, and what is not finished
        raise
    _put_in_place(path, folder)
    log.error(
        "%s: %d batches recovered, %d gaps put on record, the damaged file is kept in %s",
        path.name, batches, gaps, folder,
    )  # fmt: skip


def _new_folder(path: Path) -> Path:
    parent = path.parent / aside.FOLDER
    parent.mkdir(exist_ok=True)
    name = f"{path.stem}-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    for number in range(1, 1000):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise SpoolError(f"{parent} has a thousand folders of this second")


def _put_in_place(path: Path, folder: Path) -> None:
    # The log of the damaged file must not meet the fresh file: SQLite would apply it.
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    (folder / _READY).replace(path)
    aside.sync(path.parent)
    aside.sync(folder)


def _write(fresh: Path, path: Path, folder: Path, why: str) -> tuple[int, int]:
    """Make the fresh file, durable when this returns. Returns how many batches and gaps it has."""
    queries = load("spool")
    head, last = read_mark(path, "head") or _BEGIN, read_mark(path, "last") or _BEGIN
    with closing(connect(fresh, "FULL", create=True)) as connection:
        # Nobody else has it: a log would only have everything written twice.
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN IMMEDIATE")
        found = _salvage(connection, folder, head, path.name)
        # Never a sequence that was given before, whatever of the damaged file can be read.
        # A fresh file counts from the clock.
        given = max(last_sequence(connection), found.last or 0, last.sequence, head.sequence)
        gaps = _gaps(found, path, head, last, why)
        for batch in gaps:
            given += 1
            insert(connection, given, encode(batch))
        connection.execute(queries["count_from"], (given,))
        # A note that stands there twice was replaced: which one is right can't be told.
        notes = [(name, *values, note_crc32(name, *values)) for name, values in found.notes.items() if len(values) == 1]
        connection.executemany(queries["note"], notes)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
    descriptor = os.open(fresh, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return len(found.intact), sum(len(batch) for batch in gaps)


def _salvage(fresh: sqlite3.Connection, folder: Path, head: Mark, name: str) -> _Found:
    """Write into ``fresh`` every intact row that the database does not have, as far as ``head`` tells."""
    found = _Found()
    if not (folder / name).exists():
        return found
    with Pages(folder / name, folder / f"{name}-wal") as pages:
        for row in pages.rows():
            match row:
                case [int(sequence), None, *_] if len(row) == 10 and sequence >= head.sequence:
                    record = _intact(sequence, row)
                    if record is not None and insert(fresh, sequence, record):
                        found.intact.append((sequence, record.source_id, record.received_at))
                case [int(), "batch", int(last)] if 0 < last < LATEST_SEQUENCE:
                    found.last = max(found.last or 0, last)
                case [str(name), str(value), int(crc32)] if note_crc32(name, value) == crc32:
                    found.notes.setdefault(name, set()).add(value)
    found.intact.sort()
    return found


def _intact(sequence: int, row: list[Value]) -> Record | None:
    record = Record(*row[2:])  # type: ignore[arg-type]  # what the columns are is what decode finds out
    try:
        decode(record, sequence)
    except SpoolCorrupt:
        return None
    return record


def _gaps(found: _Found, path: Path, head: Mark, last: Mark, why: str) -> list[GapBatch]:
    """What may be missing, for each source that the file had: all of a source between two batches that are intact."""
    now = max(now_us(), last.received_at)  # the clock may be dead
    end = _LONGEST_AHEAD if found.last is None else max(found.last, last.sequence)
    holes = _holes([sequence for sequence, _, _ in found.intact], head.sequence, end)
    sources = read_sources(path)
    for _, source, received_at in found.intact:
        sources.setdefault(source, received_at)
    if holes and not sources:
        log.error("%s: of which sources batches are lost is not known", path.name)
    said: list[GapBatch] = []
    for source, since in sorted(sources.items()):
        of_source = [(sequence, received_at) for sequence, of, received_at in found.intact if of == source]
        intervals = _intervals(holes, of_source, max(since, head.received_at - _CLOCK_US), now)
        gaps = tuple(Gap(begin, to, "spool_corrupt", None, f"spool file damaged: {why}") for begin, to in intervals)
        if gaps:
            said.append(GapBatch(source, now_us(), gaps))
    return said


def _holes(intact: Sequence[int], first: int, end: int) -> list[_Lost]:
    """Runs of sequences from ``first`` to ``end`` that are not intact. What can't be known to be intact is lost."""
    holes: list[_Lost] = []
    expected = first
    for sequence in intact:
        if sequence > expected:
            holes.append(_Lost(expected, sequence - 1))
        expected = sequence + 1
    if expected <= end:
        holes.append(_Lost(expected, end))
    return holes


def _intervals(
    holes: Sequence[_Lost], intact: Sequence[tuple[int, int]], began: int, now: int
) -> list[tuple[int, int]]:
    """(from, to) of one source in µs, touching ones joined; ``intact``: its (sequence, received_at), in order."""
    joined: list[tuple[int, int]] = []
    place = 0  # of the first intact batch behind the hole
    for hole in holes:
        while place < len(intact) and intact[place][0] < hole.first:
            place += 1
        begin = intact[place - 1][1] if place else began
        end = max(begin, intact[place][1] if place < len(intact) else now)
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined
