"""A redundant pair: two state folders of one installation, one OPC UA server, one database."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from core.config import token_file
from core.paths import CHECKOUT
from ops.postgres.bootstrap import create_database
from ops.postgres.server import Server
from simulator.compare import compare
from simulator.compare_samples import Comparison
from tests.e2e.appliance import Appliance
from tests.ports import free_ports
from tests.waiting import PATIENCE, until

SECOND = 1_000_000  # µs
_INTERVAL = SECOND // 4  # of polls
_CONFIGURATION = """
[plant]
name = "pair"
[redundancy]
member = {member}
[health]
port = {port}
[viewer]
port = {viewer}
[push]
port = {push}
[[source]]
name = "load-opcua"
kind = "opcua"
address = "opc.tcp://127.0.0.1:{server}/plantlog/simulator"
insecure = true
publishing_interval = "500ms"
tags = "{tags}/opcua.csv"
[[source]]
name = "load1"
kind = "modbus"
address = "tcp://127.0.0.1:{device}"
poll_interval = "250ms"
standby = "poll"
tags = "{tags}/polled.csv"
[[source]]
name = "load2"
kind = "modbus"
address = "tcp://127.0.0.1:{device}"
poll_interval = "250ms"
tags = "{tags}/idle.csv"
[[source]]
name = "edge"
kind = "push"
token_file = "edge.token"
unknown = "create"
"""
# Since a time (µs).
PUSHED = """
SELECT concat_ws(' ', count(*), count(DISTINCT r.time), min(r.value), max(r.value))
FROM plant.samples_raw AS r
JOIN plant.channel AS c ON c.id = r.channel_id
JOIN plant.source AS s ON s.id = c.source_id
WHERE s.name = 'edge' AND r.time >= to_timestamp({} / 1e6)
"""
NEWEST = """
SELECT (extract(epoch FROM max(b.last_time)) * 1000000)::int8 FROM plant.ingest_batch AS b WHERE b.kind = 'samples'
"""
_INCOMPLETE = """
SELECT count(*) FROM plant.member AS m
WHERE m.seen_at <= (SELECT max(coalesce(g.to_time, 'infinity')) FROM plant.member_gap AS g WHERE g.reason <> 'standby')
"""
# On a busy machine polls come late, which is a gap as well.
GAPS = """
SELECT count(*) FROM plant.gap AS g JOIN plant.source AS s ON s.id = g.source_id
WHERE g.to_time IS DISTINCT FROM g.from_time AND s.name <> 'load2' AND g.reason <> 'poll_missed'
"""
IDLE_GAPS = """
SELECT array_agg(g.reason || ' ' || (g.to_time - g.from_time < INTERVAL '10 seconds') ORDER BY g.from_time)
FROM plant.gap AS g JOIN plant.source AS s ON s.id = g.source_id
WHERE g.to_time IS DISTINCT FROM g.from_time AND s.name = 'load2' AND g.reason <> 'poll_missed'
"""


class Gateway:
    """Pushes one value every 100 ms, each to both members, to each until it takes it."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.sent: list[str] = []
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._measure),
            *(threading.Thread(target=self._push, args=(port,)) for port in ports),
        ]
        for thread in self._threads:
            thread.start()

    def _measure(self) -> None:
        while not self._stopping.wait(0.1):
            self.sent.append(f"edge value={len(self.sent)} {time.time_ns()}\n")

    def _push(self, port: int) -> None:
        pushed = 0
        while not (self._stopping.is_set() and pushed == len(self.sent)):
            until_now = len(self.sent)
            headers = {"Authorization": "Token token-of-the-edge"}
            body = "".join(self.sent[pushed:until_now]).encode()
            try:
                if body:
                    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/v2/write", body, headers)
                    with urllib.request.urlopen(request, timeout=3):
                        pushed = until_now
            except OSError:
                pass
            time.sleep(0.05)

    def stop(self) -> None:
        """Wait until both members have everything."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)


@dataclass
class Pair:
    """Two members, and the plant."""

    folder: Path
    first_port: int
    members: tuple[Appliance, Appliance]
    truth: Path
    server: Server  # the database's

    def configuration(self, member: int, changed: tuple[str, str] = ("", "")) -> Path:
        """The file of a member, with a text that is replaced by another."""
        path = self.folder / f"{member}.toml"
        port = self.first_port + 30 * (member - 1)
        text = _CONFIGURATION.format(
            member=member,
            port=port,
            viewer=port + 7,
            push=port + 8,
            server=self.first_port + 70,
            tags=self.folder / "plant" / "tags",
            device=self.first_port + 75,
        )
        path.write_text(text.replace(*changed) if changed[0] else text)
        token_file.write(self.folder / "edge.token", "token-of-the-edge")
        return path

    def up(self, member: int, configuration: Path | None = None) -> str:
        """``plantlog up``."""
        file = configuration or self.configuration(member)
        return self.members[member - 1].plantlog("up", "--config", str(file), "--no-simulator")

    def refused(self, member: int, configuration: Path | None = None) -> str:
        """Error of an ``up`` that must fail."""
        with pytest.raises(AssertionError) as raised:
            self.up(member, configuration)
        return " ".join(str(raised.value).replace("│", " ").split())

    def copy_identity(self) -> None:
        """Copy the identity of a state folder, as docs/redundancy.md says."""
        one, two = (appliance.root for appliance in self.members)
        two.mkdir(exist_ok=True)
        shutil.copy(one / "installation", two)
        shutil.rmtree(two / "secrets", ignore_errors=True)
        shutil.copytree(one / "secrets", two / "secrets")

    def send(self, member: int, number: signal.Signals) -> list[psutil.Process]:
        """A signal to each process of a member, the supervisor first."""
        root = str(self.members[member - 1].root)
        found = [p for p in psutil.process_iter(["cmdline"]) if any(root in part for part in p.info["cmdline"] or ())]
        found.sort(key=lambda p: "supervisord" not in " ".join(p.info["cmdline"]))
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return found

    def kill(self, member: int) -> None:
        """SIGKILL each process of a member."""
        psutil.wait_procs(self.send(member, signal.SIGKILL), PATIENCE)

    @contextmanager
    def pushing(self) -> Iterator[Gateway]:
        """A gateway that pushes to both members inside the block."""
        gateway = Gateway([self.first_port + 8, self.first_port + 38])
        try:
            yield gateway
        finally:
            gateway.stop()

    async def until_stored(self, us: int, member: int) -> None:
        """Wait until a member sees samples later than ``us`` in the table."""
        appliance = self.members[member - 1]

        async def stored() -> bool:
            return bool((await appliance.fetchval(NEWEST) or 0) > us)

        await until(stored, every=0.2, show=lambda: appliance.plantlog("status", "--once"))

    async def until_complete(self, member: int) -> None:
        """Wait until a member sees in the database that both receive everything, and were seen after that."""
        appliance = self.members[member - 1]

        async def complete() -> bool:
            return bool(await appliance.fetchval(_INCOMPLETE) == 0)

        await until(complete, every=0.2)

    async def check(self, from_us: int, to_us: int, member: int) -> None:
        """Everything is there once, and there is no gap since the pair is complete."""
        await self.until_stored(to_us + SECOND, member)
        dsn = (self.members[member - 1].root / "secrets" / "reader.dsn").read_text().strip()

        found: list[Comparison] = []

        async def all_there() -> bool:
            found[:] = [
                (await compare(self.truth, dsn, from_us, to_us, "load-opcua"))["all"],
                (await compare(self.truth, dsn, from_us, to_us, "load1", within_us=2 * _INTERVAL))["all"],
                (await compare(self.truth, dsn, from_us, to_us, "load2", within_us=2 * _INTERVAL))["all"],
            ]
            wrong = [
                comparison
                for comparison in found
                if (comparison.duplicated, comparison.invented, comparison.altered) != (0, 0, 0)
            ]
            assert wrong == []
            return all(comparison.stored > 0 and comparison.missing_silent == 0 for comparison in found) and not any(
                one.missing for one in found[:2]
            )

        await until(all_there, every=0.5, show=lambda: found)  # a standby asks for the lease once a minute


@contextmanager
def own_server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server with an empty database, which ``PLANTLOG_DSN`` names inside the block."""
    with Server(folder / "server") as server:
        dsn = f"{server.owner_dsn.rpartition('/')[0]}/own"
        asyncio.run(create_database(dsn))
        monkeypatch.setenv("PLANTLOG_DSN", dsn)
        yield server


@contextmanager
def running_pair(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """A database, a plant and member 1, which writes; the identity of member 2 is for the test to copy."""
    with own_server(folder, monkeypatch) as server, _pair(folder, server) as pair:
        pair.up(1)
        yield pair


@contextmanager
def _pair(folder: Path, server: Server) -> Iterator[Pair]:
    port = free_ports(90)
    members = Appliance(folder / "one"), Appliance(folder / "two")
    pair = Pair(folder, port, members, folder / "simulator" / "truth", server)
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    simulator = [sys.executable, "-P", "-m", "simulator"]
    load = ["--channels", "44", "--hz", "4"]
    ports = ["--opcua-port", str(port + 70), "--modbus-port", str(port + 75)]
    subprocess.run([*simulator, "export", str(folder / "plant"), *load, *ports], env=environment, check=True)
    header, *tags = (folder / "plant" / "tags" / "load1.csv").read_text().splitlines()
    for name, some in (("polled", tags[:2]), ("idle", tags[2:])):  # no read has registers of both
        (folder / "plant" / "tags" / f"{name}.csv").write_text("\n".join([header, *some, ""]))
    with ExitStack() as stack:
        command = [*simulator, "run", "--state", str(folder / "simulator"), "--control-port", str(port + 80)]
        plant = subprocess.Popen([*command, *load, *ports, "--history", "0"], env=environment)
        stack.callback(plant.wait)
        stack.callback(plant.terminate)
        for appliance in members:
            stack.callback(appliance.plantlog, "down", "--wipe", "--yes")
        yield pair


def states(appliance: Appliance) -> dict[str, str]:
    """Source → its state, of those that are read."""
    sources = appliance.status()["sources"]
    return {source["name"]: source["state"] for source in sources if source["kind"] != "push"}
