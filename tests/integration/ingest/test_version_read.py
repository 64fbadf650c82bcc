"""A tag that is read by another definition: each sample has the name and unit that it was read with, to the sample."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from core.batch import Event, EventBatch
from core.config.load import load
from core.config.model import Plant, WriterOptions
from core.config.sources import ModbusSource, OpcuaSource, OpcuaTag
from core.paths import State
from core.timestamps import now_us
from ingest.opcua.collector import Collector
from ingest.run.collectors import Collectors
from ingest.spool.append import Spool
from ingest.status import SourceStatus
from ingest.writer.writer import Writer
from ops.registration.redefined_tags import TagDecisions
from ops.registration.register import Registration, register
from simulator.opcua_server import OpcuaServer
from simulator.tags import SimTag
from tests.database import Database
from tests.integration.ingest.test_opcua_collector import simulated_server
from tests.integration.ingest.test_opcua_live import configured
from tests.integration.ops.test_register import state_in
from tests.memory_appender import MemoryAppender
from tests.modbus_wire import good_response, misbehaving_device
from tests.ports import free_port
from tests.spooling import drained, spooled
from tests.waiting import PATIENCE, running, until

_OPCUA = [
    SimTag("unit/celsius", "c", opcua="Double", period=0.1),
    SimTag("unit/kelvin", "k", opcua="Double", period=0.1),
]
_OPTIONS = 'insecure = true\npublishing_interval = "100ms"\n'
CELSIUS = OpcuaTag(name="t", address="ns=2;s=unit.celsius", unit="°C")
KELVIN = OpcuaTag(name="t", address="ns=2;s=unit.kelvin", unit="K")
_LONG_AGO = 3600_000_000  # µs


class Appliance:
    """Registration, collectors of one kind and the writer, on one state folder and database."""

    def __init__(
        self, database: Database, state: State, collectors: Collectors, reader: asyncpg.Connection[Any]
    ) -> None:
        self.database = database
        self.state = state
        self.collectors = collectors
        self.reader = reader

    async def register(self, tags: str, kind: str, address: str, options: str = "") -> tuple[Plant, Registration]:
        folder = self.state.root.parent / "plant"
        folder.mkdir(exist_ok=True)
        (folder / "tags.csv").write_text(tags)
        (folder / "plant.toml").write_text(
            f'[plant]\nname = "p"\n[[source]]\nname = "s"\nkind = "{kind}"\naddress = "{address}"\n'
            f'tags = "tags.csv"\n{options}'
        )
        plant = load(folder / "plant.toml")
        return plant, await register(plant, self.database.owner_dsn, self.state, decisions=TagDecisions(["*"]))

    async def follow(self, plant: Plant, registered: Registration) -> None:
        sources: list[OpcuaSource | ModbusSource] = [*plant.opcua_sources(), *plant.modbus_sources()]
        await self.collectors.configure(sources, registered.registry, registered.versions)

    async def labelled(self) -> list[tuple[str, float, int]]:
        """Good samples: unit, value, time (µs)."""
        query = """
            SELECT unit, value, (extract(epoch FROM time) * 1000000)::int8
            FROM plant.samples_named WHERE quality = 'good' ORDER BY time"""
        return [tuple(row) for row in await self.reader.fetch(query)]

    async def more(self, fits: Callable[[float], bool], count: int = 10) -> None:
        """Wait for more samples with such values."""
        seen = sum(fits(value) for _, value, _ in await self.labelled())

        async def there() -> bool:
            return sum(fits(value) for _, value, _ in await self.labelled()) >= seen + count

        await until(there)


@asynccontextmanager
async def appliance(database: Database, folder: Path, kind: str) -> AsyncIterator[Appliance]:
    state = state_in(folder)
    spool = Spool(state.spool / f"{kind}.sqlite", 1024**3)
    collectors = Collectors(state.root, spool, spool)
    reader = await asyncpg.connect(database.reader_dsn)
    async with running(Writer(state.spool, database.ingest_dsn, WriterOptions()).run()):
        try:
            yield Appliance(database, state, collectors, reader)
        finally:
            await reader.close()
            await collectors.stop(PATIENCE)
            await spool.close()


def is_celsius(value: float) -> bool:
    return value < 100


def is_kelvin(value: float) -> bool:
    return value > 100


async def edit_under_load(
    site: Appliance, celsius: Callable[[], Awaitable[Any]], kelvin: Callable[[], Awaitable[Any]]
) -> None:
    """Register one definition after the other while samples come, and let the collectors follow later each time."""
    await site.follow(*await celsius())
    await site.more(is_celsius)
    for register_next, before, after in ((kelvin, is_celsius, is_kelvin), (celsius, is_kelvin, is_celsius)):
        registered = await register_next()
        await site.more(before)
        assert {(unit, is_kelvin(value)) for unit, value, _ in await site.labelled()} <= {("°C", False), ("K", True)}
        await site.follow(*registered)
        await site.more(after)
    assert {(unit, is_kelvin(value)) for unit, value, _ in await site.labelled()} == {("°C", False), ("K", True)}


async def test_modbus_samples_around_a_change(database: Database, tmp_path: Path) -> None:
    """The same register with another divisor and unit, at 20 Hz."""
    async with (
        misbehaving_device(lambda frame, number: [(0, good_response(frame, 29_000 + number % 100))]) as port,
        appliance(database, tmp_path, "modbus") as site,
    ):

        def tag(divisor: int, unit: str) -> Callable[[], Awaitable[Any]]:
            tags = f"name,address,type,divisor,unit,interval\nt,holding:0,uint16,{divisor},{unit},50ms\n"
            return lambda: site.register(tags, "modbus", f"tcp://127.0.0.1:{port}")

        await edit_under_load(site, tag(1000, "°C"), tag(10, "K"))
        rows = await site.labelled()
        first = {unit: min(time for u, _, time in rows if u == unit) for unit in ("°C", "K")}
        versions = await site.reader.fetch(
            "SELECT (extract(epoch FROM valid_from) * 1000000)::int8 AS since, recorded_at > valid_from AS early"
            " FROM plant.channel_version WHERE version = 1"
        )
        [(since, early)] = versions
        last = max(time for unit, _, time in rows if unit == "°C" and time < first["K"])
        assert last < since <= first["K"]
        assert not early, "not from the registration on"


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[OpcuaServer, str]]:
    port = free_port()
    async with simulated_server(_OPCUA, folder, port) as server:
        yield server, f"opc.tcp://127.0.0.1:{port}/"


async def publish(server: OpcuaServer, ahead: float = 0.0) -> None:
    """Other values at 50 Hz, for ever, by a clock of the server that is ``ahead`` (s) of ours."""
    for n in range(1_000_000):
        for tag, value in enumerate((20.0, 290.0)):
            await server.write(tag, value + n % 100 / 100, now_us() + round(ahead * 1e6), 0)
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("ahead", (0.0, -3.0, 3.0))
async def test_opcua_samples_around_a_change_of_node(ahead: float, database: Database, tmp_path: Path) -> None:
    async with serving(tmp_path / "server") as (server, address), appliance(database, tmp_path, "opcua") as site:

        def tag(node: str, unit: str) -> Callable[[], Awaitable[Any]]:
            return lambda: site.register(
                f"name,address,unit\nt,ns=2;s=unit.{node},{unit}\n", "opcua", address, _OPTIONS
            )

        async with running(publish(server, ahead)):
            await edit_under_load(site, tag("celsius", "°C"), tag("kelvin", "K"))
        conflicts = await site.reader.fetchval("SELECT count(*) FROM plant.event WHERE type = 'conflict'")
        assert conflicts == 0


def versions_read(appended: MemoryAppender) -> list[tuple[int | None, int, int]]:
    return [(event.channel_id, event.detail["version"], event.time) for event in appended.events("version_read")]


@asynccontextmanager
async def collecting(
    address: str,
    tag: OpcuaTag,
    folder: Path,
    appended: MemoryAppender,
    backfill_spool: MemoryAppender | None = None,
    versions: Mapping[int, int] | None = None,
    source: Callable[[OpcuaTag], OpcuaSource] | None = None,
) -> AsyncIterator[Collector]:
    described = configured(address, [tag]) if source is None else source(tag)
    status = SourceStatus(1, "ua", "opcua", address, 1)
    collector = Collector(
        described, {"t": 5}, status, appended, folder / "pki", backfill_spool or MemoryAppender(), versions or {}
    )
    async with running(collector.run()):
        await until(lambda: status.state == "connected")
        yield collector


async def test_old_first_value_gets_the_time_of_the_change(tmp_path: Path) -> None:
    """Also in the next process, which subscribes anew; once it changes it has its own time."""
    appended = MemoryAppender()
    async with serving(tmp_path / "server") as (server, address):
        old = now_us() - _LONG_AGO
        await server.write(0, 20.0, now_us(), 0)
        await server.write(1, 290.0, old, 0)
        async with collecting(address, CELSIUS, tmp_path, appended) as collector:
            await appended.until(lambda: bool(appended.samples(5)))
            collector.configure(configured(address, [KELVIN]), {"t": 5}, {5: 1})
            await appended.until(lambda: len(appended.samples(5)) == 2)
        [(channel, version, since)] = versions_read(appended)
        assert (channel, version) == (5, 1)
        assert appended.samples(5)[0][0] < since <= now_us()
        assert appended.samples(5)[1] == (since, 290.0, 0)
        [source_times] = appended.events("time_source")
        assert (source_times.channel_id, source_times.text, source_times.detail) == (5, "change", {"source_time": old})
        notes = {name: text for name, text in appended.notes.items() if not name.startswith("opcua:")}
        again = MemoryAppender(notes)
        async with collecting(address, KELVIN, tmp_path, again, versions={5: 1}):
            await again.until(lambda: bool(again.samples(5)))
            await server.write(1, 291.0, now_us(), 0)
            await again.until(lambda: again.samples(5)[-1][1] == 291.0)
        assert again.samples(5)[0] == (since, 290.0, 0), "the same sample"
        assert [value for _, value, _ in again.samples(5)][1:-1] == [290.0], "known again after the gap of the restart"
        assert [event.text for event in again.events("time_source")] == ["change", "source"]
        assert versions_read(again) == [], "said once"


async def test_recreated_subscription_keeps_times_unless_the_unit_changes(tmp_path: Path) -> None:
    """A server that starts anew sends a value of long ago again; another unit makes another quantity of it."""
    port, old, appended = free_port(), now_us() - _LONG_AGO, MemoryAppender()
    edits: list[dict[str, Any]] = [{}, {"description": "of the drum"}, {"interval": 0.3}, {"unit": "K"}, {"unit": "°F"}]
    times = []
    for version, edit in enumerate(edits):
        tag, appended = replace(CELSIUS, **edit), MemoryAppender(appended.notes)
        async with simulated_server(_OPCUA, tmp_path / "server", port) as server:
            await server.write(0, 20.0, old, 0)
            versions = {5: version} if version else {}
            async with collecting(
                f"opc.tcp://127.0.0.1:{port}/", tag, tmp_path, appended, versions=versions
            ) as collector:
                await appended.until(lambda appended=appended: bool(appended.samples(5)))  # type: ignore[misc]
                if edit == {"unit": "K"}:  # once more, of an item that lives
                    edited = configured(f"opc.tcp://127.0.0.1:{port}/", [replace(tag, **edits[4])])
                    collector.configure(edited, {"t": 5}, {5: 4})
                    await appended.until(lambda appended=appended: len(versions_read(appended)) == 2)  # type: ignore[misc]
                    await server.write(0, 21.0, now_us(), 0)
                    await appended.until(lambda appended=appended: len(appended.samples(5)) == 2)  # type: ignore[misc]
        times.append(appended.samples(5)[0][0])
        source_times = [event.detail.get("source_time") for event in appended.events("time_source")]
        assert source_times[:1] == ([old] if edit == {"unit": "K"} else [])
        assert [v for _, v, _ in versions_read(appended)] == {0: [], 3: [3, 4], 4: []}.get(version, [version])
        if edit == {"unit": "K"}:
            assert times[-1] == versions_read(appended)[0][2]
    assert [time == old for time in times] == [True, True, True, False, True]


@pytest.mark.parametrize("ahead", (0.0, -3.0, 3.0))
async def test_time_between_two_nodes_is_a_gap(ahead: float, tmp_path: Path) -> None:
    """All that was published while the item of one node went and that of the other came is stored, or in the gap."""
    appended, published = MemoryAppender(), list[int]()

    def with_interval(tag: OpcuaTag) -> OpcuaSource:
        return configured(address, [replace(tag, interval=0.5)])

    async def both(server: OpcuaServer) -> None:
        for n in range(1_000_000):
            at = now_us() + round(ahead * 1e6)
            for tag in (0, 1):
                await server.write(tag, float(n), at, 0)
            published.append(at)
            await asyncio.sleep(0.02)

    async with (
        serving(tmp_path / "server") as (server, address),
        running(both(server)),
        collecting(address, CELSIUS, tmp_path, appended, source=with_interval) as collector,
    ):
        await appended.until(lambda: len(appended.samples(5)) > 50)
        collector.configure(with_interval(KELVIN), {"t": 5}, {5: 1})
        await appended.until(lambda: bool(versions_read(appended)))
        n = len(appended.samples(5))
        await appended.until(lambda: len(appended.samples(5)) > n + 100)
    stored = {time for time, _, _ in appended.samples(5)}
    gaps = {(g.from_time): g for g in appended.gaps() if g.channel_ids == (5,)}
    (gap,) = gaps.values()
    assert (gap.reason, gap.detail) == ("stopped", "read from another node")
    assert gap.to_time is not None
    lacking = [at for at in published if min(stored) < at < max(stored) and at not in stored]
    assert [at for at in lacking if not gap.from_time < at < gap.to_time] == []
    assert lacking, "of 0.5 s between two publications something is sampled"
    assert gap.to_time - gap.from_time < 5_000_000


async def test_changed_unit_of_a_node_keeps_late_values(tmp_path: Path) -> None:
    appended = MemoryAppender()
    async with serving(tmp_path / "server") as (server, address):
        async with collecting(address, CELSIUS, tmp_path, appended) as collector:
            await server.write(0, 20.0, now_us(), 0)
            await appended.until(lambda: len(appended.samples(5)) == 2)
            sampled = now_us()
            collector.configure(configured(address, [replace(CELSIUS, unit="K")]), {"t": 5}, {5: 1})
            await appended.until(lambda: bool(versions_read(appended)))
            await server.write(0, 21.0, sampled, 0)
            await appended.until(lambda: len(appended.samples(5)) == 3)
        assert appended.samples(5)[-1] == (sampled, 21.0, 0)
        assert appended.events("time_source") == []


@pytest.mark.parametrize("channels", (None, [5]))
async def test_history_of_another_node_is_not_backfilled(channels: list[int] | None, tmp_path: Path) -> None:
    """History of the new node from before the change is left out; the rest is filled, and recorded as such."""
    async with serving(tmp_path / "server") as (server, address):
        change = now_us()
        for second in range(-5, 5):
            await server.write(1, 290.0 + second, change + second * 1_000_000, 0)
        gap = [change - 60_000_000, change + 60_000_000, "disconnected", channels]
        appended, backfill_spool = (
            MemoryAppender({"backfill:1": json.dumps([gap]), "versions:1": json.dumps({"5": [1, change]})}),
            MemoryAppender(),
        )
        async with collecting(address, KELVIN, tmp_path, appended, backfill_spool, {5: 1}):
            await appended.until(lambda: "backfill:1" not in appended.notes)
        assert [value for _, value, _ in backfill_spool.samples(5)] == [290.0 + second for second in range(5)]
        remains = [gap for gap in appended.gaps() if gap.channel_ids == (5,)]
        assert [(gap.to_time, gap.detail) for gap in remains] == [(change, "not in the history")]
        assert not remains[0].backfilled


@pytest.fixture
async def registered_channels(owner: asyncpg.Connection) -> None:
    await owner.execute("INSERT INTO plant.source (name, kind, address) VALUES ('s', 'modbus', '')")
    await owner.execute(
        "INSERT INTO plant.channel (name, source_id, address, kind, unit) VALUES ('a', 1, '', 'analog', 'm')"
    )


async def _registered(owner: asyncpg.Connection[Any], *changes: str) -> None:
    async with owner.transaction():
        await owner.execute("SELECT set_config('plant.registration', 'on', true)")
        for change in changes:
            await owner.execute(f"UPDATE plant.channel SET {change}")


_VERSIONS = """
    SELECT v.name, v.unit, to_char(v.valid_from, 'SS')::int AS since, to_char(v.valid_to, 'SS')::int AS until
    FROM plant.channel_version AS v ORDER BY v.version"""


async def _said(
    database: Database, folder: Path, owner: asyncpg.Connection[Any], *versions: int
) -> list[tuple[Any, ...]]:
    """Versions after collectors have reported these, each from its own second of a minute on."""
    midnight = now_us() // 86_400_000_000 * 86_400_000_000
    events = [Event("version_read", midnight + v * 1_000_000, 1, detail={"version": v}) for v in versions]
    for event in events:
        await spooled(folder, EventBatch(1, now_us(), (event,)))
        await drained(Writer(folder, database.ingest_dsn, WriterOptions()))
    return [tuple(row) for row in await owner.fetch(_VERSIONS)]


@pytest.mark.usefixtures("registered_channels")
@pytest.mark.parametrize("order", ((1, 2, 3), (3, 1, 2), (2, 3, 1, 1, 2)))
async def test_versions_reported_in_any_order(
    order: tuple[int, ...], database: Database, owner: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    for unit in ("dm", "cm", "mm"):
        await _registered(owner, f"unit = '{unit}'")
    found = await _said(database, tmp_path, owner, *order)
    assert found == [("a", "m", None, 1), ("a", "dm", 1, 2), ("a", "cm", 2, 3), ("a", "mm", 3, None)]


@pytest.mark.usefixtures("registered_channels")
async def test_version_without_samples(database: Database, owner: asyncpg.Connection[Any], tmp_path: Path) -> None:
    await _registered(owner, "unit = 'dm'")
    await _registered(owner, "unit = 'cm'")
    found = await _said(database, tmp_path, owner, 2)
    assert found == [("a", "m", None, 2), ("a", "dm", None, None), ("a", "cm", 2, None)]


@pytest.mark.usefixtures("registered_channels")
async def test_name_change_waits_only_behind_pending_changes(
    database: Database, owner: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    await _registered(owner, "name = 'b'")
    assert await owner.fetchval("SELECT count(*) FROM plant.channel_version WHERE valid_from IS NULL") == 0
    await _registered(owner, "unit = 'dm'")
    await owner.execute("UPDATE plant.channel SET name = 'c'")
    waiting = await owner.fetch(
        "SELECT name, unit FROM plant.channel_version WHERE valid_from IS NULL ORDER BY version"
    )
    assert [tuple(row) for row in waiting] == [("b", "dm"), ("c", "dm")]
