"""Modbus RTU: libmodbus on a serial line and behind a gateway, and all that can be wrong with a serial device."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from pymodbus.framer.rtu import FramerRTU

from core.registry import Registry
from ingest.modbus.failures import BAD_TIMEOUT
from ingest.modbus.transport import Connections
from tests.integration.ingest.test_modbus_collector import collecting, gaps, tag, values
from tests.integration.ingest.test_modbus_restart import collector
from tests.peers import FIRST_REGISTER, Peer, peer
from tests.ports import free_ports
from tests.serial_lines import gateway, line
from tests.spooling import Spooled
from tests.waiting import until

TAGS = [tag(f"c{i}", f"holding:{FIRST_REGISTER + 2 * i}", "float32") for i in range(3)]
UNIT = 3
_NOBODY = 65534  # user id


@asynccontextmanager
async def answering(end: Path, units: set[int], noise: bytes = b"") -> AsyncIterator[list[int]]:
    """The end of a serial line at which some units answer each request with their id; gives the unit ids asked."""
    fd = os.open(end, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    requested: list[int] = []

    def answer() -> None:
        request = os.read(fd, 256)
        requested.append(request[0])
        if request[0] not in units:
            os.write(fd, noise)
        else:
            size = 2 * int.from_bytes(request[4:6])
            body = bytes((request[0], request[1], size)) + bytes((0, request[0])) * (size // 2)
            os.write(fd, noise + body + FramerRTU.compute_CRC(body).to_bytes(2, "big"))

    asyncio.get_running_loop().add_reader(fd, answer)
    try:
        yield requested
    finally:
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)


def published(device: Peer, channel: int) -> list[float]:
    name = f"unit{UNIT}/c{channel}"
    return [float(str(value)) for (of, _), (value, _) in sorted(device.published().items()) if of == name]


def assert_exact(stored: Sequence[float], truth: Sequence[float]) -> None:
    """Stored values are those published, in order, but for the first or the last response."""
    assert list(stored) == [value for value in truth if value in set(stored)]
    assert len(truth) - len(stored) <= 1


@pytest.mark.parametrize("options", [(), ("delay=20",)])
async def test_foreign_device_on_a_serial_line_is_read_exactly(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A request for each channel."""
    async with line(tmp_path) as (client, end):
        async with peer("libmodbus", tmp_path, 3, f"serial={end}", f"unit={UNIT}", *options) as device:
            options_of = {"address": f"serial://{client}", "unit_id": UNIT, "max_registers": 2}
            async with collecting(0, TAGS, **options_of) as (spool, status):  # type: ignore[arg-type]
                await spool.until(lambda: all(len(values(spool, i)) >= 10 for i in range(3)))
                assert status.state == "connected"
        for i in range(3):
            assert_exact(values(spool, i), published(device, i))
        assert not gaps(spool, None) and status.reconnects == 0 and status.decode_errors == 0


async def test_foreign_device_behind_a_gateway_is_read_exactly(tmp_path: Path) -> None:
    async with line(tmp_path) as (client, end), gateway(client) as port:
        async with peer("libmodbus", tmp_path, 3, f"serial={end}", f"unit={UNIT}") as device:
            options = {"address": f"rtu+tcp://127.0.0.1:{port}", "unit_id": UNIT, "max_registers": 2}
            async with collecting(port, TAGS, **options) as (spool, status):  # type: ignore[arg-type]
                await spool.until(lambda: all(len(values(spool, i)) >= 10 for i in range(3)))
        for i in range(3):
            assert_exact(values(spool, i), published(device, i))
        assert not gaps(spool, None) and status.reconnects == 0


@pytest.mark.parametrize("scheme", ["serial", "rtu+tcp"])
async def test_late_answers_of_a_foreign_device_are_dropped(tmp_path: Path, scheme: str) -> None:
    """It takes longer than the time-out for a while; then it is read again, and no value is of another request."""
    async with AsyncExitStack() as stack:
        client, end = await stack.enter_async_context(line(tmp_path))
        address = f"serial://{client}"
        if scheme == "rtu+tcp":
            address = f"rtu+tcp://127.0.0.1:{await stack.enter_async_context(gateway(client))}"
        device = await stack.enter_async_context(peer("libmodbus", tmp_path, 3, f"serial={end}", f"unit={UNIT}"))
        spool, _ = await stack.enter_async_context(
            collecting(0, TAGS, address=address, unit_id=UNIT, max_registers=2, time_out=1.0)
        )
        await spool.until(lambda: len(values(spool, 0)) >= 3)
        await device.tell("delay 1500")
        await spool.until(lambda: any(status == BAD_TIMEOUT for _, _, status in spool.samples(0)))
        await device.tell("delay 0")
        seen = len(values(spool, 2))
        await spool.until(lambda: len(values(spool, 2)) >= seen + 5)
        for i in range(3):
            assert {value % 1 for value in values(spool, i)} == {i / 64}, "a channel has only values of its own"
            truth = published(device, i)
            assert values(spool, i) == [value for value in truth if value in set(values(spool, i))], "in order"


async def test_dead_unit_delays_others_of_the_line_only_by_its_time_out(tmp_path: Path) -> None:
    connections = Connections()
    async with line(tmp_path) as (client, end), answering(end, {1}) as requested:
        address = f"serial://{client}"
        options = {"connections": connections, "address": address}
        async with (
            collecting(0, [tag("a", "holding:0")], **options) as (spool, status),  # type: ignore[arg-type]
            collecting(0, [tag("b", "holding:0")], **options, unit_id=2, time_out=0.3) as (dead, away),  # type: ignore[arg-type]
        ):
            await dead.until(lambda: bool(gaps(dead, None)))
            seen = len(values(spool, 0))
            await spool.until(lambda: len(values(spool, 0)) >= seen + 25)
            await until(lambda: away.reason == "unit 2, holding:0: no response within 0.3 s")
            assert status.state == "connected" and not gaps(spool, None) and 2 in requested


async def test_noise_is_named_in_the_gap(tmp_path: Path) -> None:
    async with line(tmp_path) as (client, end), answering(end, {1}, noise=b"\xff"):
        options = {"address": f"serial://{client}", "time_out": 0.3}
        async with collecting(0, [tag("a", "holding:0")], **options) as (spool, status):  # type: ignore[arg-type]
            await until(lambda: status.state == "disconnected")
            assert status.reason == "unit 1, holding:0: no response within 0.3 s: 8 bytes arrived without a valid CRC"
            assert status.decode_errors >= 2 and not values(spool, 0)


async def test_another_master_on_the_line_is_named(tmp_path: Path) -> None:
    """First its requests stand before each answer, which is therefore none; then they come between the polls."""
    body = bytes((9, 3, 0, 0, 0, 2))
    request = body + FramerRTU.compute_CRC(body).to_bytes(2, "big")
    async with line(tmp_path) as (client, end), answering(end, set(), noise=request):
        options = {"address": f"serial://{client}", "time_out": 0.3}
        async with collecting(0, [tag("a", "holding:0")], **options) as (_, status):  # type: ignore[arg-type]
            await until(lambda: status.state == "disconnected")
            assert (
                status.reason == "unit 1, holding:0: no response within 0.3 s: another master on the line asks unit 9"
            )
    async with (
        line(tmp_path) as (client, end),
        answering(end, {1}),
        collecting(0, [tag("a", "holding:0")], address=f"serial://{client}") as (spool, status),
    ):
        await spool.until(lambda: len(values(spool, 0)) >= 3)
        assert not status.remarks

        def named() -> bool:
            with end.open("wb", buffering=0) as other:
                other.write(request)
            return status.remarks == {"master": "another master on the line asks unit 9"}

        await until(named, every=0.1)
        seen = len(values(spool, 0))
        await spool.until(lambda: len(values(spool, 0)) >= seen + 3)


async def test_device_that_vanishes_is_used_again_when_it_is_back(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        options = {"address": f"serial://{tmp_path / 'client'}", "unit_id": UNIT}
        spool, status = await stack.enter_async_context(collecting(0, TAGS, **options))  # type: ignore[arg-type]
        await until(lambda: status.state == "disconnected")
        assert status.reason == f"connect: there is no serial device {tmp_path / 'client'}"
        end = tmp_path / "device"
        for _ in range(2):
            async with line(tmp_path), peer("libmodbus", tmp_path / "peer", 3, f"serial={end}", f"unit={UNIT}"):
                seen = len(values(spool, 0))
                await spool.until(lambda seen=seen: len(values(spool, 0)) >= seen + 5)  # type: ignore[misc]
            await until(lambda: status.state in ("disconnected", "connecting"))
        await until(lambda: status.open_gaps == 1)
        assert status.reconnects >= 1
        found = gaps(spool, None)
        assert [gap.to_time is None for gap in found] == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize("lock", ["fcntl.flock(f,fcntl.LOCK_EX)", "0"], ids=["locked", "open"])
async def test_device_of_another_process_is_not_shared(tmp_path: Path, lock: str) -> None:
    holds = f"import fcntl,sys; f=open(sys.argv[1],'r+b',0); {lock}; print(flush=True); input()"
    async with line(tmp_path) as (client, end), answering(end, {1}):
        other = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", holds, str(client)), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert other.stdin is not None and other.stdout is not None
        await other.stdout.readline()
        async with collecting(0, [tag("a", "holding:0")], address=f"serial://{client}") as (spool, status):
            await until(lambda: status.state == "disconnected")
            assert f"connect: serial device {client} is used by" in status.reason
            assert f"process {other.pid} (python" in status.reason
            other.stdin.close()
            await other.wait()
            await spool.until(lambda: len(values(spool, 0)) >= 3)
            with open(client, "rb", 0) as file, pytest.raises(BlockingIOError):  # noqa: ASYNC230, PTH123
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_two_names_of_one_device_are_named(tmp_path: Path) -> None:
    async with line(tmp_path) as (client, end), answering(end, {1}):
        (tmp_path / "again").symlink_to(client)
        connections = Connections()
        async with collecting(0, [tag("a", "holding:0")], address=f"serial://{client}", connections=connections) as (
            spool,
            _,
        ):
            await spool.until(lambda: len(values(spool, 0)) >= 1)
            again = f"serial://{tmp_path / 'again'}"
            async with collecting(0, [tag("b", "holding:0")], address=again, connections=connections) as (_, status):
                await until(lambda: status.state == "disconnected")
                assert "another source of this collector" in status.reason


async def test_members_of_a_pair_use_the_line_one_at_a_time(tmp_path: Path) -> None:
    """Each has a process of its own: here, connections of its own."""
    polls = 1
    tags = [tag("a", "holding:0")]
    async with line(tmp_path) as (client, end), answering(end, {1}):
        address = f"serial://{client}"
        async with (
            collecting(0, tags, address=address, stands_by=lambda: polls != 1) as (one, first),
            collecting(0, tags, address=address, stands_by=lambda: polls != 2) as (two, second),
        ):
            await one.until(lambda: len(values(one, 0)) >= 3)
            assert second.state == "standby" and not values(two, 0)
            polls = 2
            await two.until(lambda: len(values(two, 0)) >= 3)
            await until(lambda: first.state == "standby")
            polls, seen = 1, len(values(one, 0))
            await one.until(lambda: len(values(one, 0)) >= seen + 3)
            await until(lambda: second.state == "standby")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_permission_that_is_missing_names_the_group(tmp_path: Path) -> None:
    async with line(tmp_path) as ends:
        client = await asyncio.to_thread(ends[0].resolve)  # others may not look into tmp_path
        await asyncio.to_thread(shutil.chown, client, "root", "dialout")
        await asyncio.to_thread(client.chmod, 0o660)
        os.seteuid(_NOBODY)
        try:
            async with collecting(0, [tag("a", "holding:0")], address=f"serial://{client}") as (_, status):
                await until(lambda: status.state == "disconnected")
        finally:
            os.seteuid(0)
    assert status.reason.endswith(f"has no permission for {client}: it must be a member of the group dialout")


async def test_file_that_is_no_serial_device_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    async with collecting(0, [tag("a", "holding:0")], address=f"serial://{tmp_path / 'file'}") as (_, status):
        await until(lambda: status.state == "disconnected")
    assert "is no serial device" in status.reason


async def test_collector_process_stores_what_a_serial_device_published(tmp_path: Path) -> None:
    async with line(tmp_path) as (client, end):
        async with peer("libmodbus", tmp_path / "peer", 3, f"serial={end}", f"unit={UNIT}") as device:
            (tmp_path / "plant.toml").write_text(
                f'[plant]\nname = "demo"\n[health]\nport = {free_ports(3)}\n[[source]]\nname = "meter"\n'
                f'kind = "modbus"\naddress = "serial://{client}?baud=9600&parity=O"\nunit_id = {UNIT}\n'
                'poll_interval = "50ms"\ntime_out = "10s"\ntags = "tags.csv"\n'
            )
            rows = "".join(f"meter/{t.name},{t.address},float32\n" for t in TAGS)
            (tmp_path / "tags.csv").write_text("name,address,type\n" + rows)
            ids = {f"meter/{t.name}": i for i, t in enumerate(TAGS)}
            Registry({"meter": 1}, {"meter": ids}).save(tmp_path / "registry.json")
            spooled = Spooled(tmp_path / "spool" / "modbus.sqlite")
            async with collector(tmp_path, signal.SIGTERM):
                await spooled.until(30)
        samples = spooled.samples()
        for i in range(3):
            stored = samples.value[(samples.channel == i) & (samples.status == 0)].tolist()
            assert len(stored) >= 5
            assert_exact(stored, published(device, i))
