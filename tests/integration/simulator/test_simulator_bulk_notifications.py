"""Numbers that are published as columns: asyncua's own client reads and gets what the truth says."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import numpy as np
from asyncua import Client, ua

from core.samples import Samples
from simulator.plants import LoadPlant
from simulator.simulation import Simulator
from simulator.subscriptions import Item, UnpublishedValues
from tests.integration.simulator import test_simulator_run
from tests.integration.simulator.test_simulator_run import Running, Seen, published
from tests.waiting import PATIENCE, until

_CHANNELS = 40  # of OPC UA
_BAD = 0x80320000


def running(folder: Path) -> AbstractAsyncContextManager[Running]:
    plant = LoadPlant(_CHANNELS * 11 // 10, 20.0)
    return test_simulator_run.running(folder, simulator=Simulator(plant, folder, False, 1.0, history=0))


async def test_a_subscriber_gets_all_that_the_truth_says(tmp_path: Path) -> None:
    async with running(tmp_path) as plant:
        names = [tag.name for tag in plant.simulator.plant.tags if tag.opcua]
        async with Client(plant.opcua, timeout=PATIENCE) as client:
            nodes = [client.get_node(f"ns=2;s={name.replace('/', '.')}") for name in names]
            read = await nodes[3].read_data_value()
            seen = Seen()
            subscription = await client.create_subscription(100, seen)
            await subscription.subscribe_data_change(nodes, queuesize=100)
            await until(lambda: len(seen.values) > 10 * _CHANNELS)
            plant.simulator.faults.add(names[5], "bad_status", 60, _BAD)
            await until(lambda: any(status == _BAD for _, status in seen.values.values()))
            last = max(time for _, time in seen.values)
            await until(lambda: max(time for _, time in seen.values) > last + 1_000_000)
            await subscription.delete()
        truth = published(plant.truth())
    assert truth["load.area000.c00003", round(read.SourceTimestamp.timestamp() * 1e6)] == (read.Value.Value, 0)
    first: dict[str, int] = {}
    for (name, time), (value, status) in seen.values.items():
        first[name] = min(time, first.get(name, time))
        assert truth[name, time] == (value, status) or truth[name, time][1] == status == _BAD
    assert len(first) == _CHANNELS
    assert {key for key in truth if first[key[0]] <= key[1] <= last} <= seen.values.keys()


async def test_removed_item_gets_no_values_and_others_do(tmp_path: Path) -> None:
    async with running(tmp_path) as plant, Client(plant.opcua, timeout=PATIENCE) as client:
        seen = Seen()
        subscription = await client.create_subscription(100, seen)
        one, other = (client.get_node(f"ns=2;s=load.area000.c0000{i}") for i in range(2))
        handle = await subscription.subscribe_data_change(one)
        await until(lambda: len(seen.values) > 5)
        await subscription.unsubscribe(handle)
        await subscription.subscribe_data_change(other)
        await until(lambda: any(name.endswith("1") for name, _ in seen.values))
        ended = {key for key in seen.values if key[0].endswith("0")}
        await until(lambda: len([name for name, _ in seen.values if name.endswith("1")]) > 10)
        assert {key for key in seen.values if key[0].endswith("0")} == ended


def decoded(body: bytes) -> list[tuple[int, float, int, int]]:
    """(handle, value, status, µs) of each item, by asyncua's codec."""
    change = ua.ua_binary.struct_from_binary(ua.DataChangeNotification, ua.utils.Buffer(body))
    found = [(item.ClientHandle, item.Value) for item in change.MonitoredItems]
    return [
        (handle, data.Value.Value, data.StatusCode.value, round(data.SourceTimestamp.timestamp() * 1e6))
        for handle, data in found
    ]


def numbers(tags: list[int], values: list[float], time: int, status: int = 0) -> Samples:
    n = len(tags)
    return Samples(np.array(tags, np.int32), np.full(n, time), np.array(values), np.full(n, status, np.uint32))


def test_full_queue_drops_its_oldest_and_sets_overflow() -> None:
    unpublished = UnpublishedValues(10)
    unpublished.monitor([Item(101, 2, 7, 2), Item(102, 4, 9, 100)])
    for second in range(4):
        unpublished.offer(numbers([1, 2, 4], [0.0, second + 0.5, second + 0.25], second * 1_000_000))
    unpublished.offer(numbers([4], [9.0], 4_000_000, _BAD))
    found: dict[int, Any] = {}
    for handle, value, status, time in decoded(unpublished.take()):
        found.setdefault(handle, []).append((value, status, time // 1_000_000))
    assert found[7] == [(2.5, 0x0480, 2), (3.5, 0, 3)]
    assert found[9] == [(0.25, 0, 0), (1.25, 0, 1), (2.25, 0, 2), (3.25, 0, 3), (9.0, _BAD, 4)]
    assert not unpublished


def test_queued_values_go_with_their_removed_item() -> None:
    unpublished = UnpublishedValues(10)
    unpublished.monitor([Item(101, 2, 7, 10), Item(102, 4, 9, 10)])
    unpublished.offer(numbers([2, 4], [1.0, 2.0], 1))
    unpublished.monitor([Item(102, 4, 9, 10), Item(103, 5, 7, 10)])
    unpublished.offer(numbers([2, 4, 5], [3.0, 4.0, 5.0], 2))
    assert [(handle, value) for handle, value, _, _ in decoded(unpublished.take())] == [(9, 2.0), (9, 4.0), (7, 5.0)]
