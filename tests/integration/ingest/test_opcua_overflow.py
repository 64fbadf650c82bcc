"""A server's queue overflows while the collector is away: each value of the server's own log is stored, or in a gap."""

from __future__ import annotations

import asyncio
import bisect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from asyncua import ua

import simulator.subscriptions
from core.config.sources import OpcuaTag
from core.timestamps import now_us
from ops.certificates import trust
from simulator.opcua_server import OpcuaServer
from simulator.tags import SimTag
from tests.integration.ingest.test_opcua_collector import SERVERS, collecting, simulated_server
from tests.memory_appender import MemoryAppender
from tests.peers import opcua_tags, peer
from tests.ports import free_port
from tests.waiting import running, until

QUEUE = 20


@dataclass(frozen=True, slots=True)
class Server:
    """A server that goes on publishing values of these tags, each with another time."""

    address: str
    tags: list[OpcuaTag]
    truth: Callable[[], list[list[int]]]  # of each tag, the times (µs) of all values until now
    options: dict[str, Any]


Serving: TypeAlias = Callable[[Path], AbstractAsyncContextManager[Server]]


@asynccontextmanager
async def foreign(name: str, folder: Path) -> AsyncIterator[Server]:
    """Hands anonymous users' subscriptions over on a secured channel only."""
    tags = opcua_tags(name, 10)
    if name == "node-opcua":  # flags no value that is not Good
        tags += opcua_tags(name, 105)[100:]
    async with peer(name, folder / "peer", 10 if len(tags) == 10 else 105, "200") as server:
        address = f"opc.tcp://127.0.0.1:{server.port}"
        options: dict[str, Any] = {"accept": ["wrong-host"]}  # node-opcua names the machine, not 127.0.0.1
        async with collecting(address, tags, folder / "pki", **options) as (_, status):
            await until(lambda: "is not trusted" in status.reason)
        trust(folder / "pki", "ua")

        def truth() -> list[list[int]]:
            known = server.published()
            return [sorted(time for channel, time in known if channel == tag.name) for tag in tags]

        yield Server(address, tags, truth, options)


@asynccontextmanager
async def asyncua_server(folder: Path) -> AsyncIterator[Server]:
    """The simulator's. Flags the value behind the gap."""
    tags = [SimTag("a", "a", opcua="Double", period=0.1), SimTag("b", "b", "text", opcua="String", period=0.1)]
    ours = [OpcuaTag(name="a", address="ns=2;s=a"), OpcuaTag(name="b", address="ns=2;s=b", kind="text")]
    port = free_port()
    times: list[list[int]] = [[], []]

    async def publish(server: OpcuaServer) -> None:
        while True:
            for tag in range(2):
                time = now_us()
                await server.write(tag, float(time) if tag == 0 else str(time), time, 0)
                times[tag].append(time)
            await asyncio.sleep(0.05)

    async with simulated_server(tags, folder, port) as server, running(publish(server)):
        yield Server(f"opc.tcp://127.0.0.1:{port}/", ours, lambda: times, {"insecure": True})


@contextmanager
def flags_what_it_queues_while_full() -> Iterator[None]:
    """As Eclipse Milo does: each value that found the queue full, whatever was thrown away for it."""

    async def enqueue(subscription: Any, mid: int, event: Any, size: int, queue: dict[int, list[Any]]) -> None:
        waiting = queue.get(mid)
        if waiting is not None and len(waiting) >= size > 0:
            del waiting[0]
            value = event.Value
            flagged = ua.DataValue(value.Value, ua.StatusCode(0x0480), value.SourceTimestamp, value.ServerTimestamp)
            waiting.append(replace(event, Value=flagged))
            return
        await super(simulator.subscriptions._Subscription, subscription)._enqueue_event(mid, event, size, queue)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator.subscriptions._Subscription, "_enqueue_event", enqueue)
        yield


@asynccontextmanager
async def like_milo(folder: Path) -> AsyncIterator[Server]:
    with flags_what_it_queues_while_full():
        async with asyncua_server(folder) as server:
            yield server


@pytest.mark.slow
@pytest.mark.parametrize(
    "serving",
    [*(pytest.param(partial(foreign, name), id=name) for name in SERVERS), asyncua_server, like_milo],
)
async def test_each_value_is_stored_or_within_a_gap(tmp_path: Path, serving: Serving) -> None:
    async with serving(tmp_path) as server:
        options = {"queue_size": QUEUE, "keep_alive": 1.0, "lifetime": 600.0, "backfill": False, **server.options}
        first = MemoryAppender()
        async with collecting(server.address, server.tags, tmp_path / "pki", spool=first, **options):
            await first.until(lambda: all(len(times_of(i, first)) > 5 for i in range(len(server.tags))))
        seen = len(server.truth()[0])
        await until(lambda: len(server.truth()[0]) > seen + QUEUE + 10)
        second = MemoryAppender(first.notes)
        async with collecting(server.address, server.tags, tmp_path / "pki", spool=second, **options) as (_, status):
            await until(lambda: status.state == "connected")
            back = now_us()
            await second.until(lambda: all(max(times_of(i, second), default=0) > back for i in range(len(server.tags))))
            assert f"values of {len(server.tags)} channels were lost" in status.remarks["overflow"]
        truth = [list(times) for times in server.truth()]
    for i, tag in enumerate(server.tags):
        stored = sorted(times_of(i, first, second))
        expected = [time for time in truth[i] if stored[0] <= time <= stored[-1]]
        lost = sorted(set(expected) - set(stored))
        assert lost, f"{tag.name}: nothing overflowed"
        assert set(stored) <= set(expected)
        gaps = [g for g in second.gaps() if g.channel_ids is not None and i in g.channel_ids]
        assert {g.reason for g in gaps} == {"overflow"}
        spans = [(g.from_time, g.to_time or 0) for g in gaps]
        for time in lost:
            assert any(start < time < end for start, end in spans), (tag.name, time, spans)
        for start, end in spans:
            assert any(start < time < end for time in lost), "nothing is missing in it"
            k = bisect.bisect_left(stored, end)
            assert k < len(stored), "ends at a sample"
            assert stored[k] == end


def times_of(channel: int, *spool: MemoryAppender) -> set[int]:
    """Times (µs) of a channel's samples and texts; what was sent again counts once."""
    samples = {time for k in spool for time, _, _ in k.samples(channel)}
    return samples | {e.time for k in spool for e in k.events("text") if e.channel_id == channel}
