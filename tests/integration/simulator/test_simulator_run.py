"""The running simulator against clients that are not ours: what they get is what the truth says, faults do what they
say, and as a process it ends cleanly."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web
from asyncua import Client, ua
from asyncua.crypto.security_policies import SecurityPolicyBasic256Sha256
from pymodbus.client import AsyncModbusTcpClient

from core.config.load import load
from core.paths import CHECKOUT
from simulator.demo import DemoPlant
from simulator.scenarios import ScenarioPlant
from simulator.simulation import Simulator, control_application
from simulator.truth import Truth, read_truth
from tests.peers import listens
from tests.ports import free_port
from tests.waiting import PATIENCE, until

SET_POINT = "ns=2;s=boilerhouse.boiler1.pressure_sp"


def row_of_ports(count: int) -> int:
    """The first of ``count`` ports in a row, none of which anybody has now."""
    while True:
        first = free_port()
        probes = [socket.socket() for _ in range(count)]
        try:
            for i, probe in enumerate(probes):
                probe.bind(("127.0.0.1", first + i))
        except (OSError, OverflowError):
            continue
        else:
            return first
        finally:
            for probe in probes:
                probe.close()


class Running:
    """A simulator in this process, and where it listens."""

    def __init__(self, simulator: Simulator, port: int, folder: Path) -> None:
        self.simulator = simulator
        self.opcua = f"opc.tcp://127.0.0.1:{port}/"
        self.modbus = port + 1
        self.folder = folder

    def truth(self) -> Truth:
        return read_truth(self.folder / "truth")


@asynccontextmanager
async def running(
    folder: Path, secure: bool = False, jitter: float = 0.0, simulator: Simulator | None = None
) -> AsyncIterator[Running]:
    simulator = simulator or Simulator(ScenarioPlant(1, []), folder, secure, speed=1.0, jitter=jitter)
    port, stop = row_of_ports(4), asyncio.Event()
    task = asyncio.create_task(simulator.run("127.0.0.1", port, port + 1, stop))
    try:
        await until(lambda: simulator.published > 0 or task.done())
        yield Running(simulator, port, folder)
    finally:
        stop.set()
        await task


class Seen:
    """A subscriber by asyncua's own client: (node identifier, µs) → (value, status)."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, int], tuple[Any, int]] = {}

    def datachange_notification(self, node: Any, value: Any, data: Any) -> None:
        found = data.monitored_item.Value
        time = round((found.SourceTimestamp.timestamp()) * 1e6)
        self.values[node.nodeid.Identifier, time] = (value, found.StatusCode.value)


def published(truth: Truth) -> dict[tuple[str, int], tuple[Any, int]]:
    rows = truth.rows["opcua"]
    found: dict[tuple[str, int], tuple[Any, int]] = {
        (truth.names[tag].replace("/", "."), time): (value, status) for tag, status, time, value, _ in rows.tolist()
    }
    for via, name, time, text, status, _ in truth.texts:
        if via == "opcua":
            found[name.replace("/", "."), time] = (text, status)
    return found


async def test_subscriber_gets_exactly_the_truth(tmp_path: Path) -> None:
    """From each node's value at the time of subscription on, states and texts among them."""
    async with running(tmp_path) as plant:
        tags = [t for t in plant.simulator.plant.tags if t.opcua is not None]
        async with Client(plant.opcua, timeout=PATIENCE) as client:
            seen = Seen()
            subscription = await client.create_subscription(200, seen)
            nodes = [client.get_node(f"ns=2;s={t.name.replace('/', '.')}") for t in tags]
            await subscription.subscribe_data_change(nodes, queuesize=100)
            line = client.get_node("ns=2;s=tankfarm.tank1.level_sp")
            await line.write_value(ua.DataValue(ua.Variant(7.5, ua.VariantType.Double)))
            await until(lambda: len(seen.values) > 2 * len(tags))
            for bad in ("mode", "furnace_draft"):
                plant.simulator.faults.add(f"boilerhouse/boiler1/{bad}", "bad_status", 60, 0x80320000)
            await until(
                lambda: ("boilerhouse.boiler1.mode", 0x80320000) in {(n, s) for (n, _), (_, s) in seen.values.items()}
            )
            last = max(time for _, time in seen.values)
            await until(lambda: max(time for _, time in seen.values) > last + 1_000_000)
            await subscription.delete()
        truth = published(plant.truth())
    assert {name for name, _ in seen.values} == {t.name.replace("/", ".") for t in tags}
    for key, (value, status) in seen.values.items():
        if status & 0x80000000:
            assert truth[key][1] == status
        else:
            assert truth[key] == (value, status), key
    first: dict[str, int] = {}
    for name, time in seen.values:
        first[name] = min(time, first.get(name, time))
    between = {(name, time) for name, time in truth if first[name] <= time <= last}
    assert between <= seen.values.keys()
    assert any(value == 7.5 for (name, _), (value, _) in seen.values.items() if name == "tankfarm.tank1.level_sp")


async def test_values_of_a_cycle_share_a_time_without_jitter(tmp_path: Path) -> None:
    for jitter, alike in ((0.0, True), (0.05, False)):
        folder = tmp_path / str(jitter)
        async with running(folder, jitter=jitter) as plant:
            before = plant.simulator.published
            await until(lambda plant=plant, before=before: plant.simulator.published > before + 150)
        rows = plant.truth().rows["opcua"]
        assert (len(np.unique(rows["time"])) < len(rows) / 5) == alike
        for tag in np.unique(rows["tag"]):
            assert (np.diff(rows["time"][rows["tag"] == tag]) > 0).all()


async def test_cut_connection_loses_no_subscription_and_no_value(tmp_path: Path) -> None:
    async with running(tmp_path) as plant, Client(plant.opcua, timeout=PATIENCE) as client:
        faults = plant.simulator.faults
        created = await client.create_subscription(100, Seen())
        faults.add("opcua", "close_connections", 60)
        await until(lambda: not listens(plant.modbus - 1))
        faults.clear()
        await until(lambda: listens(plant.modbus - 1))
        async with Client(plant.opcua, timeout=PATIENCE) as again:
            assert await again.get_node(SET_POINT).read_value() == 40.0
            request = ua.TransferSubscriptionsParameters(
                SubscriptionIds=[created.subscription_id], SendInitialValues=False
            )
            (result,) = await again.uaclient.transfer_subscriptions(request)
            assert result.StatusCode.is_good()


async def _answers(address: str) -> bool:
    try:
        async with Client(address, timeout=1) as client:
            await client.get_node(SET_POINT).read_value()
    except (OSError, TimeoutError):
        return False
    return True


async def test_silence_fault_affects_old_and_new_connections(tmp_path: Path) -> None:
    async with running(tmp_path) as plant, Client(plant.opcua, timeout=PATIENCE) as client:
        plant.simulator.faults.add("opcua", "stop_answering", 60)
        await until(lambda: plant.simulator._server._relay.silent)  # type: ignore[union-attr]
        asked = asyncio.create_task(client.get_node(SET_POINT).read_value())
        assert not await _answers(plant.opcua)
        assert not asked.done()
        plant.simulator.faults.clear()
        assert await asked == 40.0


async def test_clock_jump_fault(tmp_path: Path) -> None:
    async with running(tmp_path) as plant:
        simulator = plant.simulator
        for jump in (3600.0, -7200.0):
            simulator.faults.add("opcua", "clock_jump", 60, jump)
            before = simulator.published
            await until(lambda before=before: simulator.published > before + 80)
            simulator.faults.clear()
            before = simulator.published
            await until(lambda before=before: simulator.published > before + 80)
    rows = plant.truth().rows["opcua"]
    hours = np.round((rows["time"] - np.median(rows["time"])) / 3.6e9)
    assert set(hours.tolist()) == {0, 1, -2}
    assert len(np.unique(rows[["tag", "time"]])) == len(rows), "no tag has two values for one time"


async def test_set_point_accepts_values_in_its_range_with_our_time(tmp_path: Path) -> None:
    ancient = ua.win_epoch_to_datetime(116_444_736_000_000_000)  # 1970
    async with running(tmp_path) as plant, Client(plant.opcua, timeout=PATIENCE) as client:
        model = plant.simulator.plant
        assert isinstance(model, DemoPlant)
        node = client.get_node(SET_POINT)
        old = await node.read_data_value()
        for variant, status in (
            (ua.Variant(61.0, ua.VariantType.Double), ua.uaerrors.BadOutOfRange),
            (ua.Variant(float("nan"), ua.VariantType.Double), ua.uaerrors.BadOutOfRange),
            (ua.Variant(44, ua.VariantType.Int32), ua.uaerrors.BadTypeMismatch),
            (ua.Variant([44.0], ua.VariantType.Double), ua.uaerrors.BadTypeMismatch),
        ):
            with pytest.raises(status):
                await node.write_value(ua.DataValue(variant, SourceTimestamp=ancient))
            assert await node.read_data_value() == old
            assert model.v["boiler1/pressure_sp"] == 40.0
        await node.write_value(ua.DataValue(ua.Variant(44.5, ua.VariantType.Double), SourceTimestamp=ancient))
        new = await node.read_data_value()
        assert (new.Value.Value, model.v["boiler1/pressure_sp"]) == (44.5, 44.5)
        assert new.SourceTimestamp > old.SourceTimestamp
        with pytest.raises(ua.uaerrors.BadUserAccessDenied):
            await client.get_node("ns=2;s=boilerhouse.boiler1.level").write_value(
                ua.DataValue(ua.Variant(1.0, ua.VariantType.Double))
            )
        with pytest.raises(ua.uaerrors.BadNodeIdUnknown):
            await client.get_node("ns=2;s=nothing").write_value(ua.DataValue(ua.Variant(1.0, ua.VariantType.Double)))


async def test_only_trusted_clients_once_one_is_trusted(tmp_path: Path) -> None:
    async with running(tmp_path / "sim", secure=True) as plant:
        trusted = tmp_path / "sim" / "pki" / "trusted"

        async def read(name: str) -> float:
            client = Client(plant.opcua, timeout=PATIENCE)
            client.application_uri = "urn:plantlog:test"
            key, certificate = tmp_path / f"{name}.pem", tmp_path / f"{name}.der"
            await client.setup_self_signed_certificate(key, certificate)
            server = str(tmp_path / "sim" / "pki" / "server.der")
            await client.set_security(SecurityPolicyBasic256Sha256, certificate, key, server_certificate=server)
            async with client:
                return float(await client.get_node(SET_POINT).read_value())

        assert await read("ours") == 40.0, "an empty folder trusts everybody"
        trusted.mkdir()
        (trusted / "ours.der").write_bytes((tmp_path / "ours.der").read_bytes())
        assert await read("ours") == 40.0
        with pytest.raises(ua.uaerrors.BadCertificateUntrusted):
            await read("theirs")


async def test_foreign_master_decodes_the_truth(tmp_path: Path) -> None:
    async with running(tmp_path) as plant:
        ports = {d.name: plant.modbus + i for i, d in enumerate(plant.simulator.devices)}
        read: dict[str, Any] = {}
        for tag in plant.simulator.plant.tags:
            register = tag.register
            if register is None or register.type == "bool" or register.word_order not in ("ABCD", "CDAB"):
                continue
            master = AsyncModbusTcpClient("127.0.0.1", port=ports[register.device], timeout=PATIENCE)
            kind = master.DATATYPE[register.type.upper()]
            await master.connect()
            ask = master.read_holding_registers if register.table == "holding" else master.read_input_registers
            answer = await ask(register.address, count=kind.value[1] or register.length)
            master.close()
            order = "big" if register.word_order == "ABCD" else "little"
            value = master.convert_from_registers(answer.registers, kind, word_order=order)
            read[tag.name] = value.rstrip("\0") if isinstance(value, str) else value / register.divisor
        truth = plant.truth()
    rows = truth.rows["modbus"]
    assert len(read) > 60
    for name, value in read.items():
        if isinstance(value, str):
            assert ("modbus", name, value) in {(via, n, text) for via, n, _, text, _, _ in truth.texts}
        else:
            assert value in rows["value"][rows["tag"] == truth.names.index(name)], name


async def test_a_master_writes_set_points_and_nothing_else(tmp_path: Path) -> None:
    async with running(tmp_path) as plant:
        model = plant.simulator.plant
        assert isinstance(model, DemoPlant)
        master = AsyncModbusTcpClient("127.0.0.1", port=plant.modbus, timeout=PATIENCE, retries=0)
        await master.connect()
        for tank in range(1, 7):
            shown = (await master.read_holding_registers(100 * tank, count=2)).registers
            assert not (await master.write_registers(100 * tank, shown)).isError()
            assert model.v[f"tank{tank}/level_sp"] == 4.0
        big = master.convert_to_registers(6.25, master.DATATYPE.FLOAT32)
        assert not (await master.write_registers(400, big)).isError()
        assert model.v["tank4/level_sp"] == 6.25
        assert (await master.read_holding_registers(400, count=2)).registers == big
        too_high = master.convert_to_registers(9.0, master.DATATYPE.FLOAT32)
        assert (await master.write_registers(400, too_high)).exception_code == 3
        assert (await master.write_registers(400, big[:1])).exception_code == 2
        assert (await master.write_register(402, 1)).exception_code == 2
        assert model.v["tank4/level_sp"] == 6.25
        master.close()


async def test_simulator_control_lists_valid_values(tmp_path: Path) -> None:
    async with running(tmp_path) as plant:
        runner = web.AppRunner(control_application(plant.simulator, "127.0.0.1"), access_log=None)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            for body, says in (
                ("{", "not JSON"),
                ("[]", "a JSON object"),
                ('{"target": "opcua"}', "a JSON object"),
                ('{"target": "opcua", "fault": "quake"}', "legal: stop_answering"),
                ('{"target": "meters", "fault": "exception", "value": "x"}', "1 to 255"),
            ):
                async with session.post("/fault", data=body) as answer:
                    assert answer.status == 400
                    assert says in (await answer.json())["error"]
            async with session.post("/fault", json={"target": "meters", "fault": "exception"}) as answer:
                assert (answer.status, (await answer.json())["value"]) == (200, 4)
            refused: list[tuple[dict[str, str], str]] = [
                ({}, "with scenario"),
                ({"scenario": "quake"}, "legal: stuck"),
                ({"scenario": "leak", "seconds": "1"}, "above 0"),
            ]
            for payload, says in refused:
                async with session.post("/scenario", json=payload) as answer:
                    assert answer.status == 400
                    assert says in (await answer.json())["error"]
            async with session.post("/scenario", json={"scenario": "leak", "seconds": 600}) as answer:
                assert answer.status == 200
            async with session.get("/state") as answer:
                state = await answer.json()
            assert [f["fault"] for f in state["faults"]] == ["exception"]
            assert [(one["scenario"], 0 < one["seconds"] <= 600) for one in state["scenarios"]] == [("leak", True)]
            assert state["tags"] == len(plant.simulator.plant.tags)
            async with session.post("/clear") as answer:
                assert answer.status == 200
            assert plant.simulator.faults.active() == []
            async with session.get("/state") as answer:
                assert (await answer.json())["scenarios"] == []
        await runner.cleanup()


SHAPES = {
    "demo": (["--scenario", "leak@5"], 4),
    "load": (["--channels", "44", "--hz", "20"], 2),
    "replay": (["--replay", "{folder}/rows.csv", "--replay-period", "200ms"], 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
async def test_simulator_process_serves_its_export_and_ends_cleanly(shape: str, tmp_path: Path) -> None:
    options, sources = SHAPES[shape]
    (tmp_path / "rows.csv").write_text("time,flow,level\n" + "".join(f"t{i},{i}.5,{2 * i}\n" for i in range(50)))
    port = row_of_ports(5)
    shared = [o.format(folder=tmp_path) for o in options]
    shared += ["--opcua-port", str(port), "--modbus-port", str(port + 1), "--insecure"]
    control = f"http://127.0.0.1:{port + 4}"
    exported = await _simulator("export", str(tmp_path / "plant"), *shared)
    assert await exported.wait() == 0
    plant = load(tmp_path / "plant" / "plant.toml")
    assert len(plant.sources) == sources
    process = await _simulator("run", "--state", str(tmp_path / "s"), "--control-port", str(port + 4), *shared)
    try:
        (source,) = plant.opcua_sources()

        async def serves() -> bool:
            assert process.returncode is None
            return await _published(control) and await _answers_any(source.address)

        await until(serves, every=0.05)
        async with Client(source.address, timeout=PATIENCE) as client:
            values = await client.read_values([client.get_node(t.address) for t in source.tags])
            assert all(v is not None for v in values)
        for device in plant.modbus_sources():
            host, _, at = device.address.removeprefix("tcp://").partition(":")
            master = AsyncModbusTcpClient(host, port=int(at), timeout=PATIENCE)
            await master.connect()
            tag = next(t for t in device.tags if t.table in ("holding", "input"))
            ask = master.read_holding_registers if tag.table == "holding" else master.read_input_registers
            assert not (await ask(tag.register, count=1)).isError()
            master.close()
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    truth = read_truth(tmp_path / "s" / "truth")
    assert {t.name for s in plant.sources for t in s.tags} == set(truth.names)
    if shape == "replay":
        rows = truth.rows["opcua"]
        flow = rows["value"][rows["tag"] == truth.names.index("replay/flow")]
        assert flow.tolist() == [i + 0.5 for i in range(len(flow))], "row by row, none twice, none left out"


async def _simulator(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "simulator",
        *arguments,
        cwd=CHECKOUT,
        env=dict(os.environ),
        stderr=asyncio.subprocess.DEVNULL,
    )


async def _published(control: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(control + "/state") as answer:
            return int(json.loads(await answer.text())["published"]) > 0
    except aiohttp.ClientError:
        return False


async def _answers_any(address: str) -> bool:
    try:
        async with Client(address, timeout=1):
            return True
    except (OSError, TimeoutError):
        return False
