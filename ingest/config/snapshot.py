"""The configuration that is in force: what the last ``up`` or ``prepare`` made of ``plant.toml`` and its tag lists.

A process reads this and never the files, which may be half written when it is started anew. ``config/NUMBER.json`` in
the state folder; the highest number is in force, those before it are kept as history. Secrets and certificates stay
where the options name them, by absolute path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict, ValidationError

from ingest.batch import now_us
from ingest.config.files import digest, named
from ingest.config.model import Plant
from ingest.errors import OperationError
from ingest.registry import write_whole

FOLDER = "config"
_KEPT = 20
_NO_VERSIONS: Mapping[str, int] = MappingProxyType({})


class Snapshot(BaseModel):
    """A configuration that was put in force."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int
    since: int  # µs, when it was put in force
    file: Path  # plant.toml
    digests: Mapping[str, str]  # path of plant.toml and of each tag list → SHA-256 of what was read
    plant: Plant
    versions: Mapping[str, int] = {}  # channel's name → its version, of those that mean something else than at first

    def looks(self) -> tuple[str | bool | None, ...]:
        """What the files look like now: digests, and whether those that options name are there. Parses nothing."""
        return (*(digest(Path(path)) for path in self.digests), *(path.is_file() for path in self._named()))

    def untouched(self) -> bool:
        """Whether the files still are what was read."""
        return self.looks() == (*self.digests.values(), *(True for _ in self._named()))

    def _named(self) -> Iterator[Path]:
        return named(*self.plant.sources, self.plant.viewer, self.plant.notify)


def save(
    state: Path, file: Path, digests: Mapping[str, str], plant: Plant, versions: Mapping[str, int] = _NO_VERSIONS
) -> Snapshot:
    """Put a configuration in force, durably, whole or not at all. The one that is in force already is left as it is.

    ``file`` and the paths in ``plant`` are absolute.
    """
    folder = state / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    numbers = _numbers(folder)
    before = _read(folder, numbers[-1]) if numbers else None
    fresh = (file, digests, plant, versions)
    if before is not None and (before.file, before.digests, before.plant, before.versions) == fresh:
        return before
    number = numbers[-1] + 1 if numbers else 1
    snapshot = Snapshot(number=number, since=now_us(), file=file, digests=digests, plant=plant, versions=versions)
    write_whole(_path(folder, number), snapshot.model_dump_json(exclude_defaults=True))
    _sync(folder)
    for old in numbers[: -(_KEPT - 1)]:
        _path(folder, old).unlink()
    return snapshot


def newest(state: Path) -> int | None:
    """The number of the configuration that is in force; None before the first ``up``."""
    return max(_numbers(state / FOLDER), default=None)


def in_force(state: Path) -> Snapshot | None:
    """The configuration that is in force; None before the first ``up``. Raises OperationError for an unreadable one."""
    number = newest(state)
    if number is None:
        return None
    snapshot = _read(state / FOLDER, number)
    if snapshot is None:
        path = _path(state / FOLDER, number)
        raise OperationError(f"{path} is not a configuration of this version of plantlog: run `plantlog up`")
    return snapshot


def plant_in_force(state: Path) -> Plant:
    """What a process runs. Raises OperationError where nothing is in force yet."""
    snapshot = in_force(state)
    if snapshot is None:
        raise OperationError(f"{state / FOLDER} has no configuration: `plantlog up` puts one in force")
    return snapshot.plant


def history(state: Path) -> Iterator[Snapshot]:
    """All that are kept and can be read, newest first."""
    folder = state / FOLDER
    for number in reversed(_numbers(folder)):
        if (snapshot := _read(folder, number)) is not None:
            yield snapshot


def _read(folder: Path, number: int) -> Snapshot | None:
    """None: it can't be read, as one of another version of plantlog."""
    try:
        return Snapshot.model_validate_json(_path(folder, number).read_bytes())
    except (OSError, ValidationError):
        return None


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal())


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number:06}.json"


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
