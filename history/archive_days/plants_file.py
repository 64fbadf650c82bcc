"""The file that lists plants whose archives lie under one location (docs/archive.md): TOML, checked as plant.toml is.

It also says which cluster computes questions about them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from pydantic import BeforeValidator

from core.config.base import Frozen
from core.config.document import Document
from core.config.explain import did_you_mean, shown
from core.config.model import ArchiveOptions, QuestionsOptions
from core.config.quantities import Parsed
from core.errors import OperationError
from core.patterns import Patterns, unmatched
from history.archive.configured_location import location_of
from history.archive_days.plants import Plant, Plants
from history.standalone import UnverifiableError, read_keys

_NAME = re.compile(r"[\w.-]+")
_TABLES = ("archive", "plants", "questions")
_ID = Parsed(f"an id such as {UUID(int=0)}", lambda text: UUID(str(text)))


class _PlantOptions(Frozen):
    installation: Annotated[UUID, BeforeValidator(_ID)]
    public_key: Path


def plants_of(file: Path, patterns: Sequence[str] = ()) -> Plants:
    """The plants of a file that have one of these names, in which ``*`` stands for any text (none: all).

    Raises OperationError with all that is wrong with the file.
    """
    document = _PlantsFile(file)
    listed = document.plants()
    if document.problems or listed is None:
        raise OperationError("\n".join(map(str, document.problems)))
    names = [plant.name for plant in listed.plants]
    if unknown := unmatched(patterns, names):
        raise OperationError(f"--plant: no plant is {unknown[0]}; {file} has {', '.join(names)}")
    wanted = Patterns(patterns or None)
    chosen = [plant for plant in listed.plants if plant.name in wanted]
    return Plants(listed.location, chosen, listed.n, listed.questions)


class _PlantsFile(Document):
    def plants(self) -> Plants | None:
        """All that it lists; None: problems say what is wrong."""
        content = self.content()
        if content is None:
            return None
        for name in content:
            if name not in _TABLES:
                self.problem((name,), "an unknown table", did_you_mean(name, _TABLES))
        archive = self.table(("archive",), content.get("archive", {}), ArchiveOptions)
        questions = self.table(("questions",), content.get("questions", {}), QuestionsOptions)
        if archive is not None and archive.location is None:
            self.problem(("archive", "location"), "nothing", "a folder, or s3://BUCKET/PATH")
        tables = content.get("plants")
        if not isinstance(tables, dict) or not tables:
            found = "nothing" if tables is None else shown(tables)
            self.problem(("plants",), found, "one or more tables [plants.NAME]")
            return None
        names = dict[UUID, str]()
        plants = [self._plant(name, number, tables[name], names) for number, name in enumerate(sorted(tables))]
        if self.problems or archive is None or questions is None:
            return None
        options = questions.model_dump(mode="json", exclude_none=True)
        return Plants(location_of(archive), [plant for plant in plants if plant is not None], len(plants), options)

    def _plant(self, name: str, number: int, table: Any, names: dict[UUID, str]) -> Plant | None:
        """``names``: of the plants before, by installation."""
        key = "plants", name
        if not _NAME.fullmatch(name):
            self.problem(key, shown(name), "letters, digits, ., - and _")
        options = self.table(key, table, _PlantOptions)
        if options is None:
            return None
        if (other := names.setdefault(options.installation, name)) != name:
            found = f"{options.installation}, which {other} has"
            self.problem((*key, "installation"), found, "one of its own")
        if not options.public_key.is_file():
            return None
        try:
            return Plant(name, number, options.installation, tuple(read_keys(options.public_key.read_bytes())))
        except (OSError, UnverifiableError) as error:
            self.problem((*key, "public_key"), f"{shown(options.public_key)}: {error}", "the plant's public key")
            return None
