"""Several collector processes of one protocol: a source goes from one to another with all that is known of it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from itertools import count, groupby, pairwise
from pathlib import Path

import numpy as np
import pytest

from core.batch import GapBatch, SampleBatch
from core.certificates.identity import identity
from core.config import snapshot
from core.config.model import CollectorOptions, HealthOptions, Plant
from core.config.processes import collector
from core.config.sources import ModbusSource, ModbusTag, OpcuaTag
from core.errors import SpoolError
from core.paths import CHECKOUT
from core.registry import Registry
from core.timestamps import now_us
from ingest.run.collectors import Collectors
from ingest.spool.append import Spool
from ops import health
from tests.integration.ingest.test_collectors import opcua, states
from tests.integration.ingest.test_opcua_recovery import serving
from tests.modbus_wire import good_response, misbehaving_device
from tests.ports import free_ports
from tests.samples import batch
from tests.spooling import Spooled
from tests.waiting import PATIENCE, until

MIB = 1024**2
REGISTRY = Registry({"one": 1, "two": 2}, {"one": {"a": 11}, "two": {"b": 12}})
ALARMED = ModbusTag(name="a", address="holding:0", type="uint16", alarm_hi=5.0, alarm_latch=True)


def device(name: str, tag: ModbusTag, port: int) -> ModbusSource:
    given = {"name": name, "kind": "modbus", "address": f"tcp://127.0.0.1:{port}", "poll_interval": 0.1}
    return ModbusSource.model_validate({**given, "backoff_min": 0.05, "backoff_max": 0.2, "tags": [tag]})


@asynccontextmanager
async def collecting(state: Path, kind: str, number: int) -> AsyncIterator[Collectors]:
    """One process' part, in this one."""
    spool = Spool(state / "spool" / f"{kind}.sqlite", 64 * MIB)
    collectors = Collectors(state, spool, spool, f"collector-{kind}-{number}")
    try:
        yield collectors
    finally:
        await collectors.stop(PATIENCE)
        await spool.close()


async def test_gaps_and_alarms_move_with_their_source(tmp_path: Path) -> None:
    spooled = Spooled(tmp_path / "spool" / "modbus.sqlite")
    async with misbehaving_device(lambda frame, number: [(0, good_response(frame, 9))], free_ports(1)) as port:
        one, two = device("one", ALARMED, port), device("two", ModbusTag(name="b", address="holding:1"), port)
        async with collecting(tmp_path, "modbus", 1) as first, collecting(tmp_path, "modbus", 2) as second:
            await first.configure([one, two], REGISTRY)
            await until(lambda: len(spooled.events("alarm")) == 1 and spooled.values(12))
            await second.configure([one], REGISTRY, elsewhere=["two"])
            assert states(second) == {"one": "starting"}, "the first has it"
            for _ in range(3):
                await first.configure([two], REGISTRY, elsewhere=["one"])
                await until(lambda: states(second) == {"one": "connected"})
                await second.configure([], REGISTRY, elsewhere=["one", "two"])
                await first.configure([one, two], REGISTRY)
                await until(lambda: states(first) == {"one": "connected", "two": "connected"})
                await second.configure([one], REGISTRY, elsewhere=["two"])
            assert [event.text for _, event in spooled.events("alarm")] == ["unacknowledged_active"], "it is one alarm"
            (evaluator,) = [evaluator for evaluator in first.evaluators() if evaluator.source == "one"]
            assert evaluator.summary()["unacknowledged"] == 1
            assert len([source for source, _ in spooled.events("restart") if source == 2]) == 1, "that stays"
            seen = len(spooled.values(11))
            await until(lambda: len(spooled.values(11)) > seen + 3)
    # The device is gone: the gap that is open with one process ends with the other.
    async with collecting(tmp_path, "modbus", 1) as first, collecting(tmp_path, "modbus", 2) as second:
        await first.configure([one], REGISTRY)
        await until(lambda: [gap.to_time for gap in spooled.gaps(1)][-1:] == [None])
        await first.configure([], REGISTRY, elsewhere=["one"])
        await second.configure([one], REGISTRY)
        await until(lambda: [gap.to_time for gap in spooled.gaps(1)][-1:] == [None])
        assert [gap.to_time for gap in spooled.gaps(1)].count(None) == 1, "the same gap"
        async with misbehaving_device(lambda frame, number: [(0, good_response(frame, 9))], port):
            await until(lambda: states(second) == {"one": "connected"} and not second.statuses()[0].open_gaps)
            await until(lambda: all(gap.to_time is not None for gap in spooled.gaps(1)))


@pytest.mark.slow
async def test_subscription_moved_to_another_process_loses_nothing(tmp_path: Path) -> None:
    spooled = Spooled(tmp_path / "spool" / "opcua.sqlite")
    async with (
        serving(tmp_path / "server") as server,
        collecting(tmp_path, "opcua", 1) as first,
        collecting(tmp_path, "opcua", 2) as second,
    ):
        one = opcua("one", server.address, [OpcuaTag(name="a", address="ns=2;s=unit.a")])
        await first.configure([one], REGISTRY)
        await until(lambda: states(first) == {"one": "connected"})
        writing = asyncio.create_task(server.write(400, 0.01))
        for to, other in ((second, first), (first, second), (second, first)):
            await to.configure([one], REGISTRY)
            await other.configure([], REGISTRY, elsewhere=["one"])
            await until(lambda to=to: states(to) == {"one": "connected"})
        await writing
        await until(lambda: [v for v in spooled.values(11) if v] == server.written)
        batches = [batch for batch in spooled.read() if isinstance(batch, SampleBatch)]
        samples = [of for b in batches for of in zip(b.samples.time.tolist(), b.samples.value.tolist(), strict=True)]
        assert handovers(samples) <= 3
        await until(lambda: spooled.gaps() == [])


def handovers(samples: Sequence[tuple[int, float]]) -> int:
    """Number of handovers in which another process received again what the one before had not acknowledged.

    That is the last of what that one had, all of it, as it was; how much it is the machine decides.
    """
    had: list[tuple[int, float]] = []
    found = begun = at = 0  # ``begun``: where that which the last process had begins
    while at < len(samples):
        if not had or samples[at][0] > had[-1][0]:
            had.append(samples[at])
            at += 1
            continue
        since = had.index(samples[at], begun)
        assert samples[at : at + len(had) - since] == had[since:]
        found, begun, at = found + 1, since, at + len(had) - since
    return found


async def test_removed_source_and_process_leave_no_open_gap(tmp_path: Path) -> None:
    spooled = Spooled(tmp_path / "spool" / "modbus.sqlite")
    port = free_ports(1)  # nobody listens
    async with collecting(tmp_path, "modbus", 2) as collectors:
        await collectors.configure([device("one", ALARMED, port)], REGISTRY)
        await until(lambda: [gap.to_time for gap in spooled.gaps()] == [None])
        await collectors.stop(PATIENCE, lambda name: name != "one")
        assert [gap for gap in spooled.gaps() if gap.to_time is None] == []


class Killed:
    """Processes that a supervisor would look after, of a plant of devices that note who asks them."""

    def __init__(self, state: Path, sources: Sequence[ModbusSource]) -> None:
        self.state = state
        self.running: dict[int, asyncio.subprocess.Process] = {}
        self._sources = sources
        self._options = HealthOptions(port=free_ports(30))

    def put_in_force(self, processes: int) -> int:
        options = {"health": self._options, "collectors": CollectorOptions(processes=processes)}
        plant = Plant.model_validate({"name": "demo", "sources": tuple(self._sources), **options})
        return snapshot.save(self.state, self.state / "plant.toml", {}, plant).number

    async def kill(self, chance: random.Random) -> None:
        """One of them, perhaps in the middle of following."""
        process = chance.choice(list(self.running.values()))
        process.send_signal(signal.SIGHUP)
        await asyncio.sleep(chance.random() * 0.2)
        process.kill()
        await process.wait()

    async def ready(self, processes: int) -> None:
        """As `up` and a supervisor do: who is too many is ended, who ended is started again, all are told."""
        number = self.put_in_force(processes)
        for gone in [k for k in self.running if k > processes]:
            if self.running[gone].returncode is None:
                self.running[gone].terminate()
            await self.running.pop(gone).wait()
        await until(lambda: self._each_is_read(processes, number), every=0.1)

    async def _each_is_read(self, processes: int, number: int) -> bool:
        read: list[str] = []
        for k in range(1, processes + 1):
            if k not in self.running or self.running[k].returncode is not None:
                command = (sys.executable, "-m", "ingest", "modbus" if k == 1 else f"modbus-{k}")
                arguments = (*command, "--state", str(self.state))
                self.running[k] = await asyncio.create_subprocess_exec(*arguments, cwd=CHECKOUT)
            report = await asyncio.to_thread(health.fetch, collector("modbus", k), self._options, self.state)
            if report is not None and report["configuration"] != number:
                self.running[k].send_signal(signal.SIGHUP)
            elif report is not None and report["ready"]:
                read += [source["name"] for source in report["sources"]]
        return sorted(read) == sorted(source.name for source in self._sources)

    async def end(self) -> None:
        for process in self.running.values():
            process.terminate()
            assert await asyncio.wait_for(process.wait(), PATIENCE) == 0


@pytest.mark.slow
async def test_killed_processes_while_sources_move_lose_nothing(tmp_path: Path) -> None:
    """No two read one device, and every silence is a gap, whoever is killed while sources go to and fro."""
    chance, names = random.Random(12), [f"plc{n}" for n in range(4)]
    channels = {f"c{n}": 100 + n for n in range(4)}
    ids = {name: {channel: channels[channel]} for name, channel in zip(names, channels, strict=True)}
    Registry({name: 1 + n for n, name in enumerate(names)}, ids).save(tmp_path / "registry.json")
    spooled = Spooled(tmp_path / "spool" / "modbus.sqlite")
    requests: list[list[int]] = [[] for _ in names]  # by device: which of its connections asked, in turn
    async with AsyncExitStack() as stack:
        ports = [await stack.enter_async_context(_counting(of)) for of in requests]
        tags = [ModbusTag(name=name, address="holding:0", type="uint16") for name in channels]
        site = Killed(tmp_path, [device(*arguments) for arguments in zip(names, tags, ports, strict=True)])
        try:
            await site.ready(1)
            for processes in (2, 3, 1):
                site.put_in_force(processes)
                await site.kill(chance)
                await site.ready(processes)
            end = now_us()
            await until(lambda: all(_times(spooled, n)[-1] > end for n in range(4)))
            await site.end()
        finally:
            for process in site.running.values():
                if process.returncode is None:
                    process.kill()
    for n in range(4):
        turns = [connection for connection, _ in groupby(requests[n])]
        assert len(turns) == len(set(turns)), "nobody asks any more once another one does"
        gaps = spooled.gaps(1 + n)
        assert all(gap.to_time is not None for gap in gaps)
        # On a busy machine gaps are measured by the pace that was said.
        report = (event.detail["pace_seconds"] for of, event in spooled.events("poll_stretched") if of == 1 + n)
        slowest = max(report, default=0.0)
        for a, b in pairwise(_times(spooled, n)):
            on_record = any(gap.from_time <= b and (gap.to_time or b) >= a for gap in gaps)
            assert b - a < max(1.5, 2.1 * slowest) * 1e6 or on_record, (names[n], (b - a) / 1e6, gaps)


def _times(spooled: Spooled, n: int) -> list[int]:
    found = [one.samples.time[one.samples.channel == 100 + n] for one in spooled.read() if isinstance(one, SampleBatch)]
    times: list[int] = np.concatenate(found).tolist()
    assert times == sorted(set(times)), "one after another, whoever read them"
    return times


@asynccontextmanager
async def _counting(requests: list[int]) -> AsyncIterator[int]:
    """A device that notes which of its connections asks; its port."""
    numbers = count(1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = next(numbers)
        try:
            while True:
                frame = await reader.readexactly(12)
                requests.append(own)
                writer.write(good_response(frame, len(requests) % 60_000))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


_APPENDING = """
import asyncio, os, sys
from pathlib import Path
from ingest.spool.append import Spool
from tests.samples import batch

async def main(folder, source, rounds):
    spool = Spool(Path(folder) / "modbus.sqlite", 1 << 30)
    async def one(i):
        await spool.append(batch([(source, i, float(i), 0)], source), {f"heard:{source}": str(i)})
        os.write(1, b"%d\\n" % i)
    for k in range(rounds):
        await asyncio.gather(*(one(10 * k + i) for i in range(10)))
asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


async def test_processes_append_to_one_file(tmp_path: Path) -> None:
    """All make the file, one is killed: what was told to be durable is there, each under a sequence of its own."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    started = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _APPENDING, str(tmp_path), str(source), "100" if source != 3 else "1000000"),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
        )
        for source in (1, 2, 3, 4)
    ]
    told: list[list[int]] = [[] for _ in started]

    async def listen(k: int) -> None:
        stdout = started[k].stdout
        assert stdout is not None
        async for line in stdout:
            told[k].append(int(line))
            if k == 2 and len(told[k]) == 300:
                started[k].kill()

    await asyncio.gather(*(listen(k) for k in range(4)))
    assert [await process.wait() for process in started] == [0, 0, -signal.SIGKILL, 0]
    taken = Spooled(tmp_path / "modbus.sqlite").taken()
    assert len({spooled.sequence for spooled in taken}) == len(taken)
    for k in range(4):
        values = [int(spooled.batch.samples.value[0]) for spooled in taken if spooled.batch.source_id == k + 1]  # type: ignore[union-attr]
        assert values[: len(told[k])] == told[k]
    spool = Spool(tmp_path / "modbus.sqlite", 64 * MIB)
    assert [spool.notes[f"heard:{source}"] for source in (1, 2, 4)] == ["999"] * 3
    assert int(spool.notes["heard:3"]) >= told[2][-1]
    await spool.close()


async def test_spool_repair_keeps_notes_and_names_all_sources(tmp_path: Path) -> None:
    path = tmp_path / "modbus.sqlite"
    spools = [Spool(path, 64 * MIB) for _ in (1, 2)]
    for source, spool in enumerate(spools, 1):
        spool.owns_note = lambda note, source=source: note.endswith(f":{source}")  # type: ignore[misc]
        for k in range(5):
            rows = batch([(source, i, float(i), 0) for i in range(100)], source)
            await spool.append(rows, {f"heard:{source}": str(k), f"gaps:{source}": None if k % 2 else "[]"})
    with closing(sqlite3.connect(path)) as direct:
        direct.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[16384 * 2 :] = os.urandom(len(content) - 16384 * 2)
    path.write_bytes(content)
    for _ in range(3):
        for source, spool in enumerate(spools, 1):
            try:
                await spool.append(batch([(source, 200, 0.0, 0)], source), {f"heard:{source}": "last"})
            except SpoolError:
                continue
    fresh = Spool(path, 64 * MIB)
    assert dict(fresh.notes) == {"heard:1": "last", "heard:2": "last", "gaps:1": "[]", "gaps:2": "[]"}
    lost = {batch.source_id for batch in Spooled(path).read() if isinstance(batch, GapBatch)}
    assert lost == {1, 2}, "both had batches in it"
    for spool in (*spools, fresh):
        await spool.close()


async def test_two_processes_create_one_certificate(tmp_path: Path) -> None:
    made = await asyncio.gather(*(asyncio.to_thread(identity, tmp_path) for _ in range(4)))
    assert len({one.uri for one in made}) == 1
