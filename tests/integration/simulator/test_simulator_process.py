"""The demo plant's physics: what flows in is there, units depend on each other, and speed changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.sources import RegisterType, WordOrder
from core.errors import OperationError
from simulator.demo import DRUM, STEP, TANK_AREA, DemoPlant
from simulator.demo_tags import BOILERS, SECTIONS, TANKS
from simulator.faults import KINDS, Faults
from simulator.plants import LoadPlant
from simulator.registers import Registers
from simulator.scenarios import ScenarioPlant, parse
from simulator.tags import Register, SimTag, tick_for
from tests.modbus_wire import ORDERS, TYPES, bits_of


def test_speed_changes_times_and_not_values() -> None:
    slow, fast = DemoPlant(5), DemoPlant(5)
    for _ in range(100):
        slow.step(0.1)
    for _ in range(4):
        fast.step(2.5)
    assert np.array_equal(slow.v.values, fast.v.values)
    assert slow.time == fast.time


@pytest.mark.parametrize("leak", [0.0, 25.0])
def test_tank_level_follows_inflow_and_outflow(leak: float) -> None:
    plant = DemoPlant(2)
    for t in TANKS:
        plant.v[f"tank{t}/leak"] = leak
    before = [plant.v[f"tank{t}/level"] for t in TANKS]
    net = np.zeros(len(TANKS))  # m³
    for _ in range(300):
        plant.step(STEP)
        flows = [plant.v[f"tank{t}/inlet"] - plant.v[f"tank{t}/outlet"] - leak for t in TANKS]
        net += np.array(flows) / 3600 * STEP
    after = [plant.v[f"tank{t}/level"] for t in TANKS]
    assert min(after) > 0 and max(after) < 8, "no tank ran empty or over, where the balance ends"
    assert np.allclose((np.array(after) - before) * TANK_AREA, net, atol=1e-9)


def test_drum_level_follows_feedwater_and_steam() -> None:
    plant = DemoPlant(2)
    before, net = [plant.v[f"boiler{b}/water"] for b in BOILERS], np.zeros(len(BOILERS))
    for _ in range(300):
        plant.step(STEP)
        net += [plant.v[f"boiler{b}/feedwater"] - plant.v[f"boiler{b}/steam"] for b in BOILERS]
    after = [plant.v[f"boiler{b}/water"] for b in BOILERS]
    assert np.allclose(np.array(after) - before, DRUM * STEP * net, atol=1e-9)


def test_packaging_line_conserves_items() -> None:
    plant = DemoPlant(2)
    on_belts = sum(plant.v[f"line/s{s}/on_belt"] for s in SECTIONS)
    taken, delivered = plant.v["line/taken"], plant.v["line/items"]
    for _ in range(50):
        plant.step(1.0)
        now = sum(plant.v[f"line/s{s}/on_belt"] for s in SECTIONS)
        assert now - on_belts == plant.v["line/taken"] - taken - (plant.v["line/items"] - delivered)
    assert plant.v["line/items"] > delivered


def test_jam_stops_upstream_machines_only() -> None:
    plant = DemoPlant(2)
    for _ in range(200):
        plant.v["line/s4/jam"] = 1.0
        plant.step(STEP)
    speeds = [plant.v[f"line/s{s}/speed"] for s in SECTIONS]
    assert max(speeds[:4]) < 0.01
    assert min(speeds[4:]) > 1.1
    assert plant.texts["line/mode"] == "JAM"


def test_raised_boiler_takes_load_from_the_other() -> None:
    calm, pushed = DemoPlant(2), DemoPlant(2)
    pushed.write("boiler1/pressure_sp", 46.0)
    for plant in (calm, pushed):
        plant.step(60.0)
    assert pushed.v["boiler1/steam"] > calm.v["boiler1/steam"] + 10
    assert pushed.v["boiler2/steam"] < calm.v["boiler2/steam"] - 10
    assert pushed.v["boiler1/alarm_pressure_hi"] == 1.0
    assert pushed.texts["boiler1/mode"] == "LIMIT"
    assert calm.texts["boiler1/mode"] == "AUTO"


def test_leak_lowers_the_tank_unseen_by_meters() -> None:
    calm, upset = ScenarioPlant(1, []), ScenarioPlant(1, [parse("leak@10"), parse("pump-trip@10")])
    for plant in (calm, upset):
        plant.step(30.0)
    assert upset.v["tank2/level"] < calm.v["tank2/level"]
    assert upset.v["tank2/outlet_flow"] == calm.v["tank2/outlet_flow"]
    assert (upset.v["tank3/trip"], upset.v["tank3/running"]) == (1.0, 0.0)


def test_replayed_readings_hide_the_pressure_and_not_its_alarm() -> None:
    plant = ScenarioPlant(1, [parse("hidden-setpoint@10")])
    i = [tag.name for tag in plant.tags].index("boilerhouse/boiler1/pressure")
    plant.step(60.0)
    assert (plant.numbers()[i] < 41, plant.v["boiler1/pressure"] > 44) == (True, True)
    assert plant.v["boiler1/alarm_pressure_hi"] == 1.0


@pytest.mark.parametrize("hz", [0.2, 1, 3, 7, 10, 30, 100])
def test_a_period_is_a_whole_number_of_ticks(hz: float) -> None:
    tick = tick_for(1 / hz)
    assert tick <= 0.1 + 1e-9
    assert abs(round(1 / hz / tick) - 1 / hz / tick) < 1e-9
    assert LoadPlant(10, hz).tick == tick


@given(st.sampled_from(TYPES), st.sampled_from(ORDERS), st.integers(0, 3000))
def test_set_point_written_as_displayed_is_unchanged(kind: RegisterType, order: WordOrder, value: int) -> None:
    """Every type and order: our registers, written back to us."""
    tags = [SimTag("a", "a_sp", register=Register("d", "holding", 7, kind, order, divisor=10.0))]
    registers = Registers(tags, [0])
    registers.update(np.array([value / 10.0]), {})
    image = registers.image["holding"][7 : 7 + bits_of(kind) // 16].tolist()
    assert registers.written(7, image) == [(0, registers.decoded[0])]
    assert abs(registers.decoded[0] - value / 10.0) < 1e-4


def test_set_point_needs_all_its_registers() -> None:
    tags = [
        SimTag("a", "a_sp", register=Register("d", "holding", 0, "float32")),
        SimTag("b", "b_sp", register=Register("d", "holding", 2, "int16")),
        SimTag("c", "c", register=Register("d", "holding", 3, "int16")),
    ]
    registers = Registers(tags, [0, 1, 2])
    assert registers.written(0, [0x3F80, 0, 5]) == [(0, 1.0), (1, 5.0)]
    assert registers.written(0, [0x3F80]) is None
    assert registers.written(1, [0]) is None
    assert registers.written(2, [5, 5]) is None
    assert registers.written(3, [5]) is None


@pytest.mark.parametrize(
    ("target", "fault", "seconds", "value", "says"),
    [
        ("conveyor-plc", "explode", 1, None, "fault: found 'explode'; legal: stop_answering, close_connections"),
        (
            "opcua",
            "exception",
            1,
            None,
            "target: found 'opcua'; legal for exception: tankfarm-plc, conveyor-plc, meters",
        ),
        ("meters", "bad_status", 1, None, "legal for bad_status: opcua, the name of an OPC UA channel"),
        (
            "nobody",
            "freeze",
            1,
            None,
            "legal for freeze: opcua, tankfarm-plc, conveyor-plc, meters, the name of a channel",
        ),
        ("opcua", "freeze", "long", None, "seconds: found 'long'; legal: above 0, to 86400"),
        ("opcua", "freeze", float("nan"), None, "seconds: found nan"),
        ("meters", "exception", 1, 256, "value: found 256; legal for exception: a whole number, 1 to 255"),
        ("meters", "exception", 1, 2.5, "value: found 2.5"),
        ("opcua", "bad_status", 1, "bad", "value: found 'bad'; legal for bad_status: a whole number, 0 to 4294967295"),
        ("opcua", "clock_jump", 1, float("inf"), "value: found inf; legal for clock_jump: a number"),
    ],
)
def test_impossible_fault_is_refused_with_the_possible_ones(
    target: str, fault: str, seconds: float, value: float | None, says: str
) -> None:
    faults = Faults(DemoPlant().tags)
    with pytest.raises(OperationError) as refused:
        faults.add(target, fault, seconds, value)  # type: ignore[arg-type]
    assert says in str(refused.value)
    assert faults.active() == []


def test_faults_know_their_tags_and_end() -> None:
    plant = DemoPlant()
    faults = Faults(plant.tags)
    assert {plant.tags[i].name.split("/")[0] for i in faults.add("meters", "exception").tags} == {"meters"}
    assert all(plant.tags[i].opcua for i in faults.add("opcua", "bad_status").tags)
    assert faults.get("meters", "exception") is faults.active()[0]
    assert faults.get("meters", "exception").value == 4  # type: ignore[union-attr]
    faults.add("meters", "freeze", 1e-9)
    assert faults.of_kind("freeze") == []
    faults.clear()
    assert faults.active() == []
    assert len(KINDS) == 9
