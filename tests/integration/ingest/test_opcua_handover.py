"""Subscriptions of a collector that ended, in order or not, which the next one takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asyncua import Client, ua
from asyncua.server.subscription_service import SubscriptionService

from core.batch import Batch, EventBatch, SampleBatch
from core.config.sources import TimeOrigin
from core.opcua.service import send
from core.timestamps import now_us
from ingest.appender import Notes
from ingest.opcua.decode.message import PublishResponse, publish_response
from ingest.opcua.subscription.subscriptions import Subscriptions
from ops.certificates import trust
from simulator.relay import Relay
from tests.integration.ingest.test_opcua_collector import collecting, simulated_server
from tests.integration.ingest.test_opcua_recovery import (
    OPTIONS,
    OURS,
    TAGS,
    connected,
    lasting,
    more,
    of_outage,
    serving,
    values,
)
from tests.memory_appender import MemoryAppender
from tests.peers import opcua_tags, peer
from tests.ports import free_port
from tests.waiting import until


async def test_kill_during_transfer_loses_no_subscription(tmp_path: Path) -> None:
    """No item is made or deleted, so at no moment it is unknown which ones the server has."""
    async with connected(tmp_path) as (server, spool, status):
        notes_written: list[str] = []
        note = spool.note

        async def noted(notes: Notes) -> None:
            notes_written.append(notes.get("opcua:1") or "")
            await note(notes)

        spool.note = noted  # type: ignore[method-assign]
        await server.cut_off(status)
        await server.server.refuse(False)
        await until(lambda: status.state == "connected" and status.open_gaps == 0)
    assert any(notes_written)
    assert not [text for text in notes_written if '"changing": true' in text]


async def test_killed_collector_continues_its_subscription(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        spools = [MemoryAppender()]
        for _ in range(4):
            folder = tmp_path / "pki"
            async with collecting(server.address, OURS, folder, spool=spools[-1], **OPTIONS) as (spool, status):
                await until(lambda status=status: status.state == "connected")
                await server.write(20, 0.013)
                await until(lambda status=status: status.open_gaps == 0)
                frozen = MemoryAppender(deepcopy(spool.notes))  # killed now
                frozen.batches = list(spool.batches)
            spools[-1] = frozen
            spools.append(MemoryAppender(deepcopy(frozen.notes)))
            await server.write(20)
        async with collecting(server.address, OURS, tmp_path / "pki", spool=spools[-1], **OPTIONS):
            await spools[-1].until(lambda: values(*spools) == server.written and not lasting(spools[-1]))
        assert [reason for k in spools for reason in lasting(k)] == []
        assert [[g.reason for g in k.gaps()] for k in spools] == [[], *([["killed"]] * 4)]


class SlowDisk(MemoryAppender):
    """Samples are on disk once they may be."""

    def __init__(self) -> None:
        super().__init__()
        self.may_store = asyncio.Event()
        self.may_store.set()

    async def append(self, batch: Batch, notes: Notes | None = None, beside: Sequence[EventBatch] = ()) -> None:
        await self.may_store.wait()
        await super().append(batch, notes, beside)


@pytest.mark.parametrize("kind", ["alone", "with a text", "in flight"])
async def test_killed_collector_stores_no_value_a_second_time_under_another_time(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source timestamps are whole seconds: values within a second take the server's, the first one does not."""
    second = (now_us() // 1_000_000 - 60) * 1_000_000
    tags = [OURS[0], OURS[2]] if kind == "with a text" else OURS[:1]
    messages: list[int] = []

    def received(body: bytes) -> PublishResponse:
        response = publish_response(body)
        if response.notification.data_changes:
            messages.append(response.notification.sequence)
        return response

    monkeypatch.setattr("ingest.opcua.publish.publish_response", received)
    async with simulated_server(TAGS, tmp_path, port := free_port()) as server:

        async def write(value: int, after: int, milliseconds: int) -> None:
            source = second + after * 1_000_000
            await server.write(0, value, source, 0, source + milliseconds * 1000)
            if kind == "with a text":
                await server.write(2, str(value), source, 0, source + milliseconds * 1000)

        address = f"opc.tcp://127.0.0.1:{port}/"
        spool = SlowDisk()
        async with collecting(address, tags, tmp_path / "pki", spool, insecure=True) as (_, status):
            await until(lambda: status.state == "connected" and status.open_gaps == 0)
            for value, after, milliseconds in ((1, 0, 10), (2, 0, 500)):
                await write(value, after, milliseconds)
                await spool.until(lambda value=value: any(v == value for _, v, _ in spool.samples(0)))  # type: ignore[misc]
            if kind == "in flight":
                spool.may_store.clear()
            for value, milliseconds in ((3, 10), (4, 500)):
                before = len(messages)
                await write(value, 1, milliseconds)
                await until(lambda before=before: len(messages) > before)
            spool.may_store.set()
            await spool.until(lambda: any(v == 4 for _, v, _ in spool.samples(0)))
            killed = MemoryAppender(deepcopy(spool.notes))
        async with collecting(address, tags, tmp_path / "pki", killed, insecure=True):
            await write(5, 1, 700)
            await killed.until(lambda: any(v == 5 for _, v, _ in killed.samples(0)))
    stored = {(time - second, value) for time, value, _ in spool.samples(0) + killed.samples(0) if value}
    assert stored == {(0, 1), (500_000, 2), (1_000_000, 3), (1_500_000, 4), (1_700_000, 5)}


@pytest.mark.parametrize("dated_by", ["server", "arrival"])
async def test_collector_killed_while_a_message_is_requested_stores_later_ones_once(
    dated_by: TimeOrigin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first message of a second is lost and requested, later ones come meanwhile, and the collector is killed.

    Only messages of the same subscription wait for it.
    """
    second = (now_us() // 1_000_000 - 60) * 1_000_000
    tags = [OURS[0] if dated_by == "server" else replace(OURS[0], time=dated_by), replace(OURS[1], interval=0.5)]
    messages: list[int] = []
    may_request = asyncio.Event()

    def received(body: bytes) -> PublishResponse:
        response = publish_response(body)
        if response.notification.data_changes:
            messages.append(response.notification.sequence)
        return response

    async def sent(client: Client, request: object, time_out: float) -> object:
        if isinstance(request, ua.RepublishRequest):
            await may_request.wait()
        return await send(client, request, time_out)

    monkeypatch.setattr("ingest.opcua.publish.publish_response", received)
    monkeypatch.setattr("ingest.opcua.publish.send", sent)
    async with simulated_server(TAGS, tmp_path, port := free_port()) as server:

        async def write(value: int, after: int, milliseconds: int) -> None:
            source = second + after * 1_000_000
            await server.write(0, value, source, 0, source + milliseconds * 1000)

        def has(spool: MemoryAppender, value: int) -> bool:
            return any(v == value for _, v, _ in spool.samples(0))

        address = f"opc.tcp://127.0.0.1:{port}/"
        options: dict[str, Any] = {"insecure": True, "publish_requests": 5}
        await server.write(1, False, second, 0)
        async with collecting(address, tags, tmp_path / "pki", **options) as (spool, status):
            await until(lambda: status.state == "connected" and status.open_gaps == 0 and bool(spool.samples(1)))
            for value, milliseconds in ((1, 10), (2, 500)):
                await write(value, 0, milliseconds)
                await spool.until(lambda value=value: has(spool, value))  # type: ignore[misc]
            server.transit.loss = "sent again"
            await write(3, 1, 10)
            await until(lambda: server.transit.lost > 0)
            server.transit.loss = "no"
            for value, milliseconds in ((4, 200), (5, 300), (6, 400)):
                before = len(messages)
                await write(value, 1, milliseconds)
                await until(lambda before=before: len(messages) > before)
            await server.write(1, True, second + 1, 0)
            await spool.until(lambda: any(v == 1 for _, v, _ in spool.samples(1)))
            assert not has(spool, 3)
            killed = MemoryAppender(deepcopy(spool.notes))
            killed.batches = list(spool.batches)
        may_request.set()
        async with collecting(address, tags, tmp_path / "pki", killed, **options):
            await write(7, 1, 700)
            await killed.until(lambda: has(killed, 7))
    stored = [(time - second, value) for time, value, _ in killed.samples(0) if value]
    if dated_by == "arrival":
        assert [value for _, value in sorted(stored)] == [1, 2, 3, 4, 5, 6, 7]
    else:
        by_server = [(1_200_000, 4), (1_300_000, 5), (1_400_000, 6), (1_700_000, 7)]
        assert sorted(set(stored)) == [(0, 1), (500_000, 2), (1_000_000, 3), *by_server]


async def test_no_sample_is_later_than_the_begin_of_the_gap_of_a_killed_collector(tmp_path: Path) -> None:
    """The note of a subscription does not say when the last notification was published that is stored with it."""
    async with serving(tmp_path, history=0) as server:
        async with collecting(server.address, OURS, tmp_path / "pki", **OPTIONS) as (spool, status):
            await until(lambda: status.state == "connected")
            await server.write(20)
            await spool.until(lambda: values(spool) == server.written)
            second = MemoryAppender(deepcopy(spool.notes))
            newest = max(time for time, *_ in spool.samples(0))
        await server.server.forget()
        async with collecting(server.address, OURS, tmp_path / "pki", spool=second, **OPTIONS) as (_, status):
            await until(lambda: status.state == "connected" and status.open_gaps == 0)
        _, published, _ = of_outage(second, "killed")
        assert newest <= published


@pytest.mark.parametrize("lost", [False, True])
async def test_gap_of_a_downtime_says_that_the_server_was_not_reached_after_it(lost: bool, tmp_path: Path) -> None:
    """It is one gap: if the server still has the subscription, nothing is missing in either time."""
    async with serving(tmp_path, history=0) as server:
        async with collecting(server.address, OURS, tmp_path / "pki", **OPTIONS) as (first, status):
            await until(lambda: status.state == "connected")
            await server.write(20)
            await first.until(lambda: values(first) == server.written)
            second = MemoryAppender(deepcopy(first.notes))
        if lost:
            await server.server.forget()
        await server.server.refuse(True)
        async with collecting(server.address, OURS, tmp_path / "pki", spool=second, **OPTIONS) as (_, status):
            await until(lambda: status.state == "disconnected")
            await second.until(lambda: "disconnected" in second.gaps()[-1].detail)
            (before,) = second.gaps()
            await server.server.refuse(False)
            await until(lambda: status.state == "connected" and status.open_gaps == 0)
        after = next(gap for gap in second.gaps() if gap.from_time == before.from_time)
        assert (before.reason, after.reason) == ("killed", "killed")
        assert before.detail.startswith("plantlog was killed; since ")
        assert before.detail.count("disconnected: ") == 1
        assert (after.detail == before.detail, bool(lasting(second))) == (lost, lost)


async def test_stopped_collector_hands_its_subscription_to_the_next(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        first = MemoryAppender()
        async with collecting(server.address, OURS, tmp_path / "pki", spool=first, **OPTIONS) as (_, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
        await server.write(10)
        second = MemoryAppender(first.notes)
        async with collecting(server.address, OURS, tmp_path / "pki", spool=second, **OPTIONS):
            await second.until(lambda: values(first, second) == server.written and not lasting(second))
        assert [gap.reason for gap in second.gaps()] == ["stopped"]
        assert lasting(second) == []


@pytest.mark.parametrize("subscriptions", (1, 2))
async def test_dead_transferred_subscriptions_are_recreated(
    subscriptions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncua's own server says Good, and publishes to the session before. That costs a gap, but not one that lasts
    until a keep-alive is missed."""
    options = {**OPTIONS, "keep_alive": 600.0, "lifetime": 3600.0}
    tags = OURS if subscriptions == 1 else [OURS[0], replace(OURS[1], interval=0.5), OURS[2]]
    stock = SubscriptionService.transfer_subscriptions
    monkeypatch.setattr("simulator.subscriptions.Subscriptions.transfer_subscriptions", stock)
    async with serving(tmp_path) as server:
        first = MemoryAppender()
        async with collecting(server.address, tags, tmp_path / "pki", spool=first, **options) as (_, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
            await first.until(lambda: values(first) == server.written)  # else the server publishes the rest to second
        second = MemoryAppender(first.notes)
        async with collecting(server.address, tags, tmp_path / "pki", spool=second, **options) as (_, status):
            await until(lambda: status.state == "connected")
            assert status.open_gaps == 1, "nothing has come yet"
            assert [gap.detail for gap in second.gaps()] == ["plantlog was stopped"]
            await server.write(10)
            lost = list(server.written)
            await until(lambda: status.open_gaps == 0)
            await until(lambda: status.state == "connected")
            await server.write(10)
            await second.until(lambda: server.written[-1] in values(second))
        assert set(server.written) - set(lost) <= set(values(second))
        assert set(lasting(second)) == {"stopped"}


@pytest.mark.parametrize("answers", [1, 3])
async def test_transferred_subscription_that_falls_silent_is_not_transferred_again(
    answers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncua's own server answers to publish requests of the session before; where their numbers are those of requests
    in this session, the subscription has published, and is silent then."""
    stock = SubscriptionService.transfer_subscriptions
    transfers: list[int] = []

    async def transfer(
        service: SubscriptionService, parameters: Any, session: ua.NodeId, callback: Any
    ) -> list[ua.TransferResult]:
        results: list[ua.TransferResult] = await stock(service, parameters, session, callback)
        requests = callback.__self__.get_publish_request
        for number in parameters.SubscriptionIds:
            transfers.append(number)
            left = iter(range(answers))

            def request(number: int, left: Iterator[int] = left) -> Any:
                return None if next(left, None) is None else requests(number)

            service.subscriptions[number].pub_request_callback = request
        return results

    monkeypatch.setattr("simulator.subscriptions.Subscriptions.transfer_subscriptions", transfer)
    options = {**OPTIONS, "keep_alive": 0.2}
    async with serving(tmp_path) as server:
        first = MemoryAppender()
        async with collecting(server.address, OURS, tmp_path / "pki", spool=first, **options) as (_, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
        second = MemoryAppender(first.notes)
        async with collecting(server.address, OURS, tmp_path / "pki", spool=second, **options) as (_, status):
            await until(lambda: status.reconnects > 0 and status.open_gaps == 0)
            await server.write(10)
            await second.until(lambda: server.written[-1] in values(second))
        assert transfers.count(transfers[0]) == 2, "the second time serves to delete it"
        assert lasting(second)


async def test_quiet_transferred_subscription_is_not_lost(tmp_path: Path) -> None:
    """It publishes nothing of its own until its keep-alive is due, in ten minutes."""
    options = {**OPTIONS, "keep_alive": 600.0, "lifetime": 3600.0}
    async with serving(tmp_path) as server:
        first = MemoryAppender()
        async with collecting(server.address, OURS, tmp_path / "pki", spool=first, **options) as (_, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
            await first.until(lambda: values(first) == server.written)
        second = MemoryAppender(first.notes)
        async with collecting(server.address, OURS, tmp_path / "pki", spool=second, **options) as (_, status):
            await until(lambda: status.state == "connected" and status.open_gaps == 0)
            (subscription,) = server.server._subscriptions.subscriptions.values()
            await until(lambda: len(subscription.monitored_item_srv._monitored_items) == len(OURS))
            await server.write(10)
            await second.until(lambda: values(first, second) == server.written)
        assert (status.reconnects, lasting(second)) == (0, [])
        came = [b.samples.channel for b in second.batches if isinstance(b, SampleBatch)]
        assert set(np.concatenate(came).tolist()) == {0}


async def test_killed_before_new_subscriptions_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outage is over then by what is on disk, and no subscription is known that has published since."""
    frozen: list[MemoryAppender] = []
    async with serving(tmp_path, history=0) as server:
        async with collecting(server.address, OURS, tmp_path / "pki", **OPTIONS) as (first, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
            await first.until(lambda: values(first) == server.written)

            async def complete(_: Subscriptions) -> None:
                frozen.append(MemoryAppender(deepcopy(first.notes)))
                await asyncio.Event().wait()

            with monkeypatch.context() as patch:
                patch.setattr(Subscriptions, "complete", complete)
                await server.server.forget()
                await until(lambda: bool(frozen))
        begin = now_us()
        await server.write(10)
        end = now_us()
        async with collecting(server.address, OURS, tmp_path / "pki", spool=frozen[0], **OPTIONS) as (second, status):
            await until(lambda: status.state == "connected")
            await server.write(10)
            await second.until(lambda: server.written[-1] in values(second))
    ended = max(gap.to_time or 0 for gap in first.gaps() if gap.reason == "disconnected")
    (gap,) = [gap for gap in second.gaps() if gap.reason == "killed"]
    assert gap.from_time <= ended, "nothing is between the outage and what follows"
    assert gap.channel_ids is None
    assert gap.to_time is not None
    assert gap.from_time <= begin
    assert gap.to_time >= end


async def test_channel_moved_to_another_node(tmp_path: Path) -> None:
    async with serving(tmp_path) as server:
        first = MemoryAppender()
        async with collecting(server.address, OURS, tmp_path / "pki", spool=first, **OPTIONS) as (_, status):
            await until(lambda: status.state == "connected")
            await server.write(5)
            await first.until(lambda: values(first) == server.written)
        second = MemoryAppender(first.notes)
        swapped = [replace(OURS[1], name="a"), replace(OURS[0], name="b")]
        async with collecting(server.address, swapped, tmp_path / "pki", spool=second, **OPTIONS) as (_, status):
            await until(lambda: status.state == "connected")
            await second.until(lambda: 0.0 in [v for _, v, _ in second.samples(0)])  # what the other node begins with
            swapped_at = now_us()
            await server.write(5)
            await second.until(lambda: server.written[-1] in [v for _, v, _ in second.samples(1)])
            await until(lambda: status.open_gaps == 0)
        assert {v for t, v, _ in second.samples(0) if t > swapped_at} <= {0.0, 1.0}
        assert len(server.server._subscriptions.subscriptions) == 1
        moved = [g.channel_ids or () for g in second.gaps() if g.reason == "stopped"]
        assert sorted(chain.from_iterable(moved)) == [0, 1], "nothing is sampled between the items of two nodes"


@pytest.mark.slow
@pytest.mark.parametrize("name", ("node-opcua", "open62541", "milo"))
async def test_foreign_server_transfers_its_subscription(name: str, tmp_path: Path) -> None:
    """Connections cut and collectors killed, again and again; each value once, whatever was republished.

    They hand anonymous users' subscriptions over on a secured channel only (OPC 10000-4, 5.14.7.1).
    """
    # node-opcua names the machine, not 127.0.0.1. A busy machine may be silent for longer than the short time-out.
    options = {**OPTIONS, "insecure": False, "accept": ["wrong-host"], "time_out": 30.0}
    tags = [tag for tag in opcua_tags(name, 100) if tag.kind != "text"]
    port = free_port()
    relay = Relay()
    async with peer(name, tmp_path / "peer", 100, "200") as server:
        await relay.start(("127.0.0.1", port), ("127.0.0.1", server.port))
        address = f"opc.tcp://127.0.0.1:{port}"
        async with collecting(address, tags, tmp_path / "pki", **options) as (_, status):
            await until(lambda: "is not trusted" in status.reason)
        trust(tmp_path / "pki", "ua")
        spools = [MemoryAppender()]
        for _ in range(2):
            async with collecting(address, tags, tmp_path / "pki", spool=spools[-1], **options) as (spool, status):
                await until(lambda status=status: status.state == "connected")
                await more(spool)
                relay.refuse()
                await until(lambda status=status: status.state == "disconnected")
                await relay.accept()
                await until(lambda status=status: status.state == "connected")
                await more(spool)
                await until(lambda status=status: status.open_gaps == 0)
                frozen = MemoryAppender(deepcopy(spool.notes))
                frozen.batches = list(spool.batches)
            spools[-1] = frozen
            spools.append(MemoryAppender(deepcopy(frozen.notes)))
        async with collecting(address, tags, tmp_path / "pki", spool=spools[-1], **options) as (_, status):
            await spools[-1].until(lambda: len(spools[-1].samples(len(tags) - 1)) > 10)
            await until(lambda: status.open_gaps == 0)
        await relay.stop()
        truth = server.published()
    assert [reason for k in spools for reason in lasting(k)] == [], [k.gaps() for k in spools]
    for i, tag in enumerate(tags):
        stored = {time: value for k in spools for time, value, _ in k.samples(i)}
        times = sorted(time for channel, time in truth if channel == tag.name)
        first = next(time for time in times if time in stored)
        between = [time for time in times if first <= time <= max(stored)]
        assert sorted(time for time in stored if time >= first) == between
        assert all(truth[tag.name, time][0] == stored[time] for time in between)
