"""Whether a configuration is that of another plant than the one in force, whose channels would then be retired."""

from __future__ import annotations

from pathlib import Path

from core.config.model import Plant
from core.config.snapshot import in_force, plant_in_force
from core.errors import OperationError
from core.paths import EXAMPLE, State


def check_same_plant(state: State, config: Path, plant: Plant, replace: bool) -> None:
    """Raise OperationError for another plant, unless it is to ``replace`` the one in force, or that is simulated."""
    try:
        current = in_force(state.root, tags_of=())
    except OperationError:  # of another version
        return
    if replace or current is None or current.file == EXAMPLE or current.file.parent == state.plant:
        return
    before = current.plant
    remains = _source_names(before) & _source_names(plant)
    if not remains:  # sources that have other names now have the same tags
        remains = _tag_names(plant_in_force(state.root)) & _tag_names(plant)
    if before.name == plant.name and (remains or not before.sources):
        return
    nothing = "" if remains or not before.sources else " None of its channels would remain."
    raise OperationError(
        f"{config} describes plant {plant.name}, and in force is plant {before.name} of {current.file}.{nothing} "
        "Nothing was applied. With --replace-plant, the new configuration takes its place. To run both plants, set "
        "PLANTLOG_STATE to another folder"
    )


def _source_names(plant: Plant) -> set[str]:
    return {source.name for source in plant.sources}


def _tag_names(plant: Plant) -> set[str]:
    return {tag.name for source in plant.sources for tag in source.tags}
