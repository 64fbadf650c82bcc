"""The real Telegraf pushes into plantlog: what it read lands once, over kills of either side."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO

import psutil
import pytest

from core.paths import CHECKOUT
from tests.config_in_force import activate
from tests.database import Database, rows
from tests.integration.ingest.test_push import Site, registered, written
from tests.peers import listens
from tests.ports import free_port
from tests.telegraf import Telegraf
from tests.waiting import PATIENCE, until, until_sync

_START = 1_790_000_000_000  # ms
_QUALITIES = {"good": 0, "bad": 0x80000000, "sensor fault": 0x808C0000, "odd": 0x40000000}
_STATUS = 'status = "field.quality"\nstatus_codes = ["sensor fault=0x808C0000"]\n'
_CREATE = 'unknown = "create"\nchannel = '


class Process:
    """``python -m ingest push`` as it runs in an appliance, or another program that takes its arguments."""

    def __init__(self, site: Site, program: str = "ingest") -> None:
        self._site = site
        self._program = program
        self._running: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Returns when gateways can push."""
        activate(self._site.state.root, self._site.root / "p" / "plant.toml")
        self._running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", self._program, "push", "--state", str(self._site.state.root)),
            env={"PYTHONPATH": str(CHECKOUT)},
            stderr=asyncio.subprocess.DEVNULL,
        )
        await until(self._site.ready)

    async def end(self, how: signal.Signals) -> None:
        assert self._running is not None
        self._running.send_signal(how)
        await self.ended()

    async def ended(self) -> int:
        """Wait until it has ended: the exit code."""
        assert self._running is not None
        return await asyncio.wait_for(self._running.wait(), PATIENCE)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.start()
        try:
            yield
        finally:
            await self.end(signal.SIGTERM)


def tool(name: str, package: str) -> str:
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    assert program is not None, f"{name} is missing: apt-get install {package}"
    return program


@contextmanager
def broker(folder: Path) -> Iterator[int]:
    """Mosquitto on a port of its own."""
    port = free_port()
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nuser root\n"
        f"persistence true\npersistence_location {folder}/\n"
    )
    command = [tool("mosquitto", "mosquitto"), "-c", str(config), "-v"]
    with (folder / "mosquitto.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        until_sync(lambda: listens(port) or process.poll() is not None, every=0.02)
        assert process.poll() is None, (folder / "mosquitto.log").read_text()
        yield port
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def device(port: int, topic: str) -> Iterator[IO[str]]:
    """A device: each line that is written to it is a message of QoS 1."""
    command = [tool("mosquitto_pub", "mosquitto-clients"), "-p", str(port), "-q", "1", "-t", topic, "-l"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    assert process.stdin is not None
    try:
        yield process.stdin
    finally:
        process.stdin.close()
        assert process.wait(60) == 0


def say(to: IO[str], numbers: range) -> None:
    for number in numbers:
        quality = [*_QUALITIES][number % len(_QUALITIES)]
        message = {"time": _START + number, "level": number / 4, "running": number % 2 == 0, "quality": quality}
        to.write(json.dumps(message) + "\n")
    to.flush()


@pytest.mark.slow
@pytest.mark.timeout(1800)  # where Telegraf has to be built
async def test_telegraf_machine_metrics_are_stored(tmp_path: Path, database: Database) -> None:
    channel = _CREATE + '"telegraf/{tag.host}/{measurement}/{tag.member}/{field}"'
    site = await registered(tmp_path, database, channel, tags="")
    own = f"http://127.0.0.1:{site.plant.health.port + 3}"
    telegraf = Telegraf(
        tmp_path,
        "telegraf.conf",
        {"telegraf_token": "token-of-edge-gateway", "reader_dsn": database.reader_dsn},
        {"PLANTLOG_PUSH": site.url, "PLANTLOG_COLLECTOR_PUSH": own},
    )
    name = f"telegraf/{socket.gethostname()}"
    expected = [
        f"{name}/cpu/cpu-total/usage_idle",
        f"{name}/disk/%2F/used_percent",
        f"{name}/mem/all/total",
        f"{name}/postgresql/all/size_bytes",
        f"{name}/postgresql_wal/all/wal_bytes",
        f"{name}/prometheus/collector-push.edge/plantlog_samples_total",
        f"{name}/prometheus/collector-push.push/plantlog_spool_max_bytes",
        f"{name}/system/all/load1",
    ]
    async with Process(site).running():
        with telegraf.running():

            async def all_there() -> bool:
                await written(site, database)
                query = "SELECT DISTINCT c.name FROM plant.samples s JOIN plant.channel c ON c.id = s.channel_id"
                return set(expected) <= {row[0] for row in await rows(database, query)}

            await until(all_there, every=0.2)
    await written(site, database)
    ((total,),) = await rows(
        database, f"SELECT DISTINCT value FROM plant.samples_named WHERE name = '{name}/mem/all/total'"
    )
    assert total == psutil.virtual_memory().total
    # Series that differ only in what MEMBER leaves out would be second values for one time.
    conflicts = "SELECT c.name, e.detail FROM plant.event e JOIN plant.channel c ON c.id = e.channel_id"
    assert await rows(database, f"{conflicts} WHERE e.type = 'conflict'") == []
    assert "E! [outputs" not in telegraf.output()


@contextmanager
def mqtt(folder: Path, site: Site) -> Iterator[tuple[Telegraf, IO[str]]]:
    """Telegraf between a broker and plantlog, and a device that publishes what is written to it."""
    with broker(folder) as port, device(port, "plant/north/tank1") as tank:
        telegraf = Telegraf(
            folder,
            "mqtt.conf",
            {"mqtt_token": "token-of-edge-gateway"},
            {"PLANTLOG_PUSH": site.url, "MQTT_BROKER": f"tcp://127.0.0.1:{port}"},
        )
        with telegraf.running():
            log = folder / "mosquitto.log"
            until_sync(lambda: "Sending SUBACK" in log.read_text())  # what comes before is for nobody
            yield telegraf, tank


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_mqtt_through_telegraf_survives_kills_of_either_side(tmp_path: Path, database: Database) -> None:
    site = await registered(tmp_path, database, _STATUS + _CREATE + '"{tag.area}/{tag.equipment}/{field}"', tags="")
    plantlog = Process(site)

    async def stored(n: int) -> bool:
        await written(site, database)
        query = "SELECT count(*) FROM plant.samples_named WHERE name = 'north/tank1/level'"
        return await rows(database, query) >= [(n,)]

    with mqtt(tmp_path, site) as (telegraf, tank):
        async with plantlog.running():
            say(tank, range(500))
            await until(lambda: _at_least(site, 1000))
            await plantlog.end(signal.SIGKILL)
            say(tank, range(500, 1500))
            # It has tried, and keeps what it has.
            await until(lambda: _says(telegraf, "connection refused"))
            await plantlog.start()
            say(tank, range(1500, 2000))
            await until(lambda: _at_least(site, 4000))
            telegraf.kill()
            say(tank, range(2000, 2500))  # the broker keeps them for Telegraf's session
            telegraf.start()
            await until(lambda: stored(2500), every=0.1)
            # The same messages again, as a device does that saw no acknowledgement.
            say(tank, range(2400, 2501))
            await until(lambda: stored(2501), every=0.1)
    await written(site, database)
    found = await rows(
        database,
        "SELECT name, (extract(epoch FROM time) * 1000)::int8, value, status::int8 & 4294967295 "
        "FROM plant.samples_named ORDER BY name, time",
    )
    times = range(2501)
    assert found == [
        *(("north/tank1/level", _START + n, n / 4, status(n)) for n in times),
        *(("north/tank1/running", _START + n, float(n % 2 == 0), status(n)) for n in times),
    ]
    unknown = "SELECT DISTINCT text FROM plant.event WHERE type = 'unknown_status'"
    assert await rows(database, unknown) == [("odd",)]
    assert await rows(database, "SELECT * FROM plant.event WHERE type = 'conflict'") == []


def say_frozen(to: IO[str], levels: range) -> None:
    """A device whose clock stands still."""
    for level in levels:
        to.write(json.dumps({"time": _START, "level": level}) + "\n")
    to.flush()


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_values_at_a_time_that_stands_still_are_a_gap(tmp_path: Path, database: Database) -> None:
    site = await registered(tmp_path, database, _CREATE + '"{tag.area}/{tag.equipment}/{field}"', tags="")
    with mqtt(tmp_path, site) as (_, tank):
        async with site.running():
            say_frozen(tank, range(10))
            await until(lambda: _at_least(site, 10))
            (source,) = (await site.health())["sources"]
            assert source["remarks"] == {"repeated": "values of 1 channel are lost because their timestamps repeat"}
            assert source["open_gaps"] == 1
        await written(site, database)
    assert await rows(database, "SELECT value FROM plant.samples") == [(0.0,)]
    gap = "SELECT channel_id, reason, (extract(epoch FROM from_time) * 1000)::int8, to_time FROM plant.gap"
    channel = "SELECT id FROM plant.channel WHERE name = 'north/tank1/level'"
    ((level,),) = await rows(database, channel)
    assert await rows(database, f"{gap} WHERE reason <> 'stopped'") == [(level, "time_stands_still", _START, None)]


_ARRIVAL = """
[[source.tag]]
name = "north/tank1/level"
address = "north/tank1/level"
time = "arrival"
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_values_dated_by_arrival_are_stored_once_over_a_kill(tmp_path: Path, database: Database) -> None:
    """The killed process has stored what it has not acknowledged; Telegraf sends it again, and more behind it."""
    site = await registered(tmp_path, database, _CREATE + '"{tag.area}/{tag.equipment}/{field}"', _ARRIVAL)
    crashing, plantlog = Process(site, "tests.crashing_push_collector"), Process(site)
    with mqtt(tmp_path, site) as (telegraf, tank):
        await crashing.start()
        say_frozen(tank, range(5))
        assert await crashing.ended() == -signal.SIGKILL
        assert site.samples()
        say_frozen(tank, range(5, 10))
        await until(lambda: _says(telegraf, "connection refused"))
        async with plantlog.running():
            say_frozen(tank, range(10, 15))

            async def all_there() -> bool:
                await written(site, database)
                return await rows(database, "SELECT 14.0 IN (SELECT value FROM plant.samples)") == [(True,)]

            await until(all_there, every=0.1)
    values = await rows(database, "SELECT value FROM plant.samples ORDER BY time")
    assert [value for (value,) in values] == [float(level) for level in range(15)]


def status(number: int) -> int:
    return [*_QUALITIES.values()][number % len(_QUALITIES)]


async def _says(telegraf: Telegraf, words: str) -> bool:
    return words in telegraf.output()


async def _at_least(site: Site, count: int) -> bool:
    return len(site.samples()) >= count
