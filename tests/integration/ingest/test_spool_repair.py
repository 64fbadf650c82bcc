"""Damaged spool files: what is intact comes back to the bit, what is not is on record, and both processes go on."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from core.batch import Batch, Event, EventBatch, Gap, GapBatch, SampleBatch
from core.errors import SpoolError
from core.timestamps import now_us
from core.users.directory import AUDIT_SPOOL
from ingest.spool import repair
from ingest.spool.append import Spool
from ingest.spool.audit import Action, Person, record
from ingest.spool.file import PAGE_SIZE, find_damage, note_crc32
from ingest.spool.format import Record, decode, encode, row_checksum
from ingest.spool.pages import Pages
from ingest.spool.reader import SpoolReader
from ingest.spool.repair import damaged_files
from schema.queries import load
from tests.samples import batch
from tests.spooling import Spooled
from tests.users import recorded_actions

MIB = 1024**2
_NUMBERS = frozenset(map(str, range(60)))
NAME = "opcua.sqlite"


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


@dataclass(frozen=True)
class Stored:
    """A spool file with a log beside it, as a killed process leaves it, and what is in it."""

    folder: Path
    rows: dict[int, Record]  # sequence → what was appended, of those that were not deleted
    notes: dict[str, str]


def _batches(chance: random.Random, count: int) -> Iterator[Batch]:
    for k in range(count):
        source = chance.choice((1, 2, 7))
        rows = chance.choice((1, 3, 50, 400, 2000, 6000))
        if chance.random() < 0.15:
            yield EventBatch(source, now_us(), (Event("text", now_us(), 5, 0, "open" * rows, {"k": k}),))
        else:
            yield replace(batch([(k, i, chance.random(), 0) for i in range(rows)], source), received_at=now_us())


async def _fill(folder: Path, chance: random.Random) -> tuple[dict[int, Record], dict[str, str]]:
    spool = Spool(folder / NAME, 64 * MIB)
    file = SpoolReader(folder / NAME)
    for k, one in enumerate(_batches(chance, 60)):
        await spool.append(one, {f"heard:{one.source_id}": str(k), "open": "[1, 2]" if k % 2 else None})
        if k == 20:
            file.delete([b.sequence for b in file.read(1)])
            file.delete([b.sequence for b in file.read(9000)])
    kept = dict(spool.notes)
    # A copy while it is open: with its log, as after a kill.
    copied = folder / "copied"
    copied.mkdir()
    for path in _beside(folder):
        shutil.copy(path, copied)
    file.close()
    await spool.close()
    with closing(sqlite3.connect(folder / NAME)) as direct:
        found = direct.execute(load("spool")["select_batches"], (0,)).fetchall()
    return {row[0]: Record(*row[1:]) for row in found}, kept


def _beside(folder: Path) -> list[Path]:
    return list(folder.glob(f"{NAME}*"))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    folder = tmp_path_factory.mktemp("stored")
    rows, notes = asyncio.run(_fill(folder, random.Random(1)))
    copied = folder / "copied"
    assert (copied / f"{NAME}-wal").stat().st_size > 20 * PAGE_SIZE
    assert len(rows) > 40
    return Stored(copied, rows, notes)


def _copy(stored: Stored, to: Path) -> Path:
    shutil.copytree(stored.folder, to, ignore=shutil.ignore_patterns("*-shm"), dirs_exist_ok=True)
    return to / NAME


async def recover(path: Path) -> tuple[dict[int, Batch], dict[str, str]]:
    """Batches that the writer takes, and notes of the collector."""
    spool = Spool(path, 64 * MIB)
    try:
        return {taken.sequence: taken.batch for taken in Spooled(path).taken()}, dict(spool.notes)
    finally:
        await spool.close()


def _equal(a: Batch, b: Batch) -> bool:
    return encode(a) == encode(b)


def _look(stored: Stored, taken: dict[int, Batch], notes: dict[str, str]) -> set[int]:
    """Nothing is invented, altered or unsaid. Returns what is lost."""
    recorded: dict[int, list[Gap]] = {}
    for sequence, one in taken.items():
        if isinstance(one, GapBatch):
            recorded.setdefault(one.source_id, []).extend(one.gaps)
            assert sequence > max(stored.rows), "a sequence is given once"
        else:
            assert sequence in stored.rows
            assert _equal(one, decode(stored.rows[sequence], sequence))
    lost = stored.rows.keys() - taken.keys()
    for sequence in lost:
        row = stored.rows[sequence]
        assert any(
            gap.reason == "spool_corrupt" and gap.from_time <= row.received_at <= (gap.to_time or 0)
            for gap in recorded.get(row.source_id, [])
        ), f"nothing says that batch {sequence} is lost"
    # With the log an older note is all that there is.
    assert all(notes[name] in {"open": ("[1, 2]",)}.get(name, _NUMBERS) for name in notes)
    assert notes.keys() <= stored.notes.keys()
    return set(lost)


async def test_an_intact_file_is_left_alone(stored: Stored, tmp_path: Path) -> None:
    taken, notes = await recover(_copy(stored, tmp_path))
    assert taken.keys() == stored.rows.keys()
    assert not _look(stored, taken, notes)
    assert notes == stored.notes
    assert not (tmp_path / "damaged").exists()


@pytest.fixture
def dead_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Called: the machine's clock stands a minute behind 1970, as after a start with an empty battery."""
    return lambda: monkeypatch.setattr("time.time_ns", lambda: 60 * 10**9)


async def test_clock_at_1970_damages_nothing(stored: Stored, tmp_path: Path, dead_clock: Callable[[], None]) -> None:
    path = _copy(stored, tmp_path)
    dead_clock()
    taken, notes = await recover(path)
    assert taken.keys() == stored.rows.keys()
    assert notes == stored.notes
    assert not (tmp_path / "damaged").exists()


async def test_losses_are_recorded_with_a_clock_at_1970(tmp_path: Path, dead_clock: Callable[[], None]) -> None:
    spool = Spool(tmp_path / NAME, 64 * MIB)
    begin = now_us()
    await spool.append(replace(batch([(1, 0, 0.0, 0)], 4), received_at=begin))
    await spool.append(replace(batch([(2, 0, 0.0, 0)], 4), received_at=begin + 7_000_000))
    await spool.close()
    (tmp_path / NAME).unlink()
    dead_clock()
    taken, _ = await recover(tmp_path / NAME)
    (found,) = taken.values()
    assert isinstance(found, GapBatch)
    (gap,) = found.gaps
    assert gap.from_time <= begin
    assert gap.to_time == begin + 7_000_000


async def test_new_files_share_no_sequence_with_a_clock_at_1970(tmp_path: Path, dead_clock: Callable[[], None]) -> None:
    """plant.ingest_batch would take the second one's batches for a replay of the first one's: a silent loss."""
    before = Spool(tmp_path / "before" / NAME, 64 * MIB)
    await before.append(batch([(1, 0, 0.0, 0)]))
    await before.close()
    dead_clock()
    given = []
    for name in ("first", "second"):
        spool = Spool(tmp_path / name / NAME, 64 * MIB)
        await spool.append(batch([(1, 0, 0.0, 0)]))
        await spool.close()
        given.append(Spooled(spool.path).taken()[0].sequence)
    assert abs(given[0] - given[1]) > 1_000_000
    assert min(given) > 1_700_000_000_000_000, "as far ahead as of a clock that goes"


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def _damage(chance: random.Random, path: Path) -> str:
    log = path.with_name(path.name + "-wal")
    target = chance.choice((path, log))
    size = target.stat().st_size
    match chance.randrange(6):
        case 0:
            length = chance.choice((1, 4, 100, 5000, 3 * PAGE_SIZE))
            at = chance.randrange(max(1, size - length))
            overwrite(target, at, chance.randbytes(length))
            return f"{length} bytes at {at} of {target.name}"
        case 1:
            at = chance.randrange(size)
            os.truncate(target, at)
            return f"{target.name} cut at {at} of {size}"
        case 2:
            at, length = 0, chance.choice((1, 16, 100, PAGE_SIZE))
            overwrite(target, 0, chance.randbytes(length))
            return f"head of {target.name}, {length} bytes"
        case 3:
            places = [chance.randrange(size) for _ in range(20)]
            for at in places:
                overwrite(target, at, chance.randbytes(1))
            return f"20 single bytes of {target.name}: {places}"
        case 4:
            page = chance.randrange(max(1, size // PAGE_SIZE))
            overwrite(target, page * PAGE_SIZE, bytes(PAGE_SIZE))
            return f"page {page} of {target.name} is zero"
        case _:
            log.unlink()
            return "no log"


@pytest.mark.parametrize("seed", range(25))  # tests/fuzz takes more
async def test_random_damage_is_repaired_or_reported(stored: Stored, tmp_path: Path, seed: int) -> None:
    path = _copy(stored, tmp_path)
    what = _damage(random.Random(seed), path)
    taken, notes = await recover(path)
    lost = _look(stored, taken, notes)
    if lost:
        assert damaged_files(path), what
    again, _ = await recover(path)
    assert again.keys() == taken.keys(), "a repaired file is whole"


async def test_repair_keeps_every_batch_outside_the_damaged_page(stored: Stored, tmp_path: Path) -> None:
    """Every third page of a file without a log is destroyed, one at a time; only what stands on it is lost."""
    whole = _copy(stored, tmp_path / "whole")
    with closing(sqlite3.connect(whole)) as direct:
        direct.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    pages = whole.stat().st_size // PAGE_SIZE
    damaged = 0
    for page in range(0, pages, 3):
        folder = tmp_path / f"page-{page}"
        folder.mkdir()
        for other in _beside(whole.parent):
            shutil.copy(other, folder)
        path = folder / NAME
        overwrite(path, page * PAGE_SIZE, random.Random(page).randbytes(PAGE_SIZE))
        taken, notes = await recover(path)
        lost = _look(stored, taken, notes)
        assert lost <= _rows_on(whole, page + 1), f"page {page + 1}: lost more than stood there"
        damaged += bool(lost)
        shutil.rmtree(folder)
    assert damaged > 10


def _rows_on(path: Path, number: int) -> set[int]:
    """Sequences that need a page: found by taking it away."""
    with Pages(path, path.with_name("none")) as pages:
        every = {row[0] for row in pages.rows() if len(row) == 10}
        intact = pages.page

        def without(asked: int) -> bytes:
            return b"" if asked == number else intact(asked)

        pages.page = without  # type: ignore[method-assign, assignment]
        left = {row[0] for row in pages.rows() if len(row) == 10}
    return {sequence for sequence in every - left if isinstance(sequence, int)}


def test_every_change_of_a_batch_is_detected(stored: Stored) -> None:
    sequence, record = next((s, r) for s, r in stored.rows.items() if r.kind == "samples")
    assert _equal(decode(record, sequence), decode(record, sequence))
    others = {"source_id": 3, "rows": record.rows + 1, "received_at": 0, "first_time": 1, "last_time": 1}
    for name, value in {**others, "kind": "events", "body": bytes(len(record.body))}.items():
        changed = Record(**{**{f: getattr(record, f) for f in Record.__slots__}, name: value})
        with pytest.raises(SpoolError):
            decode(changed, sequence)
    with pytest.raises(SpoolError):
        decode(record, sequence + 1)


async def test_damaged_empty_spool_has_lost_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / NAME, 64 * MIB)
    file = SpoolReader(spool.path)
    for k in range(5):
        await spool.append(batch([(k, 0, 0.0, 0)]))
    file.delete([b.sequence for b in file.read(100)])
    file.close()
    await spool.close()
    overwrite(spool.path, 0, b"garbage")
    taken, _ = await recover(spool.path)
    assert not taken, "all of it is in the database: no gap"


async def test_removed_spool_is_a_gap_and_sequences_continue(tmp_path: Path) -> None:
    spool = Spool(tmp_path / NAME, 64 * MIB)
    await spool.append(batch([(1, 0, 0.0, 0)], 4))
    (before,) = Spooled(spool.path).taken()
    await spool.close()
    spool.path.unlink()
    taken, _ = await recover(spool.path)
    ((sequence, gaps),) = taken.items()
    assert isinstance(gaps, GapBatch)
    assert (gaps.source_id, gaps.gaps[0].reason) == (4, "spool_corrupt")
    assert sequence > before.sequence


async def test_interrupted_repair_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / NAME, 64 * MIB)
    for k in range(3):
        await spool.append(batch([(k, 0, 0.0, 0)]))
    await spool.close()
    overwrite(spool.path, 0, bytes(16))

    def killed(path: Path, folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(repair, "_move_into_place", killed)
        SpoolReader(spool.path).read(10)
    assert find_damage(spool.path) is not None
    taken, _ = await recover(spool.path)
    assert len([b for b in taken.values() if isinstance(b, SampleBatch)]) == 3


@pytest.mark.parametrize(("version", "age"), [(1, "older"), (3, "newer")])
async def test_spool_of_another_version_is_left_alone(tmp_path: Path, version: int, age: str) -> None:
    spool = Spool(tmp_path / NAME, 64 * MIB)
    await spool.append(batch([(1, 0, 0.0, 0)]))
    await spool.close()
    with closing(sqlite3.connect(spool.path)) as direct:
        direct.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(SpoolError, match=f"version {version}, {age} than 2: it was written by another plantlog"):
        Spool(tmp_path / NAME, 64 * MIB)
    with pytest.raises(SpoolError, match=age):
        SpoolReader(tmp_path / NAME).read(1)
    assert not (tmp_path / "damaged").exists()


def test_checksum_separates_note_name_from_value() -> None:
    assert note_crc32("ab", "c") != note_crc32("a", "bc")
    record = encode(batch([(1, 0, 0.5, 0)]))
    assert row_checksum(1, record) != row_checksum(2, record)


async def test_lost_records_of_actions_are_an_event(tmp_path: Path) -> None:
    person = Person("anna", "engineer", None, "here")
    for number in range(3):
        await asyncio.to_thread(record, tmp_path, person, Action("apply", {"number": str(number)}, "done"))
    path = tmp_path / "spool" / AUDIT_SPOOL
    path.write_bytes(b"x" * path.stat().st_size)
    await asyncio.to_thread(record, tmp_path, person, Action("apply", {}, "done"))
    lost, after = recorded_actions(tmp_path)
    assert (lost.type, lost.text) == ("user_action", "records of actions may be lost: spool file damaged")
    assert lost.detail["outcome"] == "lost"
    assert after.text == "anna: apply"
