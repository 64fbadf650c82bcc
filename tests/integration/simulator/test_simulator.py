"""The running simulator, through clients: set points, faults, addresses that are not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from asyncua import Client, ua
from asyncua.crypto.cert_gen import setup_self_signed_certificate
from pymodbus.client import AsyncModbusTcpClient

from simulator import opcua_server
from simulator.demo import DemoPlant
from simulator.simulation import Simulator
from simulator.truth import read_truth
from tests.ports import free_ports
from tests.waiting import PATIENCE, until


@asynccontextmanager
async def simulated(folder: Path, secure: bool) -> AsyncIterator[tuple[Simulator, int, int]]:
    simulator = Simulator(DemoPlant(1), folder, secure=secure, speed=1.0)
    first, stop = free_ports(4), asyncio.Event()
    task = asyncio.create_task(simulator.run("127.0.0.1", first, first + 1, stop))
    try:
        await until(lambda: simulator.published > 0 or task.done())
        yield simulator, first, first + 1
    finally:
        stop.set()
        await task


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[tuple[Simulator, int, int]]:
    async with simulated(tmp_path, secure=False) as simulator:
        yield simulator


async def test_certificate_is_whole_when_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`up` trusts it as soon as it is there; at the next start it is the same one."""
    certificate = tmp_path / "pki" / "server.der"
    before: list[bytes | None] = []

    async def observed(*arguments: Any) -> None:
        await setup_self_signed_certificate(*arguments)
        before.append(certificate.read_bytes() if certificate.exists() else None)

    monkeypatch.setattr(opcua_server, "setup_self_signed_certificate", observed)
    for _ in range(2):
        async with simulated(tmp_path, secure=True):
            pass
    assert before == [None, certificate.read_bytes()]


async def test_set_points_are_written_by_both_protocols(running: tuple[Simulator, int, int], tmp_path: Path) -> None:
    simulator, opcua, modbus = running
    plant = simulator.plant
    assert isinstance(plant, DemoPlant)
    async with Client(f"opc.tcp://127.0.0.1:{opcua}/", timeout=PATIENCE) as client:
        node = client.get_node("ns=2;s=boilerhouse.boiler1.pressure_sp")
        await node.write_value(ua.DataValue(ua.Variant(44.5, ua.VariantType.Double)))
        await until(lambda: plant.v["boiler1/pressure_sp"] == 44.5)
        with pytest.raises(ua.uaerrors.BadUserAccessDenied):
            pressure = client.get_node("ns=2;s=boilerhouse.boiler1.pressure")
            await pressure.write_value(ua.DataValue(ua.Variant(1.0, ua.VariantType.Double)))
    master = AsyncModbusTcpClient("127.0.0.1", port=modbus + 1, timeout=PATIENCE)
    await master.connect()
    assert not (await master.write_register(0, 900)).isError()
    await until(lambda: plant.v["line/speed_sp"] == 0.9)
    master.close()
    await until(lambda: _has(tmp_path, "boilerhouse/boiler1/pressure_sp", 44.5))


def _has(folder: Path, name: str, value: float) -> bool:
    truth = read_truth(folder / "truth")
    rows = truth.rows["opcua"]
    return bool(((rows["tag"] == truth.names.index(name)) & (rows["value"] == value)).any())


async def test_simulator_faults_have_their_effect(running: tuple[Simulator, int, int]) -> None:
    simulator, _, modbus = running
    master = AsyncModbusTcpClient("127.0.0.1", port=modbus + 1, timeout=PATIENCE, retries=0)
    await master.connect()
    assert (await master.read_holding_registers(0, count=2)).registers[0] == 1200
    simulator.faults.add("conveyor-plc", "exception", 60, 4)
    assert (await master.read_holding_registers(0, count=2)).exception_code == 4
    simulator.faults.clear()
    assert (await master.read_holding_registers(60_000, count=2)).exception_code == 2
    simulator.faults.add("conveyor-plc", "close_connections", 60, 0)
    await until(lambda: not master.connected)
    master.close()
    simulator.faults.clear()
    master = AsyncModbusTcpClient("127.0.0.1", port=modbus + 1, timeout=PATIENCE, retries=0)
    await master.connect()
    assert (await master.read_holding_registers(0, count=2)).registers[0] == 1200
    master.close()


async def test_a_frozen_tag_keeps_its_value(running: tuple[Simulator, int, int]) -> None:
    simulator, opcua, _ = running
    name = "boilerhouse/boiler1/furnace_draft"
    async with Client(f"opc.tcp://127.0.0.1:{opcua}/", timeout=PATIENCE) as client:
        node = client.get_node("ns=2;s=" + name.replace("/", "."))
        simulator.faults.add(name, "freeze", 60, 0)
        before = simulator.published
        await until(lambda: simulator.published > before + 200)
        first = await node.read_value()
        before = simulator.published
        await until(lambda: simulator.published > before + 200)
        assert await node.read_value() == first
        simulator.faults.clear()
        simulator.faults.add(name, "bad_status", 60, 0x80050000)
        before = simulator.published
        await until(lambda: simulator.published > before + 200)
        data = await node.read_data_value(raise_on_bad_status=False)
        assert data.StatusCode.value == 0x80050000
