"""The configuration in force: a snapshot of ``plant.toml`` and its tag lists, taken by ``up`` or ``prepare``.

Processes read the snapshot and never the files, which may be half edited at a restart. ``config/NUMBER.json`` in
the state folder; the highest number is in force, earlier ones are kept as history. Secrets and certificates stay
where they are, referenced by absolute path.

A file has lines of JSON, so that a process reads no tags but its own: number and time, all options, and then the tags
of each source in a line.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from core.config.files import digest, named_files
from core.config.model import Plant
from core.config.options import FOLDER, numbers, path_of
from core.config.processes import split
from core.config.sources import ModbusTag, OpcuaTag, PushTag, Source, SourceKind
from core.errors import OperationError
from core.files import write_atomically
from core.timestamps import now_us

_HISTORY = 20
_NO_VERSIONS: Mapping[str, int] = MappingProxyType({})
_ALL_KINDS: Collection[SourceKind] = ("modbus", "opcua", "push")
_TAGS: dict[SourceKind, TypeAdapter[Any]] = {
    "modbus": TypeAdapter(tuple[ModbusTag, ...]),
    "opcua": TypeAdapter(tuple[OpcuaTag, ...]),
    "push": TypeAdapter(tuple[PushTag, ...]),
}
_TAG_LISTS: Any = {"plant": {"sources": {"__all__": {"tags"}}}}


class Snapshot(BaseModel):
    """A configuration that was put in force."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    number: int
    since: int  # µs, when it was put in force
    file: Path  # plant.toml
    digests: Mapping[str, str]  # path of plant.toml and of each tag list → SHA-256 of what was read
    plant: Plant
    channels: Mapping[str, int]  # source's name → number of its channels
    versions: Mapping[str, int] = {}  # channel's name → its version, of channels whose meaning has changed
    processes: Mapping[str, int] = {}  # source's name → number of its process, where that is not the first

    def process(self, source: str) -> int:
        """The number of the process that reads a source."""
        return self.processes.get(source, 1)

    def file_states(self) -> tuple[str | bool | None, ...]:
        """The current state of the files: digests, and whether files named in options exist. Parses nothing."""
        return (*(digest(Path(path)) for path in self.digests), *(path.is_file() for path in self.named_files()))

    def files_unchanged(self) -> bool:
        """Return whether the files are unchanged since they were read."""
        return self.file_states() == (*self.digests.values(), *(True for _ in self.named_files()))

    def named_files(self) -> Iterator[Path]:
        """Secret and certificate files that options name."""
        plant = self.plant
        return named_files(
            *plant.sources, plant.viewer, plant.tls, plant.backup, plant.archive, plant.questions, plant.notify
        )


def save(
    state: Path, file: Path, digests: Mapping[str, str], plant: Plant, versions: Mapping[str, int] = _NO_VERSIONS
) -> Snapshot:
    """Put a configuration in force, durably and atomically. No-op if it is in force already.

    ``file`` and the paths in ``plant`` are absolute.
    """
    folder = state / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    known = numbers(folder)
    versions = dict(sorted(versions.items()))
    channels = {source.name: len(source.tags) for source in plant.sources}
    before = _read(folder, known[-1], ()) if known else None
    processes_before = (
        {} if before is None else {source.name: before.process(source.name) for source in before.plant.sources}
    )
    processes = {source: number for source, number in sorted(split(plant, processes_before).items()) if number > 1}
    snapshot = Snapshot(
        number=0,
        since=0,
        file=file,
        digests=digests,
        plant=plant,
        channels=channels,
        versions=versions,
        processes=processes,
    )
    lines = list(_lines(snapshot))
    unchanged = _unchanged(path_of(folder, known[-1]), lines) if known else None
    if unchanged is not None:
        return snapshot.model_copy(update=unchanged)
    head = {"number": known[-1] + 1 if known else 1, "since": now_us()}
    write_atomically(path_of(folder, head["number"]), "\n".join([json.dumps(head), *lines, ""]))
    for old in known[: -(_HISTORY - 1)]:
        path_of(folder, old).unlink()
    return snapshot.model_copy(update=head)


def latest_number(state: Path) -> int | None:
    """The number of the configuration that is in force; None before the first ``up``."""
    return max(numbers(state / FOLDER), default=None)


def in_force(state: Path, tags_of: Collection[SourceKind] = _ALL_KINDS, process: int | None = None) -> Snapshot | None:
    """The configuration that is in force; None before the first ``up``.

    The sources of kinds that are not in ``tags_of`` come without their tags; where ``process`` is given, so do those
    that another process of their kind reads. Raises OperationError for an unreadable one.
    """
    number = latest_number(state)
    if number is None:
        return None
    snapshot = _read(state / FOLDER, number, tags_of, process)
    if snapshot is None:
        path = path_of(state / FOLDER, number)
        raise OperationError(f"{path} was not written by this version of plantlog: run `plantlog up`")
    return snapshot


def plant_in_force(state: Path, tags_of: Collection[SourceKind] = _ALL_KINDS) -> Plant:
    """The plant of :func:`in_force`. Raises OperationError if no configuration is in force yet."""
    snapshot = in_force(state, tags_of)
    if snapshot is None:
        raise OperationError(f"{state / FOLDER} has no configuration yet: run `plantlog up`")
    return snapshot.plant


def history(state: Path) -> Iterator[Snapshot]:
    """Readable snapshots, newest first."""
    folder = state / FOLDER
    for number in reversed(numbers(folder)):
        if (snapshot := _read(folder, number)) is not None:
            yield snapshot


def _lines(snapshot: Snapshot) -> Iterator[str]:
    """The lines of a file after the first one."""
    yield snapshot.model_dump_json(exclude_defaults=True, exclude={"number": True, "since": True, **_TAG_LISTS})
    for source in snapshot.plant.sources:
        yield tags_json(source).decode()


def tags_json(source: Source) -> bytes:
    """The tags of a source, in their order."""
    return _TAGS[source.kind].dump_json(source.tags, exclude_defaults=True)


def _unchanged(path: Path, lines: Iterable[str]) -> dict[str, int] | None:
    """Number and time of the snapshot in a file if the other lines are ``lines``, else None."""
    try:
        with path.open() as file:
            head: dict[str, int] = json.loads(file.readline())
            is_equal = all(file.readline() == f"{line}\n" for line in lines)
            return head if is_equal and not file.readline() else None
    except (OSError, ValueError):
        return None


def _read(
    folder: Path, number: int, tags_of: Collection[SourceKind] = _ALL_KINDS, process: int | None = None
) -> Snapshot | None:
    """The snapshot of a number; None: it can't be read, as one of another version of plantlog."""
    try:
        with path_of(folder, number).open() as file:
            content = json.loads(file.readline()) | json.loads(file.readline())
            for source in content["plant"]["sources"]:
                tags, kind = file.readline(), source["kind"]
                read = kind in tags_of and process in (None, content.get("processes", {}).get(source["name"], 1))
                source["tags"] = _TAGS[kind].validate_json(tags) if read else ()
        return Snapshot.model_validate(content)
    except (OSError, ValueError, KeyError, TypeError):
        return None
