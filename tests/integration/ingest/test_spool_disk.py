"""The spool on disks that are full, read-only or failing: small file systems of their own, which need root to mount."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from core.batch import Event, EventBatch, Gap, GapBatch, SampleBatch
from core.config.model import WriterOptions
from core.config.sources import ModbusSource, OpcuaSource
from core.errors import SpoolError, SpoolFull
from core.timestamps import now_us
from ingest.modbus.collector import Collector as ModbusCollector
from ingest.modbus.transport import Connections
from ingest.opcua.collector import Collector
from ingest.spool.append import Spool
from ingest.spool.reader import SpoolReader
from ingest.status import SourceStatus
from ingest.writer.writer import Writer
from tests.batches import gaps_of
from tests.database import Database
from tests.integration.ingest.test_opcua_recovery import serving
from tests.integration.ingest.test_push import site_in
from tests.modbus_wire import good_response, misbehaving_device
from tests.samples import batch
from tests.spooling import Spooled, drained
from tests.waiting import PATIENCE, until

MIB = 1024**2
DISK = 64 * MIB
LIMIT = 1024 * MIB  # of the spool: more than the disk has

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


def run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@dataclass
class Disk:
    """A mounted file system."""

    folder: Path
    image: Path | None  # None: tmpfs

    def free(self) -> int:
        disk = os.statvfs(self.folder)
        return disk.f_bavail * disk.f_frsize

    def fill(self, leave: int) -> None:
        """Somebody else's file takes all but so many bytes."""
        with (self.folder / "film.mkv").open("ab") as file:
            while (left := self.free() - leave) > 0:
                try:
                    file.write(bytes(min(left, MIB)))
                    file.flush()
                except OSError:
                    return

    def clear(self) -> None:
        (self.folder / "film.mkv").unlink()

    def remount(self, how: str) -> None:
        run("mount", "-o", f"remount,{how}", self.folder)

    def fail(self) -> None:
        """ext4 finds itself damaged, and takes no more writes (errors=remount-ro)."""
        device = Path(run("findmnt", "-no", "SOURCE", self.folder)).name
        Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("1")

    def check(self) -> None:
        """Unmounted, repaired, mounted again."""
        assert self.image is not None
        run("umount", "--detach-loop", self.folder)
        repaired = subprocess.run(["e2fsck", "-fy", self.image], check=False, capture_output=True, text=True)
        assert repaired.returncode in (0, 1), repaired.stdout + repaired.stderr
        run("mount", "-o", "loop,rw,errors=remount-ro", self.image, self.folder)


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    image = None
    if request.param == "tmpfs":
        run("mount", "-t", "tmpfs", "-o", f"size={DISK}", "plantlog-test", folder)
    else:
        image = tmp_path / "disk.img"
        with image.open("wb") as file:
            file.truncate(DISK)
        run("mkfs.ext4", "-q", "-m", "0", image)
        run("mount", "-o", "loop,errors=remount-ro", image, folder)
    try:
        yield Disk(folder, image)
    finally:
        run("umount", "--lazy", folder)


def samples(number: int, rows: int = 4000) -> SampleBatch:
    """About 94 KiB."""
    return batch([(number, i, float(i), 0) for i in range(rows)])


async def until_full(spool: Spool, numbers: Iterator[int]) -> list[int]:
    """Append until the spool takes no more; which batches it took."""
    taken: list[int] = []
    with pytest.raises(SpoolFull, match=r"no disk space left for opcua\.sqlite"):
        for number in numbers:
            await spool.append(samples(number), {"heard:1": str(number)})
            taken.append(number)
    return taken


def inside(file: SpoolReader) -> tuple[list[int], list[int]]:
    """(sequences, first channels of the sample batches) that were not taken yet."""
    taken = file.read(10**9)
    batches = [b.batch for b in taken if isinstance(b.batch, SampleBatch)]
    return [b.sequence for b in taken], [int(batch.samples.channel[0]) for batch in batches]


async def test_a_full_disk(disk: Disk) -> None:
    spool = Spool(disk.folder / "spool" / "opcua.sqlite", LIMIT)
    numbers = iter(range(10_000))
    disk.fill(leave=10 * MIB)
    durable = await until_full(spool, numbers)
    assert durable
    assert spool.full
    # What is missing is still put on record, and so is what happened.
    for k in range(50):
        gap = Gap(k, None, "spool_full", tuple(range(1000)))
        await spool.append(GapBatch(1, now_us(), (gap,)), {"gaps:1": str(k)})
        await spool.append(EventBatch(1, now_us(), (Event("restart", now_us()),)))
    with pytest.raises(SpoolFull):
        await spool.append(samples(10_001))
    assert spool.notes["gaps:1"] == "49"
    # The writer takes all that is inside, and deletes it.
    disk.fill(leave=0)
    file = SpoolReader(spool.path)
    sequences, channels = inside(file)
    assert channels == durable
    assert len(sequences) == len(durable) + 100
    for sequence in sequences:
        file.delete([sequence])
    assert file.depth()[:2] == (0, 0)
    room = asyncio.create_task(spool.wait_for_room())
    disk.clear()
    await asyncio.wait_for(room, PATIENCE)
    await spool.append(samples(20_000))
    assert inside(file)[1] == [20_000]
    file.close()
    await spool.close()
    again = Spool(spool.path, LIMIT)
    assert again.notes == {"heard:1": str(durable[-1]), "gaps:1": "49"}
    await again.close()


async def test_a_full_disk_is_full_until_it_has_space(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the ballast was not needed yet: only samples were rejected."""
    spool = Spool(disk.folder / "opcua.sqlite", LIMIT)
    disk.fill(leave=0)
    await until_full(spool, iter(range(1000)))
    measure, looks = spool._measure, list[tuple[int, bool]]()

    def look() -> tuple[int, bool]:
        looks.append(measure())
        return looks[-1]

    monkeypatch.setattr(spool, "_measure", look)
    room = asyncio.create_task(spool.wait_for_room())
    await until(lambda: len(looks) > 2)
    assert spool.full
    assert not room.done()
    disk.clear()
    await asyncio.wait_for(room, PATIENCE)
    await spool.append(samples(1))
    await spool.close()


async def test_deleted_batches_make_room_on_a_full_disk(disk: Disk) -> None:
    spool = Spool(disk.folder / "opcua.sqlite", LIMIT)
    numbers = iter(range(10_000))
    disk.fill(leave=20 * MIB)
    durable = await until_full(spool, numbers)
    disk.fill(leave=0)
    file = SpoolReader(spool.path)
    sequences, channels = inside(file)
    assert channels == durable
    for k in range(0, len(sequences), 10):
        file.delete(sequences[k : k + 10])
    await asyncio.wait_for(spool.wait_for_room(), PATIENCE)
    await spool.append(samples(30_000))
    assert inside(file)[1] == [30_000]
    file.close()
    await spool.close()


async def test_the_writer_empties_the_spool_of_a_full_disk(
    disk: Disk, database: Database, owner: asyncpg.Connection
) -> None:
    spool = Spool(disk.folder / "opcua.sqlite", LIMIT)
    disk.fill(leave=10 * MIB)
    durable = await until_full(spool, iter(range(100)))
    disk.fill(leave=0)
    writer = Writer(disk.folder, database.ingest_dsn, WriterOptions(connections=1))
    writing = asyncio.create_task(writer.run())
    await until(lambda: writer.written == 4000 * len(durable))
    disk.clear()
    await asyncio.wait_for(spool.wait_for_room(), PATIENCE)
    await spool.append(samples(101))
    await until(lambda: writer.written == 4000 * (len(durable) + 1))
    writer.drain()
    await asyncio.wait_for(writing, PATIENCE)
    assert await owner.fetchval("SELECT count(*) FROM plant.samples_raw") == 4000 * (len(durable) + 1)
    assert await spool.depth() == (0, 0)
    await spool.close()


async def test_a_read_only_disk(disk: Disk) -> None:
    path = disk.folder / "opcua.sqlite"
    spool = Spool(path, LIMIT)
    for number in range(3):
        await spool.append(samples(number), {"heard:1": str(number)})
    await spool.close()
    disk.remount("ro")
    with pytest.raises(SpoolError, match=r"opcua\.sqlite: .*(readonly|unable to open)"):
        Spool(path, LIMIT)
    file = SpoolReader(path)
    sequences, channels = inside(file)
    assert channels == [0, 1, 2]
    with pytest.raises(SpoolError, match=r"opcua\.sqlite: "):
        file.delete(sequences)
    assert file.depth()[0] == 3
    disk.remount("rw")
    file.delete(sequences)
    assert file.depth()[0] == 0
    spool = Spool(path, LIMIT)
    assert spool.notes == {"heard:1": "2"}
    await spool.append(samples(3))
    assert inside(file)[1] == [3]
    file.close()
    await spool.close()


@pytest.mark.parametrize("disk", ["ext4"], indirect=True)
async def test_a_disk_that_fails_under_a_running_collector(disk: Disk) -> None:
    path = disk.folder / "opcua.sqlite"
    spool = Spool(path, LIMIT)
    file = SpoolReader(path)
    for number in range(5):
        await spool.append(samples(number))
    os.sync()
    disk.fail()
    with pytest.raises(SpoolError) as refused:
        await spool.append(samples(5))
    assert not isinstance(refused.value, SpoolFull)
    with pytest.raises(SpoolError):
        await spool.append(GapBatch(1, now_us(), (Gap(1, None, "spool_full"),)))
    sequences, channels = inside(file)
    assert channels == [0, 1, 2, 3, 4], "what is inside can still be taken"
    with pytest.raises(SpoolError):
        file.delete(sequences)
    file.close()
    await spool.close()
    disk.check()
    spool, file = Spool(path, LIMIT), SpoolReader(path)
    await spool.append(samples(6))
    assert inside(file)[1] == [0, 1, 2, 3, 4, 6], "what was said to be durable is there, what was refused is not"
    file.close()
    await spool.close()


async def test_writer_continues_beside_a_failing_disk(disk: Disk, database: Database, tmp_path: Path) -> None:
    """A spool file that can't be opened does not keep the others from being written."""
    for name in ("modbus", "opcua"):
        spool = Spool(tmp_path / f"{name}.sqlite", LIMIT)
        await spool.append(samples(1 if name == "opcua" else 2))
        await spool.close()
    (tmp_path / "modbus.sqlite").unlink()
    with suppress(FileNotFoundError):
        (tmp_path / "modbus.sqlite.last").unlink()
    (tmp_path / "modbus.sqlite").symlink_to(disk.folder / "not-there")
    writer = await drained(Writer(tmp_path, database.ingest_dsn, WriterOptions(connections=1)))
    assert writer.written == 4000


async def test_modbus_on_a_full_disk_has_a_gap(disk: Disk) -> None:
    spool = Spool(disk.folder / "modbus.sqlite", LIMIT)
    async with misbehaving_device(lambda frame, number: [(0, good_response(frame, number % 1000))]) as port:
        source = ModbusSource.model_validate(
            {
                "name": "plc",
                "kind": "modbus",
                "address": f"tcp://127.0.0.1:{port}",
                "poll_interval": 0.05,
                "tags": [{"name": f"t{i}", "address": f"holding:{i}", "type": "uint16"} for i in range(3)],
            }
        )
        status = SourceStatus(1, "plc", "modbus", source.address, 3)
        collecting = asyncio.create_task(
            ModbusCollector(source, {f"t{i}": i for i in range(3)}, status, spool, Connections()).run()
        )
        await until(lambda: status.samples > 10)
        await asyncio.to_thread(disk.fill, 0)
        await until(lambda: status.open_gaps > 0)
        disk.clear()
        await until(lambda: status.open_gaps == 0)
        at = status.samples
        await until(lambda: status.samples > at)
        collecting.cancel()
        await asyncio.wait([collecting])
    batches = Spooled(spool.path).read()
    await spool.close()
    gaps = [gap for gap in gaps_of(batches) if gap.reason == "spool_full"]
    assert [(g.channel_ids, g.to_time is None) for g in gaps[:2]] == [((0, 1, 2), True), ((0, 1, 2), False)]
    gap = gaps[1]
    times = sorted({t for b in batches if isinstance(b, SampleBatch) for t in b.samples.time.tolist()})
    assert times[times.index(gap.from_time) + 1] == gap.to_time, "from the last sample before to the first behind"


async def test_opcua_on_a_full_disk_leaves_values_on_the_server(disk: Disk, tmp_path: Path) -> None:
    """Nothing is acknowledged, the server's queue holds what comes, and nothing is lost."""
    spool = Spool(disk.folder / "opcua.sqlite", LIMIT)
    async with serving(tmp_path / "server") as server:
        source = OpcuaSource.model_validate(
            {
                "name": "ua",
                "kind": "opcua",
                "address": server.address,
                "insecure": True,
                "publishing_interval": 0.1,
                "queue_size": 1000,
                "tags": [{"name": "a", "address": "ns=2;s=unit.a"}],
            }
        )
        status = SourceStatus(1, "ua", "opcua", source.address, 1)
        collecting = asyncio.create_task(Collector(source, {"a": 0}, status, spool, tmp_path / "pki", spool).run())
        await until(lambda: status.samples > 0)
        await server.write(20)
        await asyncio.to_thread(disk.fill, 0)
        while not spool.full:
            await server.write(5)
        stored = status.samples
        await server.write(50)
        assert status.samples - stored <= 25, "what was on its way, and no more"
        disk.clear()
        await until(lambda: status.samples > len(server.written))  # the value at the start is one, too
        collecting.cancel()
        await asyncio.wait([collecting])
    batches = Spooled(spool.path).read()
    await spool.close()
    values = {v for b in batches if isinstance(b, SampleBatch) for v in b.samples.value.tolist() if v}
    assert sorted(values) == server.written
    assert not [gap for gap in gaps_of(batches) if gap.to_time != gap.from_time]


async def test_push_on_a_full_disk_answers_503(disk: Disk) -> None:
    site = site_in(disk.folder)
    rows = [b"boiler pressure=%d %d" % (i, 1_790_000_000_000_000_000 + 1000 * i) for i in range(5000)]
    answers: list[int] = []
    async with site.running():
        assert (await site.push(rows[0])).status == 204
        disk.fill(leave=0)
        for _ in range(200):
            refused = await site.push(b"\n".join(rows))
            answers.append(refused.status)
            if refused.status != 204:
                break
        assert refused.status == 503
        assert "no disk space left for push.sqlite" in refused.message
        assert refused.headers["Retry-After"]
        disk.clear()

        async def taken() -> bool:
            return (await site.push(b"\n".join(rows))).status == 204

        await until(taken, every=0.1)
        assert len(set(site.samples())) == len(rows)
