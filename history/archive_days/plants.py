"""Archives of plants under one location, read without their databases: of several, by a file, or of one.

A plant's name is that of whoever asks; its public key proves that a day is of this plant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import pairwise
from types import MappingProxyType
from uuid import UUID

from core.errors import OperationError
from core.timestamps import touched
from history.archive.day_files import DayFiles
from history.archive.location import Location
from history.archive.manifest import DayFolder, Manifest, Proof, archived_days, read_manifest
from history.archive_days.verify import problems_of_chain, proof_of, verify_files
from history.seals.seal_store import chain_problems, missing_deposit
from history.standalone import Amendment, Seal, seal_problems, wrong_key

REQUESTS = 16  # at a time
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Plant:
    """A plant whose archive is read."""

    name: str  # with which names of channels begin; empty: it is the only one, and they are as they are
    number: int  # from 0, among all of the file
    installation: UUID
    keys: tuple[str, ...] | None  # trusted public keys, in hex; None: those beside the seals, which prove no plant

    @property
    def prefix(self) -> str:
        """Beginning of the names of its channels and sources."""
        return f"{self.name}/" if self.name else ""

    @property
    def label(self) -> str:
        """Beginning of messages about it."""
        return f"plant {self.name}: " if self.name else ""


@dataclass(frozen=True, slots=True)
class PlantVerdict:
    """Result of the verification of a plant's day, or of its chain of seals."""

    plant: Plant
    day: date | None  # None: the chain
    problems: list[str]  # none: as sealed
    amended: list[Amendment]  # what later seals of the day have otherwise
    seals: Sequence[Seal]  # those that could be read: of a day only if it is as sealed

    @property
    def strictly_ok(self) -> bool:
        """Return whether all is as sealed first, or proven to have come later."""
        return not self.problems and all(amendment.proven for amendment in self.amended)


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

    def days(self, plant: Plant) -> tuple[date, ...]:
        """The archived days of a plant, ascending. Raises OperationError if it has none."""
        if self._days is None:
            # One listing of all is fewer requests than one for each.
            archived = archived_days(self.location, self.plants[0].installation if len(self.plants) == 1 else None)
            self._days = {each: tuple(archived.get(each.installation, ())) for each in self.plants}
            if missing := [each for each, days in self._days.items() if not days]:
                legal = ", ".join(map(str, archived_days(self.location))) or "none"
                raise OperationError(
                    f"archive {self.location.name}: {missing[0].label}no day of installation "
                    f"{missing[0].installation} is archived there; legal: {legal}"
                )
        return self._days[plant]

    def days_between(self, plant: Plant, since: datetime, until: datetime) -> list[date]:
        """Days of a plant that have samples of an interval, ascending. Raises OperationError if it has none at all."""
        return touched(self.days(plant), since, until)

    def read(self, days: Sequence[tuple[Plant, date]], check: Callable[[], None] = lambda: None) -> None:
        """Read and verify the manifests of days, several at a time. Raises OperationError.

        ``check`` is called after each, and ends the reading by an error.
        """
        with ThreadPoolExecutor(REQUESTS) as threads:
            for _ in threads.map(lambda day: self.manifest(*day), days):
                check()
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

    def verify(self, days: Callable[[Plant], Iterable[date]], deposited: str | None = None) -> Iterator[PlantVerdict]:
        """Verdicts on the chain of all seals of each plant, and then on some of their days.

        What can't be read, or is not archived, is a problem of the chain or of the day: others are verified all the
        same. ``deposited``: hash of a seal that one of the chains must have. Raises OperationError if a plant has no
        day at all, or the hash is none.
        """
        chains = [self._verify_chain(plant) for plant in self.plants]
        if deposited is not None:
            chains[0].problems.extend(missing_deposit((chain.seals for chain in chains), deposited))
        yield from chains
        for plant in self.plants:
            for day in days(plant):
                yield self._verify_day(plant, day)

    def _verify_chain(self, plant: Plant) -> PlantVerdict:
        proofs, problems = list[Proof](), list[str]()
        for day in self.days(plant):
            try:
                proofs.append(proof_of(self.location, read_manifest(self.location, DayFolder(plant.installation, day))))
            except OperationError as error:
                problems.append(str(error))
        problems += problems_of_chain(proofs, plant.keys)
        return PlantVerdict(plant, None, problems, [], [seal for proof in proofs for seal in proof.seals])

    def _verify_day(self, plant: Plant, day: date) -> PlantVerdict:
        folder = DayFolder(plant.installation, day)
        try:
            # Read again, as the day may have been amended while others were verified.
            manifest = read_manifest(self.location, folder)
            problems, amended = verify_files(DayFiles(self.location, folder, manifest), plant.keys)
            return PlantVerdict(
                plant, day, problems, amended, [] if problems else proof_of(self.location, manifest).seals
            )
        except OperationError as error:
            return PlantVerdict(plant, day, [str(error)], [], [])

    def _verified(self, plant: Plant, day: date) -> Manifest:
        manifest = read_manifest(self.location, DayFolder(plant.installation, day))
        proof = proof_of(self.location, manifest)
        if problems := list(_seal_problems(manifest, proof, plant.keys)):
            raise OperationError(f"archive {self.location.name}: {plant.label}{day}: {'; '.join(problems)}")
        return replace(manifest, proof=proof)

    def _require_order(self, plant: Plant) -> None:
        """Seals that follow each other name each other. Those between may be of days that were not read."""
        proofs = [manifest.proof for (of, _), manifest in self._manifests.items() if of == plant and manifest.proof]
        chain = sorted((seal for proof in proofs for seal in proof.seals), key=lambda seal: seal.serial)
        for before, after in pairwise(chain):
            if after.serial <= before.serial + 1 and after.previous != before.hash():
                problem = chain_problems([before, after], None, from_first=False)[0]
                raise OperationError(f"archive {self.location.name}: {plant.label}{problem}")


def _seal_problems(manifest: Manifest, proof: Proof, anchors: Sequence[str] | None) -> Iterator[str]:
    seals, keys = proof.seals, proof.keys
    if not seals or [seal.revision for seal in seals] != list(range(len(seals))):
        yield "revisions of the day's seal are missing"
        return
    if wrong := wrong_key(seals, keys, anchors):
        yield wrong
        return
    yield from seal_problems(seals, keys, anchors)
    yield from manifest.differences(seals[-1])
