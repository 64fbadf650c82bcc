"""The spool: durable, bounded, in order, and honest about a damaged batch."""

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.batch import Event, EventBatch, SampleBatch
from core.errors import SpoolCorrupt, SpoolError, SpoolFull
from ingest.spool.append import Spool
from ingest.spool.format import decode, encode
from ingest.spool.metadata import WakeUpListener
from ingest.spool.reader import SpoolReader
from tests.samples import T0, batch
from tests.waiting import PATIENCE

MIB = 1024**2


def same(a: SampleBatch, b: SampleBatch) -> bool:
    return (a.source_id, a.received_at) == (b.source_id, b.received_at) and all(
        getattr(a.samples, name).tobytes() == getattr(b.samples, name).tobytes()
        for name in ("channel", "time", "value", "status")
    )


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**31), 2**31 - 1), st.integers(-(2**60), 2**60), st.floats(), st.integers(0, 2**32 - 1)
        ),
        min_size=1,
    )
)
def test_samples_come_back_to_the_bit(rows: list[tuple[int, int, float, int]]) -> None:
    stored = batch(rows)
    read = decode(encode(stored))
    assert isinstance(read, SampleBatch)
    assert same(stored, read)


@given(st.text(), st.none() | st.integers(0, 2**31))
def test_events_come_back(text: str, channel_id: int | None) -> None:
    stored = EventBatch(3, T0, (Event("text", T0, channel_id, 0, text, {"reason": text}),))
    assert decode(encode(stored)) == stored


def test_samples_have_the_bytes_that_older_spools_have() -> None:
    """The columns one after the other, little-endian: what a version before wrote is read, and the other way round."""
    record = encode(batch([(7, 1, 1.5, 0), (-2, 3, -0.0, 0x80050000)]))
    assert record.body.hex() == (
        "07000000feffffff"
        + "01e025dafe5b060003e025dafe5b0600"
        + "000000000000f83f0000000000000080"
        + "0000000000000580"
    )


def test_a_flipped_bit_is_found() -> None:
    record = encode(batch([(1, 0, 1.0, 0)]))
    damaged = bytearray(record.body)
    damaged[13] ^= 1
    with pytest.raises(SpoolCorrupt, match="checksum of 1 samples of source 1"):
        decode(replace(record, body=bytes(damaged)))


async def test_appended_batches_are_read_in_order_and_deleted(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "opcua.sqlite", 64 * MIB)
    sent = [batch([(i, j, float(j), 0) for j in range(10)]) for i in range(50)]
    await asyncio.gather(*(spool.append(b) for b in sent))
    file = SpoolReader(spool.path)
    taken = file.read(45)
    assert [len(t.batch) for t in taken] == [10] * 4, "takes whole batches, and no more rows than asked for"
    taken += file.read(5)
    assert [len(t.batch) for t in taken] == [10] * 5, "but one batch, however large"
    taken += file.read(10**6)
    assert all(isinstance(t.batch, SampleBatch) and same(t.batch, s) for t, s in zip(taken, sent, strict=True))
    assert [t.sequence for t in taken] == sorted({t.sequence for t in taken})
    file.delete(t.sequence for t in taken)
    assert file.depth()[:2] == (0, 0)
    file.close()
    await spool.close()


async def test_sequences_go_on_after_delete_and_reopen(tmp_path: Path) -> None:
    last = 0
    for _ in range(3):
        spool = Spool(tmp_path / "opcua.sqlite", 64 * MIB)
        await spool.append(batch([(1, 0, 0.0, 0)]))
        file = SpoolReader(spool.path)
        (taken,) = file.read(10)
        assert taken.sequence > last
        last = taken.sequence
        file.delete([last])
        file.close()
        await spool.close()


async def test_new_file_has_sequences_beyond_the_old_one(tmp_path: Path) -> None:
    sequences = []
    for name in ("old", "new"):
        spool = Spool(tmp_path / name / "opcua.sqlite", 64 * MIB)
        for _ in range(5):
            await spool.append(batch([(1, 0, 0.0, 0)]))
        file = SpoolReader(spool.path)
        sequences.append([t.sequence for t in file.read(100)])
        file.close()
        await spool.close()
    assert sequences[1][0] > sequences[0][-1]


async def test_full_spool_refuses_until_there_is_room(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "opcua.sqlite", MIB)
    rows = batch([(1, i, 0.0, 0) for i in range(4000)])
    with pytest.raises(SpoolFull, match=r"opcua\.sqlite is full: it has [\d,]+ bytes, max_bytes is 1,048,576"):
        for _ in range(100):
            await spool.append(rows)
    room = asyncio.create_task(spool.wait_for_room())
    file = SpoolReader(spool.path)
    taken = file.read(10**6)
    assert not room.done()
    file.delete(t.sequence for t in taken)
    await asyncio.wait_for(room, PATIENCE)
    await spool.append(rows)
    assert len(file.read(10**6)) == 1
    file.close()
    await spool.close()


async def test_closed_spool_refuses_batches(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "opcua.sqlite", MIB)
    await spool.close()
    with pytest.raises(SpoolError, match="closed"):
        await spool.append(batch([(1, 0, 0.0, 0)]))


async def test_close_makes_pending_batches_durable(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "opcua.sqlite", MIB)
    waiting = [asyncio.create_task(spool.append(batch([(i, 0, 0.0, 0)]))) for i in range(20)]
    await asyncio.sleep(0)
    await spool.close()
    await asyncio.gather(*waiting)
    file = SpoolReader(tmp_path / "opcua.sqlite")
    assert len(file.read(100)) == 20
    file.close()


async def test_append_wakes_the_writer(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    event = asyncio.Event()
    sleeper = WakeUpListener(folder, event)
    spool = Spool(folder / "opcua.sqlite", MIB)
    await spool.append(batch([(1, 0, 0.0, 0)]))
    await asyncio.wait_for(event.wait(), PATIENCE)
    sleeper.close()
    await spool.append(batch([(1, 1, 0.0, 0)]))  # nobody listens: no error
    await spool.close()


_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from ingest.spool.append import Spool
from tests.samples import batch

async def main() -> None:
    spool = Spool(Path(sys.argv[1]), 1 << 30)
    async def one(i: int) -> None:
        await spool.append(batch([(i, 0, float(i), 0)]))
        os.write(1, b"%d\\n" % i)
        if i == 200:
            os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.gather(*(one(i) for i in range(400)))
asyncio.run(main())
"""


def test_durable_batches_survive_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "opcua.sqlite"
    run = subprocess.run([sys.executable, "-c", _KILLED, str(path)], capture_output=True, check=False)
    assert run.returncode == -9
    told = {int(line) for line in run.stdout.split()}
    assert 200 in told
    file = SpoolReader(path)
    kept = {int(t.batch.samples.channel[0]) for t in file.read(10**6) if isinstance(t.batch, SampleBatch)}
    file.close()
    assert told <= kept


def test_decoded_columns_are_views_without_copy(tmp_path: Path) -> None:
    decoded = decode(encode(batch([(1, 2, 3.0, 4)])))
    assert isinstance(decoded, SampleBatch)
    assert decoded.samples.value.base is not None
    assert np.array_equal(decoded.samples.value, [3.0])
