"""``plantlog evidence verify --plants``: archives of several plants, without their databases."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from itertools import product
from pathlib import Path

import pytest

from core.installation import installation_of
from core.timestamps import begin
from history import notebook
from tests.command import CommandResult
from tests.command import run as plantlog
from tests.integration.history.archive_site import Site
from tests.integration.history.questions.company import DAY, Company
from tests.integration.history.sealed_plant import DAY as SEALED_DAY
from tests.integration.history.sealed_plant import public_key
from tests.integration.history.seals.test_delete import deleted


@pytest.mark.slow
def test_evidence_of_plants_is_verified(company: Company, tmp_path: Path) -> None:
    def verified(*options: object) -> CommandResult:
        return plantlog(tmp_path, "evidence", "verify", DAY, "--plants", company.file, *options)

    result = verified("--json")
    rows = json.loads(result.out)
    assert [(row["plant"], row["day"], row["problems"]) for row in rows] == [
        (plant, day, []) for day in (None, DAY) for plant in ("north", "south")
    ], result.err
    seal = rows[-1]["seals"][-1]
    assert seal in rows[1]["seals"]
    lines = verified("--plant", "*").out.splitlines()
    assert lines[:2] == [f"{plant} chain of seals: as sealed" for plant in ("north", "south")]
    assert lines[-1].startswith(f"south {DAY}: as sealed; sealed at 2")
    assert lines[-1].endswith(f", root {seal['root']}")
    assert verified("--deposited", seal["previous"] or seal["root"]).code == int(not seal["previous"])
    result = verified("--deposited", "a" * 64)
    assert (result.code, result.out.splitlines()[0]) == (
        1,
        f"north chain of seals: no seal here has the deposited hash {'a' * 16}…, or follows the one that has it",
    )
    assert "--deposited: found 'a'; legal: the 64 hex" in verified("--deposited", "a").err
    changed = company.copied(tmp_path)
    path = next(changed.archive.glob(f"samples/installation={installation_of(company.south.root)}/day={DAY}/*"))
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    result = plantlog(tmp_path, "evidence", "verify", DAY, "--plants", changed.file, "--json")
    problems = {row["plant"]: row["problems"] for row in json.loads(result.out) if row["day"]}
    assert problems["north"] == []
    assert "is not the file of the manifest: its SHA-256 differs" in problems["south"][0]


async def test_deletions_are_listed_and_not_strictly_as_sealed(site: Site, tmp_path: Path) -> None:
    for channel, hour in (("unit/pressure", 5), ("unit/pressure", 6), ("other/flow", 5)):
        await deleted(site.plant, begin(SEALED_DAY, hour), begin(SEALED_DAY, hour + 1), channel=channel)
    for day in (SEALED_DAY, SEALED_DAY + timedelta(days=1)):
        await site.archive(day)
    public_key(site.plant, tmp_path / "north.pem")
    file = tmp_path / "plants.toml"
    file.write_text(
        f'[archive]\nlocation = "{site.folder}"\n[plants.north]\n'
        f'installation = "{site.opened.installation}"\npublic_key = "north.pem"\n'
    )

    async def verified(*options: str) -> CommandResult:
        return await asyncio.to_thread(plantlog, tmp_path, "evidence", "verify", "--plants", file, *options)

    result = await verified()
    hours = [f"{name}, hour 05: 120 samples missing" for name in ("other/flow", "unit/pressure")]
    begins = "north 2026-03-09: amended: revision"
    assert result.out.splitlines()[1].startswith("north 2026-03-09: as sealed; sealed at ")
    assert f"{begins} 1: {hours[1]}, deleted by eva (test signal)" in result.out.splitlines()
    assert f"{begins} 3: {hours[0]}, deleted by eva (test signal)" in result.out.splitlines()
    assert result.out.count("deleted by eva") == 3
    assert (result.code, (await verified("--strict")).code) == (0, 1)
    short = (await verified("--limit", "1")).out.splitlines()
    assert short[2].startswith(begins)
    assert short[3] == "north 2026-03-09: 2 more amendments (--limit 0 lists all)"
    [_, day, _] = json.loads((await verified("--json")).out)
    assert [amendment["revision"] for amendment in day["amended"]] == [1, 2, 3]
    assert not any(amendment["proven"] for amendment in day["amended"])


@pytest.mark.slow
def test_verification_goes_on_behind_what_is_damaged(company: Company, tmp_path: Path) -> None:
    changed = company.copied(tmp_path)
    changed.day(company.north, "manifests").write_text("{")
    days = product(("north", "south"), (DAY, "2026-03-10", "2026-03-11"))
    result = plantlog(tmp_path, "evidence", "verify", "--plants", changed.file)
    lines = result.out.splitlines()
    assert "south chain of seals: as sealed" in lines
    assert [line.partition("; ")[0] for line in lines if "; sealed at " in line] == [
        f"{plant} {day}: as sealed" for plant, day in days if (plant, day) != ("north", DAY)
    ]
    damaged = [line for line in lines if f"{DAY}.json is not a manifest" in line]
    assert [line.partition(": ")[0] for line in damaged] == ["north chain of seals", f"north {DAY}"]
    assert result.code == 1
    changed.day(company.north, "manifests").unlink()
    result = plantlog(tmp_path, "evidence", "verify", DAY, "--plants", changed.file)
    assert f"south {DAY}: as sealed" in result.out
    assert f"north {DAY}: archive {changed.archive}: {DAY} of installation " in result.out
    assert result.code == 1


def test_notebook_verifies_the_days_that_it_reads(company: Company, tmp_path: Path) -> None:
    changed = company.copied(tmp_path)
    path = next(changed.archive.glob(f"samples/installation={installation_of(company.south.root)}/day={DAY}/*"))
    content = path.read_bytes()
    path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    notebook.gaps(changed.file, start="2026-03-10", verify=True)
    with pytest.raises(notebook.ArchiveError, match=f"plant south: {DAY}: .* is not the file of the manifest"):
        notebook.gaps(changed.file, end="2026-03-10", verify=True)
