"""The tag list of a living OPC UA source is edited: the subscriptions follow, and no other channel loses a value."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.config.sources import OpcuaSource, OpcuaTag
from core.timestamps import now_us
from ingest.opcua.collector import Collector
from ingest.opcua.decode.decoded import FIRST_STRUCTURE
from ingest.opcua.subscription.subscription_state import Item, Refusal, Subscription, SubscriptionState
from ingest.opcua.subscription.subscriptions import ItemDifference, difference
from ingest.opcua.subscription.tags import Tags
from ingest.status import SourceStatus
from tests.integration.ingest.test_opcua_recovery import OPTIONS, OURS, Server, lasting, serving, values
from tests.memory_appender import MemoryAppender
from tests.peers import peer
from tests.waiting import running, until

A, B, MODE = OURS
IDS = {"a": 0, "b": 1, "mode": 2, "second": 7}


def configured(address: str, tags: Sequence[OpcuaTag], **options: Any) -> OpcuaSource:
    fast = {"publishing_interval": 0.1, "backoff_min": 0.05, "backoff_max": 0.5, "keep_alive": 1.0}
    given = {"name": "ua", "kind": "opcua", "address": address, **fast, **OPTIONS, **options, "tags": list(tags)}
    return OpcuaSource.model_validate(given)


@asynccontextmanager
async def living(
    source: OpcuaSource, pki: Path, spool: MemoryAppender, ids: Mapping[str, int] = IDS
) -> AsyncIterator[tuple[Collector, SourceStatus]]:
    status = SourceStatus(1, "ua", "opcua", source.address, len(source.tags))
    collector = Collector(source, ids, status, spool, pki, MemoryAppender())
    async with running(collector.run()):
        yield collector, status


def items(server: Server) -> list[list[int]]:
    """The channels of each subscription that the server has, of items that have one."""
    channels = {tag.address: IDS[tag.name] for tag in OURS}
    found = server.server._subscriptions.subscriptions.values()
    nodes = [
        [i.read_value_id.NodeId.to_string() for i in s.monitored_item_srv._monitored_items.values()] for s in found
    ]
    return sorted(sorted(channels[node] for node in some if node in channels) for some in nodes)


@pytest.mark.slow
async def test_tags_are_added_and_removed_while_others_publish(tmp_path: Path) -> None:
    spool = MemoryAppender()
    async with serving(tmp_path) as server:
        source = configured(server.address, [A])
        async with living(source, tmp_path / "pki", spool) as (collector, status):
            await until(lambda: status.state == "connected")
            for tags, handles in (
                ([A, B], [0, 1]),
                ([MODE, B, A], [0, 1, 2]),
                ([MODE, A], [0, 2]),
                ([A], [0]),
            ):
                writing = asyncio.create_task(server.write(60, 0.005))
                await asyncio.sleep(0)
                collector.configure(configured(server.address, tags), IDS)
                await until(lambda handles=handles: items(server) == [handles])
                await writing
            await spool.until(lambda: values(spool) == server.written)
            await until(lambda: status.state == "connected" and status.channels == 1)
        assert (status.reconnects, lasting(spool)) == (0, ["removed", "removed"])
        assert {channel for gap in spool.gaps() for channel in gap.channel_ids or ()} == {1, 2}
        assert len(spool.samples(0)) == len(set(spool.samples(0)))
        assert spool.samples(1), "the second tag was read while it was there"
        assert [e.text for e in spool.events("text")] == [""]
        assert len(server.server._subscriptions.subscriptions) == 1


async def test_changed_sampling_interval_is_applied(tmp_path: Path) -> None:
    """Its new item is there before the old one goes; a subscription without items goes too."""
    spool = MemoryAppender()
    async with serving(tmp_path) as server:
        async with living(configured(server.address, [A, B]), tmp_path / "pki", spool) as (collector, status):
            await until(lambda: status.state == "connected")
            for changed, handles in (
                ([replace(A, interval=0.05), B], [[0], [1]]),
                ([replace(A, interval=0.05), replace(B, interval=0.05)], [[0, 1]]),
                ([replace(A, deadband=0.5), B], [[0, 1]]),
            ):
                writing = asyncio.create_task(server.write(60, 0.005))
                await asyncio.sleep(0)
                collector.configure(configured(server.address, changed), IDS)
                await until(lambda handles=handles: items(server) == handles)
                await writing
                await spool.until(lambda: values(spool) == server.written)
        assert (status.reconnects, lasting(spool)) == (0, [])


@pytest.mark.parametrize("change", ({"interval": 0.1}, {"deadband": 0.5}, {"address": "ns=2;s=unit.b"}))
async def test_queued_values_of_a_removed_item_are_kept(change: dict[str, Any], tmp_path: Path) -> None:
    """Values wait in the server for up to a publishing interval: none is lost where the item is another one then."""
    spool = MemoryAppender()
    async with serving(tmp_path) as server:
        slow = configured(server.address, [A], publishing_interval=2.0)
        async with living(slow, tmp_path / "pki", spool) as (collector, status):
            await until(lambda: status.state == "connected")
            for tag in (A, replace(A, **change)):
                await server.write(30, 0.01)
                collector.configure(configured(server.address, [tag], publishing_interval=2.0), IDS)
                if tag.address == A.address:
                    await server.write(30, 0.01)
                await until(lambda: not collector.is_synchronising)
            await spool.until(lambda: [v for v in values(spool) if v > 1] == server.written[1:])
        between = ["stopped"] if "address" in change else []  # nothing is sampled until the other node's item is there
        assert (status.reconnects, lasting(spool)) == (0, between)


async def test_added_bad_tag_and_changed_node(tmp_path: Path) -> None:
    spool = MemoryAppender()
    missing = OpcuaTag(name="b", address="ns=2;s=unit.nothing")
    async with serving(tmp_path) as server:
        async with living(configured(server.address, [A, missing]), tmp_path / "pki", spool) as (collector, status):
            await until(lambda: status.state == "degraded")
            assert status.bad_channels == {"b": "BadNodeIdUnknown"}
            collector.configure(configured(server.address, [A, B]), IDS)
            await until(lambda: status.state == "connected")
            assert status.bad_channels == {}
            await spool.until(lambda: bool(spool.samples(1)))
            collector.configure(configured(server.address, [A, missing]), IDS)
            await until(lambda: status.state == "degraded")
            collector.configure(configured(server.address, [A]), IDS)
            await until(lambda: status.state == "connected")
            assert status.open_gaps == 0, "the gap of a tag that is gone ends"
            await server.write(10)
            await spool.until(lambda: values(spool) == server.written)
        assert status.reconnects == 0
        assert {g.channel_ids for g in spool.gaps()} == {(1,)}


async def test_revised_queue_of_one_value_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as server:
        create = server.server._subscriptions.create_monitored_items

        async def shortened(parameters: Any) -> Any:
            results = await create(parameters)
            for result in results:
                result.RevisedQueueSize = 1
            return results

        monkeypatch.setattr(server.server._subscriptions, "create_monitored_items", shortened)
        async with living(configured(server.address, [A, B]), tmp_path / "pki", MemoryAppender()) as (_, status):
            await until(lambda: status.state == "connected")
            assert "2 channels have a server queue of one value" in status.remarks["queue"]


async def test_source_with_only_bad_tags(tmp_path: Path) -> None:
    """Its session lives on, so that tags can come back or be corrected."""
    spool = MemoryAppender()
    missing = OpcuaTag(name="a", address="ns=2;s=unit.nothing")
    async with serving(tmp_path) as server:
        async with living(configured(server.address, [missing]), tmp_path / "pki", spool) as (collector, status):
            await until(lambda: status.state == "degraded")
            other = replace(missing, interval=0.2)
            collector.configure(configured(server.address, [other]), IDS)
            await until(lambda: len(server.server._subscriptions.subscriptions) == 1)
            collector.configure(configured(server.address, [A]), IDS)
            await until(lambda: status.state == "connected")
            await server.write(10)
            await spool.until(lambda: values(spool) == server.written)
        assert status.reconnects == 0


async def test_tags_that_change_while_the_server_is_away(tmp_path: Path) -> None:
    spool = MemoryAppender()
    async with serving(tmp_path) as server:
        async with living(configured(server.address, [A]), tmp_path / "pki", spool) as (collector, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
            await server.cut_off(status)
            collector.configure(configured(server.address, [MODE, A]), IDS)
            await server.write(10)
            await server.server.refuse(False)
            await until(lambda: status.state == "connected")
            await until(lambda: items(server) == [[0, 2]])
            await spool.until(lambda: values(spool) == server.written)
            await until(lambda: status.open_gaps == 0)
        assert lasting(spool) == []


async def test_a_process_that_starts_with_another_tag_list_goes_on_with_the_rest(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        first = MemoryAppender()
        async with living(configured(server.address, [A, B]), tmp_path / "pki", first) as (_, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
        await server.write(10)
        second = MemoryAppender(first.notes)
        async with living(configured(server.address, [MODE, A]), tmp_path / "pki", second) as (_, status):
            await until(lambda: status.state == "connected")
            await until(lambda: items(server) == [[0, 2]])
            await server.write(10)
            await second.until(lambda: values(first, second) == server.written)
            await until(lambda: lasting(second) == ["removed"])
        assert [gap.channel_ids for gap in second.gaps() if gap.reason == "removed"] == [(1,)]


async def test_a_kill_while_items_are_made_is_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows which items the server has then: they are made anew, and what that costs is a gap."""
    async with serving(tmp_path) as server:
        first = MemoryAppender()
        frozen: list[MemoryAppender] = []
        create = server.server._subscriptions.create_monitored_items

        def killed(parameters: Any) -> Any:
            if server.written and not frozen:
                frozen.append(MemoryAppender(deepcopy(first.notes)))
            return create(parameters)

        monkeypatch.setattr(server.server._subscriptions, "create_monitored_items", killed)
        async with living(configured(server.address, [A]), tmp_path / "pki", first) as (collector, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
            collector.configure(configured(server.address, [A, B]), IDS)
            await until(lambda: bool(frozen))
        (second,) = frozen
        await server.write(10)
        async with living(configured(server.address, [A, B]), tmp_path / "pki", second) as (_, status):
            await until(lambda: status.state == "connected")
            assert items(server) == [[0, 1]], "each item once"
            await server.write(10)
            await second.until(lambda: server.written[-1] in values(second))
        lost = set(server.written) - set(values(first, second))
        assert lost
        assert lasting(second) == ["killed"] * 2, "before the last publication, and since"


@pytest.mark.slow
async def test_a_foreign_server_and_random_edits(tmp_path: Path) -> None:
    """Twenty edits of a list; the channels that stay have every value that the server printed, and no gap."""
    everything = [OpcuaTag(name=f"Double{i}", address=f"ns=1;s=Double{i}") for i in range(20)]
    ids = {tag.name: 100 + i for i, tag in enumerate(everything)}
    stay = everything[:5]
    spool = MemoryAppender()
    patient = {"time_out": 30.0}  # the server is a process of its own, on a busy machine
    chance = random.Random(11)
    async with peer("node-opcua", tmp_path / "peer", 100, "200") as server:
        address = f"opc.tcp://127.0.0.1:{server.port}"
        async with living(configured(address, everything, **patient), tmp_path / "pki", spool, ids) as (
            collector,
            status,
        ):
            await until(lambda: status.state == "connected")
            start = now_us()
            for _ in range(20):
                some = stay + chance.sample(everything[5:], chance.randrange(16))
                some[1:5] = [replace(t, interval=chance.choice((None, 0.2, 0.5))) for t in some[1:5]]
                chance.shuffle(some)
                seen = len(spool.samples(104))
                collector.configure(configured(address, some, **patient), ids)
                await spool.until(lambda seen=seen: len(spool.samples(104)) > seen)  # type: ignore[misc]
            end = now_us()
            await spool.until(lambda: all(spool.samples(ids[t.name])[-1][0] > end for t in stay))
        truth = server.published()
        for tag in stay:
            due = {t: value for (name, t), (value, _) in truth.items() if name == tag.name and start < t < end}
            got = {t: value for t, value, _ in spool.samples(ids[tag.name]) if start < t < end}
            assert got == due
            assert due
        assert (status.reconnects, set(lasting(spool))) == (0, {"removed"})
        assert not {c for gap in spool.gaps() for c in gap.channel_ids or ()} & {ids[tag.name] for tag in stay}


def test_tag_list_difference() -> None:
    tags = Tags(configured("opc.tcp://h", [A, B, MODE]), IDS)
    requested = (0.1, 1000, True, 0.0)
    fast = Subscription(4, 0.1, 0.1, 1.0, {0: Item(10, A.address, requested), 9: Item(11, "ns=2;s=gone", requested)})
    slow = Subscription(5, 2.0, 2.0, 9.0, {1: Item(20, B.address, requested)})
    bad = {2: Refusal(MODE.address, "BadNodeIdUnknown")}
    found = difference(tags, SubscriptionState({4: fast, 5: slow}, bad))
    assert found == ItemDifference(create=[1], obsolete={5: [1]}, retired={4: [9]})
    other_node = Subscription(
        4, 0.1, 0.1, 1.0, {0: Item(10, "ns=2;s=other", requested), 1: Item(12, B.address, requested)}
    )
    bad = {2: Refusal("ns=2;s=before", "BadNodeIdUnknown")}
    found = difference(tags, SubscriptionState({4: other_node}, bad))
    assert found == ItemDifference(create=[2], replace=[0], obsolete={4: [0]})
    member = Subscription(4, 0.1, 0.1, 1.0, {0: Item(10, A.address, requested, member="Speed", handle=FIRST_STRUCTURE)})
    found = difference(tags, SubscriptionState({4: member}, {1: Refusal(B.address, "", member="Speed")}))
    assert found == ItemDifference(create=[1, 2], replace=[0], obsolete={4: [0]})
    slower = Subscription(4, 0.1, 0.1, 1.0, {0: Item(10, A.address, (5.0, 1000, True, 0.0))})
    found = difference(tags, SubscriptionState({4: slower}, {1: Refusal(B.address, "BadUserAccessDenied")}))
    assert found == ItemDifference(create=[2], modify={4: [0]})
    assert not difference(
        tags,
        SubscriptionState(
            {
                4: Subscription(
                    4, 0.1, 0.1, 1.0, {i: Item(i, tag.address, requested) for i, tag in enumerate((A, B, MODE))}
                )
            }
        ),
    )


def test_unused_client_handles() -> None:
    tags = Tags(configured("opc.tcp://h", [A, B]), {"a": 5, "b": 3})
    assert tags.positions([3, 4, 5]) == [1, 0]
    assert tags._of(np.array([5, 3, 0, 4, 6, 2**32 - 1], np.uint32)).tolist() == [0, 1, 2, 2, 2, 2]
