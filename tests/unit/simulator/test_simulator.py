"""The simulated plant: determined by its seed, balanced, and what the example configuration says it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.config.load import load
from core.config.sources import ModbusTag
from core.errors import OperationError
from core.paths import CHECKOUT, EXAMPLE
from ingest.modbus.decode import Decoder
from ingest.modbus.plan import plan
from simulator.demo import STEP, DemoPlant
from simulator.export import export
from simulator.plants import LoadPlant, ReplayPlant
from simulator.registers import Registers
from simulator.scenarios import SCENARIOS, ScenarioPlant, parse
from simulator.truth import ROW, TruthWriter, read_truth

_PRESSURE = [tag.name for tag in DemoPlant().tags].index("boilerhouse/boiler1/pressure")


def history(plant: DemoPlant, seconds: int) -> dict[str, np.ndarray]:
    rows = []
    for _ in range(seconds):
        plant.step(1.0)
        rows.append(plant.numbers())
    columns = np.array(rows)
    return {tag.name: columns[:, i] for i, tag in enumerate(plant.tags)}


def test_same_seed_gives_the_same_plant() -> None:
    a, b, c = (history(DemoPlant(seed), 5) for seed in (3, 3, 4))
    assert all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)
    assert any(not np.array_equal(a[name], c[name], equal_nan=True) for name in a)


def test_simulated_values_stay_in_their_ranges() -> None:
    plant = DemoPlant(1)
    seen = history(plant, 60)
    for tag in plant.tags:
        if tag.kind != "text" and tag.lo is not None and tag.hi is not None:
            assert seen[tag.name].min() >= tag.lo - 0.05 * (tag.hi - tag.lo), tag.name
            assert seen[tag.name].max() <= tag.hi, tag.name


@pytest.fixture(scope="module")
def calm() -> dict[str, np.ndarray]:
    return history(ScenarioPlant(1, []), 40)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_each_scenario_is_visible_in_the_values(name: str, calm: dict[str, np.ndarray]) -> None:
    shows = {
        "stuck": "boilerhouse/boiler1/oxygen",
        "drift": "boilerhouse/boiler1/flue_temperature",
        "spike": "boilerhouse/boiler2/level",
        "dropout": "boilerhouse/boiler2/steam_flow",
        "leak": "tankfarm/tank2/level",
        "pump-trip": "tankfarm-plc/tank3/trip",
        "hidden-setpoint": "boilerhouse/boiler1/pressure_sp",
    }
    upset = history(ScenarioPlant(1, [parse(f"{name}@10")]), 40)
    before, after = slice(0, 9), slice(11, 40)
    assert np.array_equal(calm[shows[name]][before], upset[shows[name]][before])
    assert not np.array_equal(calm[shows[name]][after], upset[shows[name]][after])
    if name == "hidden-setpoint":
        pressure = upset["boilerhouse/boiler1/pressure"]
        assert set(pressure[after]) <= set(pressure[before]) | {pressure[9], pressure[10]}, "replayed readings"
    if name == "stuck":
        assert len(set(upset[shows[name]][after])) == 1


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_scenario_begins_in_a_plant_that_runs_and_ends(name: str) -> None:
    calm, upset = ScenarioPlant(1, []), ScenarioPlant(1, [])
    before, after = history(calm, 20), history(upset, 20)
    assert all(np.array_equal(before[tag], values, equal_nan=True) for tag, values in after.items())
    upset.begin(name, 10)
    assert [scenario.name for scenario in upset.active()] == [name]
    before, after = history(calm, 10), history(upset, 10)
    assert not all(np.array_equal(before[tag], values, equal_nan=True) for tag, values in after.items())
    if name == "hidden-setpoint":
        assert upset.numbers()[_PRESSURE] < 40.5 < upset.v["boiler1/pressure"], "readings from before are replayed"
    upset.step(STEP)
    assert upset.active() == []
    assert np.array_equal(upset.numbers(), DemoPlant.numbers(upset), equal_nan=True), "sensors show the process again"
    assert (upset.v["boiler1/pressure_sp"], upset.v["tank2/leak"], upset.tripped) == (40.0, 0.0, set())


def test_scenario_begun_again_lasts_from_then_and_can_be_ended() -> None:
    plant = ScenarioPlant(1, [])
    plant.begin("stuck", 10)
    plant.step(5.0)
    plant.begin("stuck", 10)
    plant.step(8.0)
    assert [round(one.end - plant.time) for one in plant.active()] == [2]
    plant.clear()
    assert plant.active() == []
    for name, seconds, says in (("quake", 1, "legal: stuck, drift"), ("stuck", 0, "above 0, to 86400")):
        with pytest.raises(OperationError, match=says):
            plant.begin(name, seconds)


def test_unknown_scenario_is_refused_with_the_known_ones() -> None:
    with pytest.raises(OperationError, match="no scenario 'quake'; legal: stuck, drift"):
        parse("quake")


def test_example_configuration_equals_the_export(tmp_path: Path) -> None:
    export(ScenarioPlant(1, []), tmp_path, "127.0.0.1", 4840, 5020, True, 9101)
    files = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file())
    there = {p.relative_to(EXAMPLE.parent) for p in EXAMPLE.parent.rglob("*") if p.is_file()}
    assert files == sorted(there - {Path("containers.toml"), Path("plant.sample.toml")})
    for file in files:
        assert (tmp_path / file).read_text() == (EXAMPLE.parent / file).read_text(), file
    assert sum(len(source.tags) for source in load(EXAMPLE).sources) == len(DemoPlant().tags)


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.floats(0.1, 5.0))
def test_modbus_master_decodes_the_truth(seed: int, seconds: float) -> None:
    """Our registers, read through the collector's own plan and decoder, for the whole demo plant."""
    demo = DemoPlant(seed)
    demo.step(seconds)
    for source in load(EXAMPLE).modbus_sources():
        members = [i for i, t in enumerate(demo.tags) if t.register is not None and t.register.device == source.name]
        registers = Registers(demo.tags, members)
        registers.update(demo.numbers(), {i: demo.text(i) for i in members if demo.tags[i].kind == "text"})
        index = {demo.tags[i].name: i for i in members}
        tags: tuple[ModbusTag, ...] = source.tags
        for read in plan(tags, range(len(tags)), source.bridge, source.max_registers):
            assert registers.legal[read.table][read.start : read.start + read.count].all()
            decoder = Decoder(read, tags)
            raw = registers.image[read.table][read.start : read.start + read.count]
            for tag, value in zip(decoder.tags.tolist(), decoder.numbers(raw).tolist(), strict=True):
                assert value == registers.decoded[index[tags[tag].name]], tags[tag].name
            for tag, _, text in decoder.texts(raw):
                assert text == demo.text(index[tags[tag].name])
            covered = set(registers.covered(read.table, read.start, read.count).tolist())
            assert {index[tags[i].name] for i in read.tags} <= covered


@pytest.mark.parametrize(("channels", "opcua"), [(1, 1), (2, 2), (11, 10), (5500, 5000), (20_000, 5000)])
def test_load_plants_have_channels_of_both_protocols(channels: int, opcua: int) -> None:
    tags = LoadPlant(channels, 1.0).tags
    assert [tag.opcua is not None for tag in tags] == [True] * opcua + [False] * (channels - opcua)
    assert all((tag.opcua is None) != (tag.register is None) for tag in tags)


def test_load_values_always_change() -> None:
    plant = LoadPlant(100, 1.0)
    before = plant.numbers()
    for _ in range(10):
        plant.step(0.1)
    assert (plant.numbers() != before).all()


def test_replay_of_a_recorded_plant() -> None:
    data = CHECKOUT.parent / "shared" / "data" / "tep"
    if not data.exists():
        pytest.skip("the Tennessee Eastman data is not beside this checkout")
    replayed = ReplayPlant(data / "d00_te.dat", data / "columns.csv", 1.0)
    assert (len(replayed.tags), replayed.tags[0].name) == (52, "replay/XMEAS01")


def test_replay_of_a_csv_row_by_row(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("time,flow m3/h,level\na,1.5,2\nb,2.5,3\n")
    plant = ReplayPlant(tmp_path / "r.csv", None, 2.0)
    assert [tag.name for tag in plant.tags] == ["replay/flow_m3_h", "replay/level"]
    seen = []
    for _ in range(6):
        seen.append(plant.numbers().tolist())
        plant.step(1.0)
    assert seen == [[1.5, 2.0]] * 2 + [[2.5, 3.0]] * 2 + [[1.5, 2.0]] * 2
    with pytest.raises(OperationError, match=r"none\.csv"):
        ReplayPlant(tmp_path / "none.csv", None, 1.0)


def test_truth_of_two_runs_reads_as_one_without_a_truncated_block(tmp_path: Path) -> None:
    for started, names in ((1, ["a", "b"]), (2, ["b", "c"])):
        writer = TruthWriter(tmp_path, names, started)
        writer.numbers("opcua", np.array([0, 1]), started, np.array([1.0, 2.0]), 0)
        writer.text("opcua", 1, started, "x")
        writer.close()
    with (tmp_path / "2.opcua.truth").open("ab") as file:
        file.write(b"cut")
    truth = read_truth(tmp_path)
    assert truth.names == ["a", "b", "c"]
    assert [truth.names[t] for t in truth.rows["opcua"]["tag"]] == ["a", "b", "b", "c"]
    assert [(text.name, text.time) for text in truth.texts] == [("b", 1), ("c", 2)]


def test_truth_files_are_bounded(tmp_path: Path) -> None:
    writer = TruthWriter(tmp_path, ["a"], 1, max_bytes=10 * ROW.itemsize)
    for i in range(25):
        writer.numbers("opcua", np.array([0]), i, np.array([float(i)]), 0)
    writer.close()
    assert read_truth(tmp_path).rows["opcua"]["time"].tolist() == list(range(10, 25))
