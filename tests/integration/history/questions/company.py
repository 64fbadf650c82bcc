"""Two plants with one archive."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from core.installation import installation_of
from core.paths import State
from history.seals.keys import load_signer
from tests.database import Database, prepared
from tests.integration.history.questions.recorded_plant import recorded_plant
from tests.integration.history.questions.recording import at

DAY = f"{at(0):%Y-%m-%d}"


@dataclass
class Company:
    """Two plants with one archive, and the file that lists them."""

    north: State  # with a database
    south: State
    archive: Path
    file: Path

    def copied(self, folder: Path) -> Company:
        """A copy of the archive, to be damaged."""
        shutil.copytree(self.file.parent, folder, dirs_exist_ok=True)
        company = Company(self.north, self.south, folder / "archive", folder / "plants.toml")
        company.file.write_text(self.file.read_text().replace(str(self.archive), str(company.archive)))
        return company

    def day(self, state: State, table: str) -> Path:
        """File of a table of a plant's day."""
        [path] = self.archive.glob(f"{table}/installation={installation_of(state.root)}/**/*{DAY}*")
        return path


async def _archive(database: Database, folder: Path, archive: Path) -> None:
    async with recorded_plant(database, folder, archive) as (maintenance, _):
        assert (await maintenance.job()).outcome == "ok"


@contextmanager
def company_in(folder: Path, server: str, template: str) -> Iterator[Company]:
    """The same samples in two plants, with the same ids of channels."""
    states = {name: State(folder / name / "state") for name in ("north", "south")}
    archive = folder / "files" / "archive"
    archive.mkdir(parents=True)
    (folder / "north").mkdir()
    (folder / "south").mkdir()
    lines = [f'[archive]\nlocation = "{archive}"\n']
    with (
        prepared(server, template, "plants_north", partial(_archive, folder=folder / "north", archive=archive)),
        prepared(server, template, "plants_south", partial(_archive, folder=folder / "south", archive=archive)),
    ):
        for name, state in states.items():
            signer = load_signer(state)
            assert signer is not None
            (folder / "files" / f"{name}.pem").write_text(signer.pem())
            installation = installation_of(state.root)
            lines.append(f'[plants.{name}]\ninstallation = "{installation}"\npublic_key = "{name}.pem"\n')
        file = folder / "files" / "plants.toml"
        file.write_text("\n".join(lines))
        yield Company(states["north"], states["south"], archive, file)
