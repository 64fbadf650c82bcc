"""The configuration in force: exactly what was loaded, whatever happens to the files, and how the two differ."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from core.config import snapshot, token_file
from core.config.load import load
from core.errors import ConfigError, OperationError
from core.paths import CHECKOUT, EXAMPLE, State
from ops.appliance.status import ConfigDrift, drift_messages
from tests.config_in_force import activate

GOLDEN = sorted(path.parent for path in (CHECKOUT / "tests" / "unit" / "golden" / "config").glob("*/plant.toml"))


@pytest.fixture
def plant(tmp_path: Path) -> Path:
    """The example in a folder of its own; its plant.toml."""
    return Path(shutil.copytree(EXAMPLE.parent, tmp_path / "plant")) / EXAMPLE.name


def legal(file: Path) -> bool:
    try:
        load(file)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("file", [EXAMPLE, *(path / "plant.toml" for path in GOLDEN)], ids=lambda p: p.parent.name)
def test_active_configuration_round_trips(file: Path, tmp_path: Path) -> None:
    if not legal(file):
        return
    activate(tmp_path, file)
    read, loaded = snapshot.plant_in_force(tmp_path), load(file)
    assert read == loaded
    assert repr(read) == repr(loaded), "also the types: 1 is not 1.0"


def test_active_configuration_is_independent_of_the_file(plant: Path, tmp_path: Path) -> None:
    before = activate(tmp_path, plant)
    plant.write_text("[plant\n")
    assert snapshot.plant_in_force(tmp_path) == before.plant
    shutil.rmtree(plant.parent)
    assert snapshot.plant_in_force(tmp_path) == before.plant


def test_missing_active_configuration_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="no configuration yet: run `plantlog up`"):
        snapshot.plant_in_force(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "000001.json").write_text('{"of": "another version"}')
    with pytest.raises(OperationError, match="not written by this version of plantlog: run `plantlog up`"):
        snapshot.plant_in_force(tmp_path)


def test_only_a_change_makes_a_new_snapshot_and_the_last_ones_are_kept(plant: Path, tmp_path: Path) -> None:
    first = activate(tmp_path, plant)
    assert activate(tmp_path, plant) == first
    text = plant.read_text()
    for number in range(30):
        plant.write_text(f'{text}\n[alarms]\nmax_shelving = "{number + 1}h"\n')
        activate(tmp_path, plant)
    kept = list(snapshot.history(tmp_path))
    assert [one.number for one in kept] == list(range(31, 11, -1))
    assert kept[0].plant.alarms.max_shelving == 30 * 3600.0
    assert kept[0].since > kept[-1].since > first.since


def test_half_written_snapshot_is_not_active(plant: Path, tmp_path: Path) -> None:
    activate(tmp_path, plant)
    (tmp_path / "config" / "000002.json.partial").write_text('{"number": 2, ')
    assert snapshot.latest_number(tmp_path) == 1
    plant.write_text(plant.read_text().replace("[plant]", "# another\n[plant]"))
    assert activate(tmp_path, plant).number == 2


def test_status_says_how_the_file_differs(plant: Path, tmp_path: Path) -> None:
    drift = ConfigDrift(State(tmp_path))
    assert drift_messages(drift.check()) == []
    activate(tmp_path, plant)
    assert drift_messages(drift.check()) == []
    text = plant.read_text()
    plant.write_text(text + "# a remark changes nothing\n")
    assert drift_messages(drift.check()) == []
    plant.write_text(text + '[alarms]\nmax_shelving = "2h"\n')
    (line,) = drift_messages(drift.check())
    assert line.startswith(f"{plant} differs from the configuration running since ")
    assert line.endswith(": run `plantlog up` to apply it")
    plant.write_text("[plant")
    begin, problem = drift_messages(drift.check())
    assert "`plantlog up` would reject it with 1 problem" in begin
    assert problem.startswith(f"{plant}:1: syntax")
    plant.write_text(text)
    assert drift_messages(drift.check()) == []
    tags = next(plant.parent.glob("tags/*.csv"))
    content = tags.read_text()
    tags.write_text("\n".join(content.splitlines()[:-1]) + "\n")
    (line,) = drift_messages(drift.check())
    assert line.startswith(f"{tags} differs from the configuration running since "), "plant.toml does not"
    plant.write_text(text + '[alarms]\nmax_shelving = "2h"\n')
    (line,) = drift_messages(drift.check())
    assert line.startswith(f"{plant}, {tags} differ from the configuration running since ")
    plant.write_text(text)
    tags.write_text(content + "\n,,,,\nx\n")
    assert str(tags) in "".join(drift_messages(drift.check()))


def test_missing_referenced_file_is_reported(tmp_path: Path) -> None:
    token_file.write(tmp_path / "token", "secret-of-a-gateway")
    file = tmp_path / "plant.toml"
    file.write_text(
        '[plant]\nname = "demo"\n[[source]]\nname = "g"\nkind = "push"\ntoken_file = "token"\nunknown = "create"\n'
    )
    activate(tmp_path, file)
    assert "secret-of-a-gateway" not in (tmp_path / "config" / "000001.json").read_text()
    (tmp_path / "token").unlink()
    assert "token_file: found" in "".join(drift_messages(ConfigDrift(State(tmp_path)).check()))


def test_process_reads_only_tags_of_its_protocol(plant: Path, tmp_path: Path) -> None:
    whole = activate(tmp_path, plant)
    options = snapshot.plant_in_force(tmp_path, tags_of=())
    assert [source.name for source in options.sources] == [source.name for source in whole.plant.sources]
    assert not any(source.tags for source in options.sources)
    (file,) = (tmp_path / "config").iterdir()
    head, output, *lists = file.read_text().splitlines()
    others = [tags if source.kind == "opcua" else "[" for source, tags in zip(options.sources, lists, strict=True)]
    file.write_text("\n".join([head, output, *others, ""]))
    own = snapshot.plant_in_force(tmp_path, tags_of=["opcua"])
    assert own.opcua_sources() == whole.plant.opcua_sources()
    with pytest.raises(OperationError, match="not written by this version"):
        snapshot.plant_in_force(tmp_path)


def test_tags_use_slots(plant: Path) -> None:
    tags = [tag for source in load(plant).sources for tag in source.tags]
    assert tags
    assert not any(hasattr(tag, "__dict__") for tag in tags), "an instance with a dict takes six times the memory"
