"""The configuration in force: exactly what was loaded, whatever happens to the files, and how the two differ."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ingest.config import snapshot
from ingest.config.load import load
from ingest.errors import ConfigError, OperationError
from ops.drift import Drift, words
from ops.paths import EXAMPLE, State
from tests.configured import put_in_force
from tests.secrets import write_secret

GOLDEN = sorted(path.parent for path in (Path(__file__).parent / "golden" / "config").glob("*/plant.toml"))


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
def test_what_is_read_back_is_what_was_loaded(file: Path, tmp_path: Path) -> None:
    if not legal(file):
        return
    put_in_force(tmp_path, file)
    read, loaded = snapshot.plant_in_force(tmp_path), load(file)
    assert read == loaded
    assert repr(read) == repr(loaded), "also the types: 1 is not 1.0"


def test_the_file_on_disk_does_not_matter(plant: Path, tmp_path: Path) -> None:
    before = put_in_force(tmp_path, plant)
    plant.write_text("[plant\n")
    assert snapshot.plant_in_force(tmp_path) == before.plant
    shutil.rmtree(plant.parent)
    assert snapshot.plant_in_force(tmp_path) == before.plant


def test_without_one_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="`plantlog up` puts one in force"):
        snapshot.plant_in_force(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "000001.json").write_text('{"of": "another version"}')
    with pytest.raises(OperationError, match="not a configuration of this version of plantlog: run `plantlog up`"):
        snapshot.plant_in_force(tmp_path)


def test_only_what_changed_makes_another_and_the_last_ones_are_kept(plant: Path, tmp_path: Path) -> None:
    first = put_in_force(tmp_path, plant)
    assert put_in_force(tmp_path, plant) == first
    text = plant.read_text()
    for number in range(30):
        plant.write_text(f'{text}\n[alarms]\nmax_shelving = "{number + 1}h"\n')
        put_in_force(tmp_path, plant)
    kept = list(snapshot.history(tmp_path))
    assert [one.number for one in kept] == list(range(31, 11, -1))
    assert kept[0].plant.alarms.max_shelving == 30 * 3600.0
    assert kept[0].since > kept[-1].since > first.since


def test_what_was_left_half_written_is_not_in_force(plant: Path, tmp_path: Path) -> None:
    put_in_force(tmp_path, plant)
    (tmp_path / "config" / "000002.partial").write_text('{"number": 2, ')
    assert snapshot.newest(tmp_path) == 1
    plant.write_text(plant.read_text().replace("[plant]", "# another\n[plant]"))
    assert put_in_force(tmp_path, plant).number == 2


def test_status_says_how_the_file_differs(plant: Path, tmp_path: Path) -> None:
    drift = Drift(State(tmp_path))
    assert words(drift.look()) == []
    put_in_force(tmp_path, plant)
    assert words(drift.look()) == []
    text = plant.read_text()
    plant.write_text(text + "# a remark changes nothing\n")
    assert words(drift.look()) == []
    plant.write_text(text + '[alarms]\nmax_shelving = "2h"\n')
    (line,) = words(drift.look())
    assert line.startswith(f"{plant} differs from what runs since ")
    assert line.endswith(": run `plantlog up` to apply it")
    plant.write_text("[plant")
    begin, problem = words(drift.look())
    assert "has 1 problem, so `plantlog up` would refuse it" in begin
    assert problem.startswith(f"{plant}: syntax")
    plant.write_text(text)
    assert words(drift.look()) == []
    tags = next(plant.parent.glob("tags/*.csv"))
    tags.write_text(tags.read_text() + "\n,,,,\nx\n")
    assert str(tags) in "".join(words(drift.look()))


def test_a_file_that_an_option_names_is_missed(tmp_path: Path) -> None:
    write_secret(tmp_path / "token", "secret-of-a-gateway")
    file = tmp_path / "plant.toml"
    file.write_text(
        '[plant]\nname = "demo"\n[[source]]\nname = "g"\nkind = "push"\ntoken_file = "token"\nunknown = "create"\n'
    )
    put_in_force(tmp_path, file)
    assert "secret-of-a-gateway" not in (tmp_path / "config" / "000001.json").read_text()
    (tmp_path / "token").unlink()
    assert "token_file: found" in "".join(words(Drift(State(tmp_path)).look()))


def test_a_process_reads_the_tags_of_its_own_kind_alone(plant: Path, tmp_path: Path) -> None:
    whole = put_in_force(tmp_path, plant)
    options = snapshot.plant_in_force(tmp_path, tags_of=())
    assert [source.name for source in options.sources] == [source.name for source in whole.plant.sources]
    assert not any(source.tags for source in options.sources)
    (file,) = (tmp_path / "config").iterdir()
    head, said, *lists = file.read_text().splitlines()
    others = [tags if source.kind == "opcua" else "[" for source, tags in zip(options.sources, lists, strict=True)]
    file.write_text("\n".join([head, said, *others, ""]))
    own = snapshot.plant_in_force(tmp_path, tags_of=["opcua"])
    assert own.opcua_sources() == whole.plant.opcua_sources()
    with pytest.raises(OperationError, match="not a configuration of this version"):
        snapshot.plant_in_force(tmp_path)


def test_a_tag_is_slots(plant: Path) -> None:
    tags = [tag for source in load(plant).sources for tag in source.tags]
    assert tags
    assert not any(hasattr(tag, "__dict__") for tag in tags), "an instance with a dict takes six times the memory"
