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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from ingest.installation import installation_of
from ingest.timestamps import now_us
from ops.paths import CHECKOUT
from ops.ports import free_ports
from ops.postgres.bootstrap import create_database
from ops.postgres.server import Server
from simulator.compare import compare
from tests.e2e.appliance import Appliance
from tests.waiting import until

SECOND = 1_000_000  # µs
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
tags = "{tags}"
[[source]]
name = "edge"
kind = "push"
token_file = "edge.token"
unknown = "create"
"""
_PUSHED = """
SELECT concat_ws(' ', count(*), count(DISTINCT r.time), min(r.value), max(r.value))
FROM plant.samples_raw AS r
JOIN plant.channel AS c ON c.id = r.channel_id
JOIN plant.source AS s ON s.id = c.source_id
WHERE s.name = 'edge'
"""
_NEWEST = """
SELECT (extract(epoch FROM max(b.last_time)) * 1000000)::int8 FROM plant.ingest_batch AS b WHERE b.kind = 'samples'
"""
_AWAY = """
SELECT count(*) FROM plant.member_gap AS g JOIN plant.source AS s ON s.id = g.source_id
WHERE s.name = 'load-opcua' AND g.to_time IS NULL
"""
_GAPS = "SELECT count(*) FROM plant.gap WHERE to_time IS DISTINCT FROM from_time"


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
            tags=self.folder / "plant" / "tags" / "opcua.csv",
        )
        path.write_text(text.replace(*changed) if changed[0] else text)
        token = self.folder / "edge.token"
        token.write_text("token-of-the-edge\n")
        token.chmod(0o600)
        return path

    def up(self, member: int, configuration: Path | None = None) -> str:
        """``plantlog up``."""
        file = configuration or self.configuration(member)
        return self.members[member - 1].plantlog("up", "--config", str(file), "--no-simulator")

    def refused(self, member: int, configuration: Path | None = None) -> str:
        """What ``up`` says that must fail."""
        with pytest.raises(AssertionError) as raised:
            self.up(member, configuration)
        return " ".join(str(raised.value).replace("│", " ").split())

    def copy_identity(self) -> None:
        """As docs/operations.md says."""
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
            process.send_signal(number)
        return found

    def kill(self, member: int) -> None:
        """SIGKILL each process of a member."""
        psutil.wait_procs(self.send(member, signal.SIGKILL), 10)

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
            return bool((await appliance.fetchval(_NEWEST) or 0) > us)

        await until(stored, 120, 0.2, lambda: appliance.plantlog("status", "--once"))

    async def check(self, from_us: int, to_us: int, member: int) -> None:
        """Everything is there once, and there is no gap since the pair is complete."""
        await self.until_stored(to_us + SECOND, member)
        dsn = (self.members[member - 1].root / "secrets" / "reader.dsn").read_text().strip()

        async def all_there() -> bool:
            found = (await compare(self.truth, dsn, from_us, to_us, "load-opcua"))["all"]
            assert (found.duplicated, found.invented, found.altered) == (0, 0, 0)
            return found.stored > 0 and found.missing == 0

        await until(all_there, 60, 0.5)


@contextmanager
def _pair(folder: Path) -> Iterator[Pair]:
    os.environ.setdefault("PLANTLOG_ROOTFS", str(CHECKOUT / ".state" / "postgres" / "rootfs"))
    port = free_ports(90)
    members = Appliance(folder / "one"), Appliance(folder / "two")
    pair = Pair(folder, port, members, folder / "simulator" / "truth")
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    simulator = [sys.executable, "-P", "-m", "simulator"]
    load = ["--channels", "44", "--hz", "4"]
    ports = ["--opcua-port", str(port + 70), "--modbus-port", str(port + 75)]
    subprocess.run([*simulator, "export", str(folder / "plant"), *load, *ports], env=environment, check=True)
    with ExitStack() as stack:
        command = [*simulator, "run", "--state", str(folder / "simulator"), "--control-port", str(port + 80)]
        plant = subprocess.Popen([*command, *load, *ports, "--history", "0"], env=environment)
        stack.callback(plant.wait)
        stack.callback(plant.terminate)
        for appliance in members:
            stack.callback(appliance.plantlog, "down", "--wipe", "--yes")
        yield pair


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Both members run, and member 1 writes."""
    with Server(tmp_path / "server") as server:
        dsn = f"{server.owner_dsn.rpartition('/')[0]}/pair"
        asyncio.run(create_database(dsn))
        monkeypatch.setenv("PLANTLOG_DSN", dsn)
        with _pair(tmp_path) as pair:
            pair.up(1)
            yield pair


@pytest.mark.timeout(900)
async def test_pair_of_appliances(pair: Pair) -> None:
    one, two = pair.members
    assert f"the pair of plant pair is installation {installation_of(one.root)}" in pair.refused(2)
    pair.copy_identity()
    other = pair.configuration(2, ("500ms", "250ms"))
    assert "source.load-opcua.publishing_interval: 0.5 there, 0.25 here" in pair.refused(2, other)
    assert "found 1, but member 1 of this pair runs in" in pair.refused(
        2, pair.configuration(2, ("member = 2", "member = 1"))
    )
    pair.up(2)
    complete = now_us() + 2 * SECOND
    await pair.until_stored(complete + 5 * SECOND, 1)

    assert [(m["writes"], m["away"]) for m in one.status()["database"]["members"]] == [(True, False), (False, False)]
    assert "stands by" in two.plantlog("status", "--once")
    gaps = await one.fetchval(_GAPS)

    began, killed = time.monotonic(), now_us()
    pair.kill(1)

    async def written() -> bool:
        return bool((await two.fetchval(_NEWEST) or 0) > killed)

    await until(written, 30, 0.05)
    print(f"member 2 writes {time.monotonic() - began:.2f} s after member 1 was killed")
    await until(lambda: two.status()["database"]["members"][0]["away"], 30)
    assert "away" in two.plantlog("status", "--once")
    assert await two.fetchval("SELECT text FROM plant.event WHERE type = 'lease_taken'") == (
        "member 2 writes instead of member 1"
    )
    await pair.check(complete, now_us(), 2)
    assert await two.fetchval(_GAPS) == gaps

    shutil.rmtree(one.root)  # power-off, and the disk is gone
    pair.members = two, one
    pair.copy_identity()
    pair.members = one, two
    pair.up(1)
    again = now_us() + 2 * SECOND
    await pair.until_stored(again + 5 * SECOND, 1)

    async def receives() -> bool:
        return bool(await one.fetchval(_AWAY) == 0)

    await until(receives, 30, 0.5)
    two.plantlog("down")
    await pair.check(complete, now_us(), 1)
    assert await one.fetchval(_GAPS) == gaps

    slower = "500ms", "1s"  # another configuration: one member after the other
    for member in (1, 2):
        pair.up(member, pair.configuration(member, slower))
    assert [m["away"] for m in one.status()["database"]["members"]] == [False, False]
    assert (one.root / "secrets" / "seal.key").read_bytes() == (two.root / "secrets" / "seal.key").read_bytes()


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("fault", "member"), [("freeze", 1), ("freeze", 2), ("kill", 1), ("kill", 2)])
async def test_fault_of_a_member_costs_nothing(pair: Pair, fault: str, member: int) -> None:
    """A member that is frozen for 10 s, or killed for as long: OPC UA and push are all there once, without a gap."""
    one, _ = pair.members
    survivor = pair.members[2 - member]
    pair.copy_identity()
    pair.up(2)
    complete = now_us() + 2 * SECOND
    await pair.until_stored(complete + 3 * SECOND, 1)
    with pair.pushing() as gateway:
        await until(lambda: len(gateway.sent) > 20)
        gaps = await one.fetchval(_GAPS)
        began, failed = time.monotonic(), now_us()
        if fault == "freeze":
            pair.send(member, signal.SIGSTOP)
        else:
            pair.kill(member)

        async def written() -> bool:
            return bool((await survivor.fetchval(_NEWEST) or 0) > failed)

        await until(written, 30, 0.05)
        print(f"{fault} of member {member}: {time.monotonic() - began:.2f} s until new samples are in the table")
        await until(lambda: time.monotonic() > began + 10, 30, 0.1)
        if fault == "freeze":
            pair.send(member, signal.SIGCONT)
        else:
            pair.up(member)
        again = now_us()
        await pair.until_stored(again + 3 * SECOND, 3 - member)
    expected = f"{len(gateway.sent)} {len(gateway.sent)} 0 {len(gateway.sent) - 1}"

    async def pushed() -> bool:
        return bool(await survivor.fetchval(_PUSHED) == expected)

    await until(pushed, 60, 0.5)
    await pair.check(complete, now_us(), 3 - member)
    assert await one.fetchval(_GAPS) == gaps
    assert await one.fetchval("SELECT count(*) FROM plant.event WHERE type = 'conflict'") == 0
    assert await one.fetchval("SELECT count(*) FROM plant.quarantine") == 0
