"""Repair of a spool file while processes use it."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from core.batch import Batch, GapBatch, SampleBatch
from ingest.spool.append import Spool
from ingest.spool.file import connect
from ingest.spool.format import Record, decode
from ingest.spool.reader import SpoolReader
from ingest.spool.repair import damaged_files
from schema.queries import load
from tests.batches import gaps_of
from tests.integration.ingest.test_spool_repair import MIB, NAME, overwrite, quiet, recover
from tests.samples import batch

__all__ = ["quiet"]  # fixtures


async def test_running_collector_continues_after_a_repair(tmp_path: Path) -> None:
    """The schema page is destroyed under both processes; what is appended afterwards is in the new file."""
    spool = Spool(tmp_path / NAME, 64 * MIB)
    file = SpoolReader(tmp_path / NAME)
    await spool.append(batch([(1, 0, 0.5, 0)]), {"heard:1": "1"})
    (first,) = file.read(10)
    for path in (spool.path, spool.path.with_name(NAME + "-wal")):
        overwrite(path, 0, b"\xa5" * path.stat().st_size)
    with closing(sqlite3.connect(spool.path)) as direct, pytest.raises(sqlite3.DatabaseError):
        direct.execute("SELECT * FROM batch").fetchall()
    for k in range(2, 40):
        await spool.append(batch([(k, i, 0.5, 0) for i in range(2000)]), {"heard:1": str(k)})
    file.delete([first.sequence])
    taken = file.read(10**9)
    got = [b.batch.samples.channel[0] for b in taken if isinstance(b.batch, SampleBatch)]
    file.close()
    await spool.close()
    taken_again, notes = _recover_later(spool.path)
    channels = {int(b.samples.channel[0]) for b in taken_again if isinstance(b, SampleBatch)}
    lost = set(range(2, 40)) - channels - {int(c) for c in got}
    assert not lost or gaps_of([*taken_again, *(spooled.batch for spooled in taken)])
    assert notes["heard:1"] == "39"


def _recover_later(path: Path) -> tuple[list[Batch], dict[str, str]]:
    with closing(connect(path, "FULL", create=False)) as connection:
        rows = connection.execute(load("spool")["select_batches"], (0,)).fetchall()
        notes = {name: value for name, value, _ in connection.execute(load("spool")["select_notes"])}
    return [decode(Record(*row[1:]), row[0]) for row in rows], notes


async def test_writer_detects_a_changed_batch_and_the_collector_continues(tmp_path: Path) -> None:
    spool = Spool(tmp_path / NAME, 64 * MIB)
    for k in range(5):
        await spool.append(batch([(k, 0, 0.0, 0)]), {"heard:1": str(k)})
    with closing(sqlite3.connect(spool.path)) as direct, direct:
        direct.execute("UPDATE batch SET body = zeroblob(24) WHERE sequence = (SELECT min(sequence) + 2 FROM batch)")
    file = SpoolReader(spool.path)
    taken = file.read(100)
    samples = [b for b in taken if isinstance(b.batch, SampleBatch)]
    assert [int(b.batch.samples.channel[0]) for b in samples if isinstance(b.batch, SampleBatch)] == [0, 1, 3, 4]
    (gap,) = [gap for b in taken if isinstance(b.batch, GapBatch) for gap in b.batch.gaps]
    assert gap.reason == "spool_corrupt"
    await spool.append(batch([(9, 0, 0.0, 0)]), {"heard:1": "9"})
    (later,) = file.read(100)
    assert later.sequence > max(b.sequence for b in taken)
    file.delete([b.sequence for b in taken])
    file.delete([later.sequence])
    assert file.depth()[:2] == (0, 0)
    file.close()
    await spool.close()
    (kept,) = damaged_files(spool.path)
    with closing(sqlite3.connect(kept)) as direct:
        assert direct.execute("SELECT count(*) FROM batch").fetchone()[0] == 5, "the damaged file is kept whole"


_COLLECTOR = """
import asyncio, os, sys
from pathlib import Path
from ingest.spool.append import Spool
from tests.samples import batch

async def main() -> None:
    spool = Spool(Path(sys.argv[1]), 1 << 30)
    async def one(lane: int) -> None:
        for k in range(100):
            number = 1000 * lane + k
            await spool.append(batch([(number, 0, float(number), 0)]), {f"heard:{lane}": str(k)})
            os.write(1, b"%d\\n" % number)
            await asyncio.sleep(0.005)
    await asyncio.gather(*(one(lane) for lane in range(4)))
    await spool.close()
asyncio.run(main())
"""


async def test_two_processes_continue_with_the_repaired_file(tmp_path: Path) -> None:
    """The writer repairs again and again under a collector in another process, whose every batch is somewhere."""
    path = tmp_path / NAME
    collector = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _COLLECTOR, str(path), stdout=asyncio.subprocess.PIPE
    )
    assert collector.stdout is not None
    durable = [int(await collector.stdout.readline())]
    file = SpoolReader(path)
    taken: dict[int, Batch] = {}
    damaged: list[int] = []

    def take() -> int:
        new = {b.sequence: b.batch for b in file.read(5)}
        assert not new.keys() & taken.keys(), "a sequence is given once, and taken once"
        taken.update(new)
        file.delete(list(new)[::2])
        return len(new)

    while line := await collector.stdout.readline():
        durable.append(int(line))
        if len(durable) % 80 == 0:
            command = (sys.executable, "-c", _SPOIL, str(path), str(max(taken, default=0)))
            spoil = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            damaged += [int(n) for n in (await spoil.communicate())[0].split()]
        if len(durable) % 5 == 0:  # as many as were told: there is always something to spoil
            take()
    assert await collector.wait() == 0
    while take():
        pass
    file.close()
    numbers = [int(b.samples.channel[0]) for b in taken.values() if isinstance(b, SampleBatch)]
    assert len(numbers) == len(set(numbers))
    assert damaged
    assert len(durable) == 400
    assert set(durable) - set(numbers) == set(damaged)
    assert {gap.reason for gap in gaps_of(taken.values())} == {"spool_corrupt"}
    assert len(damaged_files(path)) >= 1
    assert (await recover(path))[1] == {f"heard:{lane}": "99" for lane in range(4)}


_SPOIL = """
import sqlite3, struct, sys
direct = sqlite3.connect(sys.argv[1], timeout=120)
with direct:
    direct.execute("BEGIN IMMEDIATE")
    query = "SELECT sequence, body FROM batch WHERE kind = 'samples' AND sequence > ? LIMIT 1"
    for sequence, body in direct.execute(query, sys.argv[2:]).fetchall():
        direct.execute("UPDATE batch SET received_at = received_at + 1 WHERE sequence = ?", (sequence,))
        print(struct.unpack("<i", body[:4])[0])
direct.close()
"""
