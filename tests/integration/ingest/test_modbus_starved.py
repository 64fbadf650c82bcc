"""The Modbus collector on a machine that does not let it run: one gap of all channels, and then all is as before."""

from __future__ import annotations

import asyncio
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from core.registry import Registry
from core.timestamps import now_us
from tests.integration.ingest.test_modbus_collector import all_gaps, collecting, tag, values
from tests.integration.ingest.test_modbus_restart import collector
from tests.modbus_wire import good_response, misbehaving_device, requested
from tests.peers import peer
from tests.ports import free_ports
from tests.spooling import Spooled
from tests.waiting import until

CHANNELS = 3000


async def test_suspended_process_has_one_gap_for_all_channels(tmp_path: Path) -> None:
    rounds: dict[int, int] = {}  # register → requests

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        start = requested(frame)[1].start
        rounds[start] = rounds.get(start, 0) + 1
        return [(0, good_response(frame, number))]

    async with misbehaving_device(answer) as port:
        (tmp_path / "plant.toml").write_text(
            f'[plant]\nname = "demo"\n[health]\nport = {free_ports(3)}\n[[source]]\nname = "plc"\nkind = "modbus"\n'
            f'address = "tcp://127.0.0.1:{port}"\npoll_interval = "500ms"\ntime_out = "3s"\ntags = "tags.csv"\n'
        )
        rows = "".join(f"c{i},holding:{i},uint16\n" for i in range(CHANNELS))
        (tmp_path / "tags.csv").write_text(f"name,address,type\n{rows}")
        Registry({"plc": 1}, {"plc": {f"c{i}": i + 1 for i in range(CHANNELS)}}).save(tmp_path / "registry.json")
        spooled = Spooled(tmp_path / "spool" / "modbus.sqlite")
        async with collector(tmp_path, signal.SIGTERM) as process:
            await spooled.until(3 * CHANNELS)
            process.send_signal(signal.SIGSTOP)
            stopped = time.time()
            await asyncio.sleep(5.0)  # longer than the time-out: the length is what is tested
            process.send_signal(signal.SIGCONT)
            went_on, then = time.time(), rounds[0]
            await until(lambda: rounds[0] >= then + 8)
    gaps = spooled.gaps()
    assert {(gap.reason, gap.channel_ids) for gap in gaps} == {("poll_missed", None)}
    begin, end = stopped * 1e6 + 1e6, went_on * 1e6
    assert len([gap for gap in gaps if gap.from_time <= begin and (gap.to_time or 0) >= end]) == 1
    spans = sorted((gap.from_time, gap.to_time or now_us()) for gap in gaps)  # others: the machine is busy
    assert all(end <= start for (_, end), (start, _) in pairwise(spans)), "each silence is one gap"
    assert max(rounds.values()) - min(rounds.values()) <= 2, "every block is read as often as the others"


async def test_modbus_answer_received_while_suspended_is_no_timeout(tmp_path: Path) -> None:
    """A real server in a process of its own, which answers in time; ours is stopped longer than that."""
    tags = [tag(f"t{i}", f"holding:{200 * i}") for i in range(5)]
    async with (
        peer("modbus-serial", tmp_path, 0) as server,
        collecting(server.port, tags, poll_interval=0.02, time_out=1.5) as (spool, status),
    ):
        await spool.until(lambda: len(values(spool, 4)) >= 2)
        for _ in range(4):
            n = len(values(spool, 4))
            asyncio.get_running_loop().call_later(0.001 * (n % 7), time.sleep, 2.0)
            await spool.until(lambda n=n: len(values(spool, 4)) > n + 3)  # type: ignore[misc]
        assert status.reconnects == 0 and status.state == "connected"
    assert {gap.reason for i in (None, *range(5)) for gap in all_gaps(spool, i)} == {"poll_missed"}
    assert not [s for i in range(5) for _, _, s in spool.samples(i) if s], "no Bad sample"


async def test_blocks_skipped_by_a_timed_out_poll_come_first_in_the_next() -> None:
    """Two requests of each twelve are not answered: a poll is given up then, and no block is asked less for it."""
    asked_for: dict[int, int] = {}

    def answer(frame: bytes, number: int) -> list[tuple[float, bytes]]:
        start = requested(frame)[1].start
        asked_for[start] = asked_for.get(start, 0) + 1
        return [(0, good_response(frame, number))] if number < 100 or number % 12 > 1 else []

    tags = [tag(f"t{i}", f"holding:{200 * i}") for i in range(40)]
    bad = 0
    async with (
        misbehaving_device(answer) as port,
        collecting(port, tags, poll_interval=0.1, time_out=0.1) as (spool, status),
    ):
        await spool.until(lambda: bool(status.bad_channels))
        had = [len(values(spool, i)) for i in range(40)]

        def all_were_read() -> bool:
            nonlocal bad
            bad = max(bad, len(status.bad_channels))
            assert not [why for why in status.bad_channels.values() if "not asked" in why]
            return all(len(values(spool, i)) >= had[i] + 4 for i in range(40))

        await spool.until(all_were_read)
        assert status.reconnects == 0
    assert bad < 20, "only those that timed out, until they are read again"
    assert max(asked_for.values()) <= 3 * min(asked_for.values())


async def test_polls_late_while_suspended_are_not_blamed_on_the_device(tmp_path: Path) -> None:
    """The collector runs for a small part of the time, too short for two polls, and its device answers at once."""
    async with misbehaving_device(lambda frame, number: [(0, good_response(frame, number))]) as port:
        first = free_ports(3)
        (tmp_path / "plant.toml").write_text(
            f'[plant]\nname = "demo"\n[health]\nport = {first}\n[[source]]\nname = "plc"\nkind = "modbus"\n'
            f'address = "tcp://127.0.0.1:{port}"\npoll_interval = "300ms"\ntags = "tags.csv"\n'
        )
        (tmp_path / "tags.csv").write_text("name,address,type\na,holding:0,uint16\nb,holding:500,uint16\n")
        Registry({"plc": 1}, {"plc": {"a": 1, "b": 2}}).save(tmp_path / "registry.json")
        async with collector(tmp_path, signal.SIGTERM) as process:
            spooled = Spooled(tmp_path / "spool" / "modbus.sqlite")
            await spooled.until(6)

            async def suspended() -> None:
                while True:
                    process.send_signal(signal.SIGSTOP)
                    await asyncio.sleep(0.7)  # two polls are due in it
                    process.send_signal(signal.SIGCONT)
                    await asyncio.sleep(0.05)

            async def stretched() -> list[dict[str, Any]]:
                # waits for a lock of the suspended process
                events = await asyncio.to_thread(spooled.events, "poll_stretched")
                details = [dict(event.detail) for _, event in events if event.text == "stretched"]
                return [detail for detail in details if detail["slow"] == "machine"]

            suspending = asyncio.create_task(suspended())
            try:
                slowed = await until(stretched, every=0.5)
            finally:
                suspending.cancel()
    assert slowed[0]["answers_seconds"] < slowed[0]["pace_seconds"] / 2
