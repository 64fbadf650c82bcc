"""The origin of times, by source and by tag."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from asyncua import ua
from asyncua.ua.ua_binary import struct_to_binary

from core.config.sources import OpcuaSource, OpcuaTag
from core.timestamps import utc
from ingest.gaps import Gaps
from ingest.opcua.decode.data_change import data_change
from ingest.opcua.decode.decoded import DataChange
from ingest.opcua.recovery.backfill import Backfill
from ingest.opcua.subscription.tags import Tags
from ingest.status import SourceStatus
from ingest.versions import ChannelVersions
from tests.memory_appender import MemoryAppender

ARRIVAL = 3_000_000
SOURCE, SERVER = 1_000_000, 2_000_000


def change(source: int | None, server: int | None, values: dict[int, object]) -> DataChange:
    """A notification of values by client handle, times in µs."""
    times = [None if time is None else utc(time).replace(tzinfo=None) for time in (source, server)]
    items = [
        ua.MonitoredItemNotification(handle, ua.DataValue(ua.Variant(value), ua.StatusCode(0), *times))
        for handle, value in values.items()
    ]
    body = struct_to_binary(ua.DataChangeNotification(MonitoredItems=items))
    return data_change(body, 0, len(body), ARRIVAL)


@pytest.mark.parametrize(
    ("origin", "of_tag", "source", "server", "expected"),
    [
        ("source", None, SOURCE, SERVER, SOURCE),
        ("source", None, None, SERVER, SERVER),
        ("source", None, None, None, ARRIVAL),
        ("source", "server", SOURCE, SERVER, SERVER),
        ("server", None, SOURCE, SERVER, SERVER),
        ("server", None, SOURCE, None, ARRIVAL),
        ("server", "source", SOURCE, SERVER, SOURCE),
        ("source", "arrival", SOURCE, SERVER, ARRIVAL),
        ("arrival", None, SOURCE, SERVER, ARRIVAL),
    ],
)
def test_times_are_of_the_configured_origin(
    origin: Literal["source", "server", "arrival"],
    of_tag: Literal["source", "server", "arrival"] | None,
    source: int | None,
    server: int | None,
    expected: int,
) -> None:
    rows = tuple(OpcuaTag(name=f"t{i}", address=f"ns=2;s=t{i}", time=of_tag) for i in range(2))
    plant = OpcuaSource(name="s", kind="opcua", address="opc.tcp://h:4840", time=origin, tags=rows)
    tags = Tags(plant, {"t0": 10, "t1": 11})
    received = tags.date(tags.by_position(change(source, server, {10: 1.5, 11: "text", 99: 2.5})), ARRIVAL)
    assert np.concatenate(received.time)[0] == expected
    assert received.texts[0].time == expected
    assert bool(sum(map(len, received.server_time))) == (expected == SERVER)


def test_history_of_values_whose_source_timestamps_repeat() -> None:
    rows = (OpcuaTag(name="t0", address="ns=2;s=t0"),)
    tags = Tags(OpcuaSource(name="s", kind="opcua", address="opc.tcp://h:4840", tags=rows), {"t0": 7})
    status, spool = SourceStatus(1, "s", "opcua", "", 1), MemoryAppender()
    versions = ChannelVersions("s", 1, spool)
    backfill = Backfill(tags, status, spool, spool, Gaps(status, spool), versions)
    values = [change(SOURCE, SERVER + n, {0: float(n)}) for n in range(3)]
    batch = backfill._samples([(0, value) for value in values], 1, 2 * SERVER)
    assert batch is not None
    samples = batch.samples
    assert samples.time.tolist() == [SOURCE, SERVER + 1, SERVER + 2]
    assert samples.value.tolist() == [0, 1, 2] and samples.channel.tolist() == [7] * 3


def test_history_has_no_arrival() -> None:
    rows = (OpcuaTag(name="t0", address="ns=2;s=t0", time="arrival"),)
    tags = Tags(OpcuaSource(name="s", kind="opcua", address="opc.tcp://h:4840", tags=rows), {"t0": 0})
    assert np.concatenate(tags.date(change(SOURCE, SERVER, {0: 1.5})).time).tolist() == [SERVER]
