"""A source that is removed while nothing runs: the time in which nobody read it is a gap."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from core.batch import SampleBatch
from core.config.model import Plant
from core.config.sources import ModbusSource, ModbusTag, OpcuaSource
from core.paths import State
from core.registry import Registry
from core.timestamps import now_us
from ingest.gaps import Gaps
from ingest.run.collectors import Collectors
from ingest.spool.append import Spool
from ingest.status import SourceStatus
from ops.registration.register import register
from tests.database import Database
from tests.integration.ingest.test_collectors import A, opcua
from tests.integration.ingest.test_opcua_recovery import serving
from tests.modbus_wire import good_response, misbehaving_device
from tests.spooling import Spooled
from tests.states import claimed
from tests.waiting import PATIENCE, until

Kind = Literal["opcua", "modbus"]


@asynccontextmanager
async def source(kind: Kind, folder: Path) -> AsyncIterator[OpcuaSource | ModbusSource]:
    """A source with one tag, and the server that it is read from."""
    if kind == "opcua":
        async with serving(folder) as server:
            yield opcua("gone", server.address, [A])
    else:
        async with misbehaving_device(lambda frame, number: [(0, good_response(frame, number))]) as port:
            given = {"name": "gone", "kind": "modbus", "address": f"tcp://127.0.0.1:{port}", "poll_interval": 0.05}
            tags = [ModbusTag(name="a", address="holding:0", type="uint16")]
            yield ModbusSource.model_validate({**given, "tags": tags})


@asynccontextmanager
async def reading(source: OpcuaSource | ModbusSource, state: State) -> AsyncIterator[Spooled]:
    """Its collector, once there are samples."""
    spool, backfill = (Spool(state.spool / f"{source.kind}{more}.sqlite", 1 << 30) for more in ("", ".backfill"))
    collectors = Collectors(state.root, spool, backfill)
    try:
        registry = Registry.load(state.registry)
        await collectors.configure([source], registry)
        spooled = Spooled(spool.path)
        await until(lambda: bool(spooled.values(registry.channels["gone"]["a"])))
        yield spooled
    finally:
        await collectors.stop(PATIENCE)
        await spool.close()
        await backfill.close()


def plant(*sources: OpcuaSource | ModbusSource) -> Plant:
    return Plant.model_validate({"name": "demo", "sources": sources})


@pytest.mark.parametrize("kind", [pytest.param("opcua", marks=pytest.mark.slow), "modbus"])
async def test_downtime_of_a_removed_source_ends_with_its_removal(
    kind: Kind, database: Database, tmp_path: Path
) -> None:
    state = claimed(tmp_path / "state")
    async with source(kind, tmp_path / "server") as gone:
        await register(plant(gone), database.owner_dsn, state)
        async with reading(gone, state) as spooled:
            pass
        before = now_us()
        await register(plant(gone), database.owner_dsn, state)
        assert [gap for gap in spooled.gaps() if gap.reason == "stopped"] == [], "it is still configured"
        await register(plant(), database.owner_dsn, state)
        (gap,) = [gap for gap in spooled.gaps() if gap.reason == "stopped"]
        assert gap.channel_ids is None
        newest = max(int(b.samples.time.max()) for b in spooled.read() if isinstance(b, SampleBatch))
        assert newest <= gap.from_time < before <= (gap.to_time or 0) <= now_us()
        await register(plant(), database.owner_dsn, state)
        assert [gap] == [gap for gap in spooled.gaps() if gap.reason == "stopped"], "it ended with the removal"


async def test_a_source_that_is_read_is_left_to_its_collector(database: Database, tmp_path: Path) -> None:
    state = claimed(tmp_path / "state")
    async with source("modbus", tmp_path) as gone:
        await register(plant(gone), database.owner_dsn, state)
        async with reading(gone, state) as spooled:
            await register(plant(), database.owner_dsn, state)
            assert [gap for gap in spooled.gaps() if gap.reason in ("stopped", "killed")] == []


async def test_open_gaps_of_tags_that_were_removed_while_nothing_ran_end(database: Database, tmp_path: Path) -> None:
    """The device rejects a second register; the tag is removed while nothing runs."""
    state = claimed(tmp_path / "state")
    async with source("modbus", tmp_path) as one:
        both = one.model_copy(update={"tags": [*one.tags, ModbusTag(name="b", address="holding:900", type="uint16")]})
        await register(plant(both), database.owner_dsn, state)
        number = Registry.load(state.registry).channels["gone"]["b"]
        spool = Spool(state.spool / "modbus.sqlite", 1 << 30)
        gaps = Gaps(SourceStatus(Registry.load(state.registry).sources["gone"], "gone", "modbus", "", 2), spool)
        await gaps.open(now_us(), "refused", channels=[number])
        await spool.close()
        await register(plant(one), database.owner_dsn, state)
        async with reading(one, state) as spooled:
            await until(lambda: not [gap for gap in spooled.gaps() if gap.channel_ids and gap.to_time is None])
