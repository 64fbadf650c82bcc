"""The configuration of another plant is not applied by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.config import snapshot
from core.config.load import load_with_digests
from core.errors import OperationError
from core.paths import State
from ops.appliance.refusals import check_same_plant
from tests.command import run


def write(folder: Path, plant: str, source: str, tag: str) -> Path:
    """A plant with one source and one tag."""
    folder.mkdir(parents=True)
    (folder / "plant.toml").write_text(
        f'[plant]\nname = "{plant}"\n[[source]]\nname = "{source}"\nkind = "modbus"\naddress = "tcp://127.0.0.1:502"\n'
        'tags = "tags.csv"\n'
    )
    (folder / "tags.csv").write_text(f"name,address\n{tag},holding:0\n")
    return folder / "plant.toml"


def check(state: State, config: Path, replace: bool = False) -> None:
    check_same_plant(state, config, load_with_digests(config)[0], replace)


@pytest.fixture
def state(tmp_path: Path) -> State:
    """The configuration of a mill is in force."""
    state = State(tmp_path / "state")
    config = write(tmp_path / "mill", "mill", "kiln", "temperature")
    plant, digests = load_with_digests(config)
    snapshot.save(state.root, config, digests, plant)
    return state


@pytest.mark.parametrize(
    ("plant", "source", "tag"),
    [
        pytest.param("mill", "kiln", "pressure", id="other tags"),
        pytest.param("mill", "oven", "temperature", id="the source has another name"),
    ],
)
def test_changed_configuration_of_the_plant_is_accepted(
    plant: str, source: str, tag: str, state: State, tmp_path: Path
) -> None:
    check(state, write(tmp_path / "new", plant, source, tag))


@pytest.mark.parametrize(
    ("plant", "source", "nothing"),
    [
        pytest.param("mill", "press", " None of its channels would remain.", id="nothing of it"),
        pytest.param("works", "press", " None of its channels would remain.", id="another plant"),
        pytest.param("works", "kiln", "", id="another plant with a source of that name"),
    ],
)
def test_another_plant_is_refused_unless_it_is_to_replace_this_one(
    plant: str, source: str, nothing: str, state: State, tmp_path: Path
) -> None:
    config = write(tmp_path / "new", plant, source, "force")
    with pytest.raises(OperationError) as refused:
        check(state, config)
    assert str(refused.value).startswith(
        f"{config} describes plant {plant}, and in force is plant mill of {tmp_path}/mill/plant.toml.{nothing} Nothing"
    )
    assert "--replace-plant" in str(refused.value)
    check(state, config, replace=True)


def test_simulated_plant_gives_way(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    demo = write(state.plant, "demo", "tankfarm", "level")
    mine = write(tmp_path / "mill", "mill", "kiln", "temperature")
    check(state, mine)
    plant, digests = load_with_digests(demo)
    snapshot.save(state.root, demo, digests, plant)
    check(state, mine)


def test_up_asks_for_the_option(state: State, tmp_path: Path) -> None:
    refused = run(state.root, "up", "--config", write(tmp_path / "new", "works", "press", "force"))
    assert refused.code == 1
    assert "--replace-plant" in refused.err
