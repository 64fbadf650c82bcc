"""Redundant servers (OPC 10000-4, 6.6.2.4): two servers with the same address space, of which one fails.

Both publish the same values at the same times, as servers do that read one device.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from asyncua import ua

from core.config.sources import OpcuaTag
from core.timestamps import now_us
from ops.certificates import trust
from simulator.opcua_server import OpcuaServer
from simulator.tags import SimTag
from tests.asyncua_server import unsecured
from tests.integration.ingest.test_opcua_collector import collecting, simulated_server
from tests.memory_appender import MemoryAppender
from tests.peers import opcua_tags, peer
from tests.ports import free_port
from tests.waiting import running, until

TAGS = [SimTag("unit/a", "a", opcua="Double", period=0.1), SimTag("unit/b", "b", opcua="Boolean", period=0.1)]
OURS = [OpcuaTag(name="a", address="ns=2;s=unit.a"), OpcuaTag(name="b", address="ns=2;s=unit.b")]
OPTIONS: dict[str, Any] = {"insecure": True, "time_out": 2.0, "queue_size": 1000}


class Plant:
    """One device that two servers read; ``truth`` is all its values (time → value)."""

    def __init__(self) -> None:
        self.ports = free_port(), free_port()
        self.addresses = [f"opc.tcp://127.0.0.1:{port}/" for port in self.ports]
        self.servers: list[OpcuaServer] = []
        self.truth: dict[int, float] = {}

    async def write(self, count: int = 10) -> None:
        """Publish ``count`` more values of channel 0 at every server."""
        for _ in range(count):
            time, value = now_us(), float(len(self.truth) + 1)
            self.truth[time] = value
            for server in self.servers:
                await server.write(0, value, time, 0)
            await asyncio.sleep(0.02)

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            await self.write(1)


@asynccontextmanager
async def plant(folder: Path, history: int | None) -> AsyncIterator[Plant]:
    made = Plant()
    async with (
        simulated_server(TAGS, folder / "one", made.ports[0], history=history) as one,
        simulated_server(TAGS, folder / "two", made.ports[1], history=history) as two,
    ):
        made.servers = [one, two]
        await made.write(1)
        for server in made.servers:
            await server.write(1, False, now_us(), 0)
        yield made


def expect_truth(made: Plant, live: MemoryAppender, filled: MemoryAppender, gaps_allowed: bool) -> None:
    """From the first to the last value: what is missing is in a gap, nothing is there twice or invented."""
    rows = live.samples(0)
    assert all(made.truth[time] == value for time, value, _ in [*rows, *filled.samples(0)]), "invented"
    assert len({time for time, _, _ in rows}) == len(rows), "doubled"
    stored = {time for time, _, _ in [*rows, *filled.samples(0)]}
    expected = [time for time in made.truth if min(stored) <= time <= max(stored)]
    gaps = [gap for gap in live.gaps() if not gap.backfilled and gap.to_time != gap.from_time]
    open_to = [(gap.from_time, gap.to_time or now_us()) for gap in gaps]
    missing = [time for time in expected if time not in stored]
    print(f"missing {len(missing)} of {len(expected)}; gaps {[(e - b) / 1e6 for b, e in open_to]}")
    assert [time for time in missing if not any(b <= time <= e for b, e in open_to)] == [], "lost"
    if not gaps_allowed:  # one may be left that the history can't disprove; then it has no value
        assert not missing
        assert all(gap.to_time is not None for gap in gaps)


async def arrived(live: MemoryAppender) -> None:
    """Wait until a value that was written from now on is stored."""
    after = now_us()
    await live.until(lambda: any(time > after for time, _, _ in live.samples(0)))


async def filled_in(live: MemoryAppender) -> None:
    """Wait until all gaps were requested from history."""
    await live.until(lambda: "backfill:1" not in live.notes)


async def _away(made: Plant, how: str, server: int, away: bool) -> None:
    if how == "refused":
        await made.servers[server].refuse(away)
    else:
        made.servers[server].pause(away)


@pytest.mark.parametrize("history", [0, 10_000])
@pytest.mark.parametrize("how", ["refused", "silent"])
async def test_the_other_server_takes_over(how: str, history: int, tmp_path: Path) -> None:
    filled = MemoryAppender()
    async with plant(tmp_path, history) as made, running(made.run()):
        one, two = made.addresses
        options = {**OPTIONS, "addresses": made.addresses}
        async with collecting(one, OURS, tmp_path / "pki", None, filled, **options) as (live, status):
            await until(lambda: status.state == "connected")
            assert status.address == one
            await arrived(live)
            await _away(made, how, 0, True)
            await until(lambda: status.address == two and status.state == "connected")
            await arrived(live)
            await filled_in(live)
            await _away(made, how, 0, False)
            await until(lambda: f"{one}: ServiceLevel 255" in status.remarks["servers"])
            await arrived(live)
            assert status.address == two, "it stays where it is while that server is healthy"
            await _away(made, how, 1, True)
            await until(lambda: status.address == one and status.state == "connected")
            await arrived(live)
            await filled_in(live)
            expect_truth(made, live, filled, gaps_allowed=not history)
            assert [event.text for event in live.events("failover")] == [two, one]
            assert status.open_gaps == 0


@pytest.mark.parametrize("level", [0, 1, 100])
async def test_a_server_that_is_no_longer_healthy_is_left(level: int, tmp_path: Path) -> None:
    filled = MemoryAppender()
    async with plant(tmp_path, 10_000) as made, running(made.run()):
        one, two = made.addresses
        options = {**OPTIONS, "addresses": made.addresses}
        async with collecting(one, OURS, tmp_path / "pki", None, filled, **options) as (live, status):
            await until(lambda: f"{two}: ServiceLevel 255" in status.remarks.get("servers", ""))
            await arrived(live)
            await made.servers[0].set_service_level(level)
            await until(lambda: status.address == two and status.state == "connected")
            (event,) = live.events("failover")
            assert event.text == two
            assert event.detail == {"before": one, "reason": f"ServiceLevel {level}; {two} has 255"}
            await arrived(live)
            await made.servers[1].set_service_level(200)
            await until(lambda: f"{two} (in use): ServiceLevel 200" in status.remarks["servers"])
            await arrived(live)
            await filled_in(live)
            expect_truth(made, live, filled, gaps_allowed=False)
            assert len(live.events("failover")) == 1
            assert status.address == two


async def test_it_starts_with_the_highest_service_level_and_stays_if_none_is_better(tmp_path: Path) -> None:
    async with plant(tmp_path, 0) as made, running(made.run()):
        await made.servers[0].set_service_level(1)
        one, two = made.addresses
        async with collecting(one, OURS, tmp_path / "pki", addresses=made.addresses, **OPTIONS) as (live, status):
            await until(lambda: status.state == "connected")
            assert status.address == two
            await made.servers[1].set_service_level(1)
            await until(lambda: f"{two} (in use): ServiceLevel 1" in status.remarks["servers"])
            await arrived(live)
            assert live.events("failover") == []


@pytest.mark.parametrize("support", ["None_", "Hot", "Transparent"])
async def test_redundant_server_that_is_not_configured_is_named(support: str, tmp_path: Path) -> None:
    server, address = await unsecured()
    redundancy = server.get_node(ua.NodeId(ua.ObjectIds.Server_ServerRedundancy))
    await redundancy.add_property(0, "ServerUriArray", ["urn:one", "urn:two"])
    told = await redundancy.get_child("0:RedundancySupport")
    await told.write_value(ua.Variant(int(ua.RedundancySupport[support]), ua.VariantType.Int32))
    clock = [OpcuaTag(name="clock", address="i=2258", kind="text")]
    async with server, collecting(address, clock, tmp_path / "pki", **OPTIONS) as (spool, status):
        if support == "Hot":
            await until(lambda: "redundancy" in status.remarks)
            assert status.remarks["redundancy"] == (
                "the server is one of 2 redundant ones (urn:one, urn:two), of which the source has 1: "
                "see the option addresses"
            )
        await spool.until(lambda: len(spool.events("text")) > 3)
        assert ("redundancy" in status.remarks) == (support == "Hot")


async def test_of_two_that_are_away_the_one_that_returns_is_used(tmp_path: Path) -> None:
    filled = MemoryAppender()
    async with plant(tmp_path, 10_000) as made, running(made.run()):
        one, two = made.addresses
        options = {**OPTIONS, "addresses": made.addresses}
        async with collecting(one, OURS, tmp_path / "pki", None, filled, **options) as (live, status):
            await until(lambda: status.state == "connected")
            await arrived(live)
            for server in made.servers:
                await server.refuse(True)
            await until(lambda: status.state == "disconnected")
            await until(lambda: two in status.reason)
            assert "nothing listens" in status.reason
            await made.servers[1].refuse(False)
            await until(lambda: status.address == two and status.state == "connected")
            await arrived(live)
            await filled_in(live)
            expect_truth(made, live, filled, gaps_allowed=False)


@pytest.mark.parametrize("returns_to", [0, 1])
async def test_a_collector_killed_between_loses_nothing(returns_to: int, tmp_path: Path) -> None:
    """It continues with the server that has its subscriptions, or asks the other one for what is missing."""
    filled = MemoryAppender()
    async with plant(tmp_path, 10_000) as made, running(made.run()):
        options = {**OPTIONS, "addresses": made.addresses}
        one = made.addresses[0]
        async with collecting(one, OURS, tmp_path / "pki", None, filled, **options) as (before, status):
            await until(lambda: status.state == "connected")
            await arrived(before)
            frozen = MemoryAppender(before.notes)  # a kill leaves these
        await made.write()
        if returns_to:
            await made.servers[0].refuse(True)
        async with collecting(one, OURS, tmp_path / "pki", frozen, filled, **options) as (live, status):
            await until(lambda: status.address == made.addresses[returns_to] and status.state == "connected")
            await arrived(live)
            await filled_in(live)
            read_history = bool(filled.batches)
            await until(lambda: status.open_gaps == 0)
            filled.batches += before.batches  # the key removes what both have: a kill repeats what was not acknowledged
            expect_truth(made, live, filled, gaps_allowed=False)
            assert len(live.events("failover")) == returns_to
            assert read_history == bool(returns_to)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["open62541"])
async def test_a_foreign_server_is_killed(name: str, tmp_path: Path) -> None:
    """Each has another truth: what is stored is from either, in the times in which it was used, and a gap between."""
    tags = opcua_tags(name, 5)
    numbers = [i for i, tag in enumerate(tags) if tag.kind != "text"]
    async with peer(name, tmp_path / "one", 5, "50") as one, peer(name, tmp_path / "two", 5, "50") as two:
        addresses = [f"opc.tcp://127.0.0.1:{server.port}" for server in (one, two)]
        options: dict[str, Any] = {"addresses": addresses, "accept": ["wrong-host"]}
        async with collecting(addresses[0], tags, tmp_path / "pki", **options) as (live, status):
            await until(lambda: "is not trusted" in status.reason)
            await until(lambda: len(list((tmp_path / "pki" / "rejected").glob("*.der"))) == 2)
            assert any(address in status.reason for address in addresses)
            for path in (tmp_path / "pki" / "rejected").glob("*.der"):
                trust(tmp_path / "pki", path.name)
            await until(lambda: status.state == "connected")
            first, second = (one, two) if status.address == addresses[0] else (two, one)
            await live.until(lambda: min(len(live.samples(i)) for i in numbers) >= 20)
            await first.kill()
            await until(lambda: status.address == f"opc.tcp://127.0.0.1:{second.port}")
            after = now_us()
            await live.until(lambda: all(any(t > after for t, _, _ in live.samples(i)) for i in numbers))
            await until(lambda: "backfill:1" not in live.notes and status.open_gaps == 0)
        begun = min(time for i in numbers for time, _, _ in live.samples(i))
        times = [(gap.from_time, gap.to_time) for gap in live.gaps() if gap.from_time > begun]
        (begin, published), (since, end) = sorted((begin, end or 0) for begin, end in times if end != begin)
        assert published == since < end
        print(f"{name}: gap {(end - begin) / 1e6} s")
        truths = [server.published() for server in (first, second)]
        for i in numbers:
            stored = {time: (value, status) for time, value, status in live.samples(i)}
            assert len(stored) == len(live.samples(i))
            name_of = tags[i].name
            for time, sample in stored.items():
                assert sample in [truth.get((name_of, time)) for truth in truths]
            before = {time for channel, time in truths[0] if channel == name_of and min(stored) <= time < begin}
            later = {time for channel, time in truths[1] if channel == name_of and end < time <= max(stored)}
            assert before | later <= stored.keys()
