"""Repairs a damaged spool file: keeps it, copies its intact rows to a new file, and records the rest as lost.

The process that finds the damage repairs it, collector or writer, holding the lock; the other one finds a new file at
the path and uses it. Every step can be interrupted: the damaged file stays in place until the new one is durable.
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

from core.batch import NO_SOURCE, Event, EventBatch, Gap, GapBatch
from core.errors import SpoolCorrupt, SpoolError
from core.files import sync
from core.timestamps import iso, now_us
from ingest.spool import dead_letter
from ingest.spool.file import (
    LATEST_SEQUENCE,
    connect,
    identity,
    insert,
    last_sequence,
    note_crc32,
    to_spool_error,
    write_notes,
)
from ingest.spool.format import Record, decode, encode
from ingest.spool.metadata import Mark, SpoolLock, read_mark, read_sources
from ingest.spool.pages import Pages, Value
from schema.queries import load

log = logging.getLogger(__name__)

_READY = "ready.sqlite"  # in a repair's folder: complete and durable, to be moved into place
_CLOCK_US = 1_000_000  # batches of two sources may be appended in another order than received
_LAST_SEQUENCE = 2**62  # no sequence is higher
_FIRST_MARK = Mark(0, 0)


@dataclass(slots=True)
class _Salvaged:
    """The salvaged content of a file."""

    intact: list[tuple[int, int, int]] = field(default_factory=list)  # sequence, source id, received_at µs
    notes: dict[str, set[str]] = field(default_factory=dict)
    last: int | None = None  # the highest sequence ever assigned, if readable


@dataclass(frozen=True, slots=True)
class _LostRange:
    """A range of lost sequences, ``first`` to ``last``, between two intact batches."""

    first: int
    last: int


def repair(path: Path, known_identity: tuple[int, int] | None, why: str) -> None:
    """Replace the damaged file at ``path``, which the caller has closed, and whose ``known_identity`` it says.

    Returns once there is a new file, whichever process made it. Raises SpoolFull if the disk is full, SpoolError if it
    fails otherwise; the damaged file then stays in place.
    """
    with closing(SpoolLock(path)) as lock:
        try:
            with lock.exclusive():
                if identity(path) == known_identity:
                    _repair(path, why)
        except (OSError, sqlite3.Error) as error:
            kind = type(to_spool_error(path, error))
            raise kind(f"{path.name} is damaged ({why}) and cannot be repaired: {error}") from error


def finish_repair(path: Path) -> None:
    """Complete the repair of a killed process: move a durable new file into place."""
    if not any(_unfinished(path)):
        return
    with closing(SpoolLock(path)) as lock, lock.exclusive():
        for folder in _unfinished(path):
            _move_into_place(path, folder)


def damaged_files(path: Path) -> list[Path]:
    """The damaged versions of the spool file at ``path`` that were kept, oldest first."""
    return sorted((path.parent / dead_letter.FOLDER).glob(f"{path.stem}-*/{path.name}"))


def intact_rows(path: Path) -> Iterator[tuple[int, Record]]:
    """Sequence and row of every intact batch of a damaged file, unordered, with deleted ones not yet overwritten."""
    sequences: set[int] = set()
    with Pages(path, path.with_name(path.name + "-wal")) as pages:
        for row in pages.rows():
            match row:
                case [int(sequence), None, *_] if len(row) == 10 and sequence not in sequences:
                    if (record := _intact(sequence, row)) is not None:
                        sequences.add(sequence)
                        yield sequence, record


def _unfinished(path: Path) -> Iterator[Path]:
    for ready in sorted((path.parent / dead_letter.FOLDER).glob(f"{path.stem}-*/{_READY}")):
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
        sync(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # hard links and incomplete files
        raise
    _move_into_place(path, folder)
    log.error(
        "%s: recovered %d batches, recorded %d gaps; the damaged file is kept in %s",
        path.name, batches, gaps, folder,
    )  # fmt: skip


def _new_folder(path: Path) -> Path:
    parent = path.parent / dead_letter.FOLDER
    parent.mkdir(exist_ok=True)
    name = f"{path.stem}-{datetime.now(UTC):%Y%m%dT%H%M%S}"
    for number in range(1, 1000):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise SpoolError(f"cannot create a folder for the damaged file in {parent}: all names are taken")


def _move_into_place(path: Path, folder: Path) -> None:
    # SQLite would apply the damaged file's WAL to the new file: remove it first.
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    (folder / _READY).replace(path)
    sync(path.parent)
    sync(folder)


def _write(fresh: Path, path: Path, folder: Path, why: str) -> tuple[int, int]:
    """Create the new file durably. Returns its numbers of batches and gaps."""
    queries = load("spool")
    head, last = read_mark(path, "head") or _FIRST_MARK, read_mark(path, "last") or _FIRST_MARK
    with closing(connect(fresh, "FULL", create=True)) as connection:
        # Nobody else has it open: a WAL would only write everything twice.
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN IMMEDIATE")
        salvaged = _salvage(connection, folder, head, path.name)
        # Never assign a sequence twice, however little of the damaged file is readable.
        # A new file starts from the clock.
        newest = max(last_sequence(connection), salvaged.last or 0, last.sequence, head.sequence)
        gaps = _gaps(salvaged, path, head, last, why)
        for batch in gaps:
            newest += 1
            insert(connection, newest, encode(batch))
        connection.execute(queries["update_last_sequence"], (newest,))
        # Of two versions of a note one was replaced: there is no way to tell which is current.
        write_notes(connection, {name: value for name, (value, *other) in salvaged.notes.items() if not other})
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
    sync(fresh)
    return len(salvaged.intact), sum(len(batch) for batch in gaps)


def _salvage(fresh: sqlite3.Connection, folder: Path, head: Mark, name: str) -> _Salvaged:
    """Write to ``fresh`` every intact row that, according to ``head``, may not be in the database yet."""
    salvaged = _Salvaged()
    if not (folder / name).exists():
        return salvaged
    with Pages(folder / name, folder / f"{name}-wal") as pages:
        for row in pages.rows():
            match row:
                case [int(sequence), None, *_] if len(row) == 10 and sequence >= head.sequence:
                    record = _intact(sequence, row)
                    if record is not None and insert(fresh, sequence, record):
                        salvaged.intact.append((sequence, record.source_id, record.received_at))
                case [int(), "batch", int(last)] if 0 < last < LATEST_SEQUENCE:
                    salvaged.last = max(salvaged.last or 0, last)
                case [str(name), str(value), int(crc32)] if note_crc32(name, value) == crc32:
                    salvaged.notes.setdefault(name, set()).add(value)
    salvaged.intact.sort()
    return salvaged


def _intact(sequence: int, row: list[Value]) -> Record | None:
    record = Record(*row[2:])  # type: ignore[arg-type]  # decode checks the columns
    try:
        decode(record, sequence)
    except SpoolCorrupt:
        return None
    return record


def _gaps(salvaged: _Salvaged, path: Path, head: Mark, last: Mark, why: str) -> list[GapBatch | EventBatch]:
    """The gaps of each source in the file: from one intact batch of the source to the next."""
    now = max(now_us(), last.received_at)  # the clock may not be set
    end = _LAST_SEQUENCE if salvaged.last is None else max(salvaged.last, last.sequence)
    lost = _lost_ranges([sequence for sequence, _, _ in salvaged.intact], head.sequence, end)
    sources = read_sources(path)
    for _, source, received_at in salvaged.intact:
        sources.setdefault(source, received_at)
    if lost and not sources:
        log.error("%s: cannot determine which sources lost batches; no gaps are recorded", path.name)
    batches: list[GapBatch | EventBatch] = []
    for source, since in sorted(sources.items()):
        of_source = [
            (sequence, received_at) for sequence, batch_source, received_at in salvaged.intact if batch_source == source
        ]
        intervals = _intervals(lost, of_source, max(since, head.received_at - _CLOCK_US), now)
        if source == NO_SOURCE:
            batches += [_lost_actions(begin, to, why) for begin, to in intervals]
            continue
        gaps = tuple(Gap(begin, to, "spool_corrupt", None, f"spool file damaged: {why}") for begin, to in intervals)
        if gaps:
            batches.append(GapBatch(source, now_us(), gaps))
    return batches


def _lost_actions(begin: int, to: int, why: str) -> EventBatch:
    """Record that the audit trail may have lost actions between two times (µs)."""
    detail = {"outcome": "lost", "from": iso(begin), "to": iso(to), "error": f"spool file damaged: {why}"}
    event = Event("user_action", now_us(), text="records of actions may be lost: spool file damaged", detail=detail)
    return EventBatch(NO_SOURCE, event.time, (event,))


def _lost_ranges(intact_rows: Sequence[int], first: int, end: int) -> list[_LostRange]:
    """Ranges of sequences from ``first`` to ``end`` that are not intact. What is not known to be intact is lost."""
    lost: list[_LostRange] = []
    expected = first
    for sequence in intact_rows:
        if sequence > expected:
            lost.append(_LostRange(expected, sequence - 1))
        expected = sequence + 1
    if expected <= end:
        lost.append(_LostRange(expected, end))
    return lost


def _intervals(
    lost: Sequence[_LostRange], intact_rows: Sequence[tuple[int, int]], began: int, now: int
) -> list[tuple[int, int]]:
    """(from, to) of one source in µs, adjacent ones merged; ``intact_rows``: its (sequence, received_at), in order."""
    joined: list[tuple[int, int]] = []
    following = 0  # index of the first intact batch after the lost range
    for lost_range in lost:
        while following < len(intact_rows) and intact_rows[following][0] < lost_range.first:
            following += 1
        begin = intact_rows[following - 1][1] if following else began
        end = max(begin, intact_rows[following][1] if following < len(intact_rows) else now)
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined
