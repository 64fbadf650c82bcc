"""Archives of several plants under one location, read without their databases.

A file of TOML says whose data they are: name, installation and public key of each plant (docs/archive.md). The name is
that of whoever asks; the key proves that a day is of this plant. The file also says which cluster computes questions.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar
from uuid import UUID

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from core.config.base import Frozen
from core.config.contradictions import in_options
from core.config.explain import invalid_value, legal_values, shown
from core.config.files import loose_permissions
from core.config.model import ArchiveOptions, QuestionsOptions
from core.errors import OperationError
from history.archive.configured_location import location_of
from history.archive.day_files import DayFiles
from history.archive.location import Location
from history.archive.manifest import MANIFESTS, DayFolder, Manifest, Proof, read_manifest
from history.archive_days.verify import problems_of, problems_of_chain, proof_of
from history.seals.seal_store import chain_problems
from history.standalone import UnverifiableError, read_keys, seal_problems, wrong_key

_NAME = re.compile(r"[\w.-]+")
_MANIFEST = re.compile(rf"{MANIFESTS}/installation=([0-9a-f-]{{36}})/(\d{{4}}-\d\d-\d\d)\.json")
REQUESTS = 16  # at a time
_NONE: Mapping[str, str] = MappingProxyType({})
Table = TypeVar("Table", ArchiveOptions, QuestionsOptions)
_TABLES: Mapping[str, type[Frozen]] = {"archive": ArchiveOptions, "questions": QuestionsOptions}  # of plant.toml


class _PlantOptions(Frozen):
    installation: UUID
    public_key: Path


class _Options(Frozen):
    archive: ArchiveOptions
    questions: QuestionsOptions = QuestionsOptions()
    plants: Mapping[str, _PlantOptions] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Plant:
    """A plant whose archive is read."""

    name: str
    number: int  # from 0, among all of the file
    installation: UUID
    keys: tuple[str, ...]  # trusted public keys, in hex


class Plants:
    """The archived days of several plants. Each day's seals are verified when it is read the first time."""

    def __init__(
        self, location: Location, plants: Sequence[Plant], n: int, questions: Mapping[str, str] = _NONE
    ) -> None:
        """``n``: plants of the file, of which these are some; ``questions``: options of its table ``[questions]``."""
        self.location = location
        self.questions = questions
        self.plants = tuple(plants)
        self.n = n
        self._days: dict[Plant, tuple[date, ...]] | None = None
        self._manifests: dict[tuple[Plant, date], Manifest] = {}

    @classmethod
    def of_file(cls, file: Path, patterns: Sequence[str] = ()) -> Plants:
        """The plants of a file that have one of these names, in which ``*`` stands for any text (none: all).

        Raises OperationError.
        """
        options = _read(file)
        names = sorted(options.plants)
        numbers = {name: number for number, name in enumerate(names)}
        chosen = set[str]()
        for pattern in patterns or ("*",):
            matching = {name for name in names if re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name)}
            if not matching:
                raise OperationError(f"--plant: no plant is {pattern}; {file} has {', '.join(names)}")
            chosen |= matching
        plants = [_plant(file, name, numbers[name], options.plants[name]) for name in sorted(chosen)]
        questions = options.questions.model_dump(mode="json", exclude_none=True)
        return cls(location_of(options.archive), plants, len(names), questions)

    def days(self, plant: Plant) -> tuple[date, ...]:
        """The archived days of a plant, ascending. Raises OperationError if it has none."""
        if self._days is None:
            folders = [f"{MANIFESTS}/installation={plant.installation}" for plant in self.plants]
            paths = [path for folder in _once(folders) for path in self.location.listing(folder)]
            dates: dict[str, list[date]] = {}
            for match in filter(None, map(_MANIFEST.fullmatch, paths)):
                dates.setdefault(match[1], []).append(date.fromisoformat(match[2]))
            self._days = {each: tuple(sorted(dates.get(str(each.installation), ()))) for each in self.plants}
            if missing := [each for each, days in self._days.items() if not days]:
                raise OperationError(
                    f"archive {self.location.name}: plant {missing[0].name}: no day of installation "
                    f"{missing[0].installation} is archived there; legal: {self._installations()}"
                )
        return self._days[plant]

    def read(self, days: Sequence[tuple[Plant, date]]) -> None:
        """Read and verify the manifests of days, several at a time. Raises OperationError."""
        with ThreadPoolExecutor(REQUESTS) as threads:
            list(threads.map(lambda day: self.manifest(*day), days))
        for plant in dict.fromkeys(plant for plant, _ in days):
            self._require_order(plant)

    def manifest(self, plant: Plant, day: date) -> Manifest:
        """The manifest of a day whose seals are by the plant's key. Raises OperationError."""
        key = plant, day
        if key not in self._manifests:
            self._manifests[key] = self._verified(plant, day)
        return self._manifests[key]

    def proof(self, plant: Plant, day: date) -> Proof:
        """The statements of a day's seals. Raises OperationError."""
        proof = self.manifest(plant, day).proof
        assert proof is not None
        return proof

    def files(self, plant: Plant, day: date) -> DayFiles:
        """The files of a day whose seals are by the plant's key. Raises OperationError."""
        return DayFiles(self.location, DayFolder(plant.installation, day), self.manifest(plant, day))

    def verify(self, day: date | None = None) -> Iterator[tuple[Plant, date | None, list[str]]]:
        """Differences of each plant's days (None: all) from their seals, and of its chain of seals, whose day is None.

        Raises OperationError if the storage fails, or if the day is not archived.
        """
        for plant in self.plants:
            folders = {each: DayFolder(plant.installation, each) for each in self.days(plant)}
            manifests = {each: read_manifest(self.location, folder) for each, folder in folders.items()}
            proofs = (proof_of(self.location, manifest) for manifest in manifests.values())
            yield plant, None, problems_of_chain(proofs, plant.keys)
            if day is not None and day not in manifests:
                raise OperationError(f"archive {self.location.name}: plant {plant.name}: {day} is not in it")
            for each in manifests if day is None else [day]:
                files = DayFiles(self.location, folders[each], manifests[each])
                yield plant, each, problems_of(files, plant.keys)

    def _verified(self, plant: Plant, day: date) -> Manifest:
        manifest = read_manifest(self.location, DayFolder(plant.installation, day))
        proof = proof_of(self.location, manifest)
        if problems := list(_seal_problems(manifest, proof, plant.keys)):
            raise OperationError(f"archive {self.location.name}: plant {plant.name}: {day}: {'; '.join(problems)}")
        return replace(manifest, proof=proof)

    def _require_order(self, plant: Plant) -> None:
        """Seals that follow each other name each other. Those between may be of days that were not read."""
        proofs = [manifest.proof for (of, _), manifest in self._manifests.items() if of == plant and manifest.proof]
        chain = sorted((seal for proof in proofs for seal in proof.seals), key=lambda seal: seal.serial)
        for before, after in pairwise(chain):
            if after.serial == before.serial + 1 and after.previous != before.hash():
                problem = chain_problems([before, after], None, from_first=False)[0]
                raise OperationError(f"archive {self.location.name}: plant {plant.name}: {problem}")

    def _installations(self) -> str:
        paths = filter(None, map(_MANIFEST.fullmatch, self.location.listing(MANIFESTS)))
        return ", ".join(sorted({match[1] for match in paths})) or "none"


def _seal_problems(manifest: Manifest, proof: Proof, anchors: Sequence[str]) -> Iterator[str]:
    seals, keys = proof.seals, proof.keys
    if not seals or [seal.revision for seal in seals] != list(range(len(seals))):
        yield "revisions of the day's seal are missing"
        return
    if wrong := wrong_key(seals, keys, anchors):
        yield wrong
        return
    yield from seal_problems(seals, keys, anchors)
    for name in ("day", "revision", "serial", "root", "samples", "channels"):
        listed, sealed = getattr(manifest, name), getattr(seals[-1], name)
        if listed != sealed:
            yield f"{name}: {listed} by the manifest, {sealed} by the seal"


def _once(folders: Sequence[str]) -> Sequence[str]:
    """One listing of all is fewer requests than one for each."""
    return folders if len(folders) == 1 else [MANIFESTS]


def _read(file: Path) -> _Options:
    try:
        options = _Options.model_validate(tomllib.loads(file.read_text()))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OperationError(f"{file}: {error}") from error
    except ValidationError as error:
        raise OperationError(f"{file}: {_problem(error.errors()[0])}") from error
    if options.archive.location is None:
        raise OperationError(f"{file}: archive.location: found none; legal: a folder, or s3://BUCKET/PATH")
    named: dict[UUID, str] = {}
    for name, plant in options.plants.items():
        if not _NAME.fullmatch(name):
            raise OperationError(f"{file}: plants: found {name!r}; legal: letters, digits, ., - and _")
        if plant.installation in named:
            raise OperationError(
                f"{file}: plants.{name}.installation: found {plant.installation}, which {named[plant.installation]} "
                "has; legal: one of its own"
            )
        named[plant.installation] = name
    folder = file.absolute().parent
    plants = {
        name: plant.model_copy(update={"public_key": folder / plant.public_key})
        for name, plant in options.plants.items()
    }
    tables = {name: _usable(file, name, getattr(options, name)) for name in _TABLES}
    return options.model_copy(update={**tables, "plants": plants})


def _problem(detail: ErrorDetails) -> str:
    name, *option = detail["loc"]
    if name in _TABLES and option:
        legal = legal_values(_TABLES[str(name)], {**detail, "loc": tuple(option)})
        return f"{name}.{option[0]}: found {invalid_value(detail)}; legal: {legal}"
    return f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"


def _usable(file: Path, name: str, options: Table) -> Table:
    """A table as that of plant.toml is checked, with the paths of its files."""
    for option, found, legal in in_options(options):
        raise OperationError(f"{file}: {name}.{option}: found {found}; legal: {legal}")
    paths = {
        option: file.absolute().parent / path
        for option in ("ca_file", "certificate_file", "key_file")
        if (path := getattr(options, option, None)) is not None
    }
    for option, path in paths.items():
        if not path.is_file():
            raise OperationError(f"{file}: {name}.{option}: found {shown(path)}; legal: an existing file")
        if option == "key_file" and (mode := loose_permissions(path)) is not None:
            found = f"{shown(path)} with permissions {mode}"
            raise OperationError(f"{file}: {name}.{option}: found {found}; legal: 0600: run chmod 600 {path}")
    return options.model_copy(update=paths)


def _plant(file: Path, name: str, number: int, options: _PlantOptions) -> Plant:
    try:
        return Plant(name, number, options.installation, tuple(read_keys(options.public_key.read_bytes())))
    except (OSError, UnverifiableError) as error:
        raise OperationError(f"{file}: plants.{name}.public_key: {options.public_key}: {error}") from error
