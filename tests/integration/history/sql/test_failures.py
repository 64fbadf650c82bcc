"""Failures of ``plantlog sql``: damage, limits, and refused statements."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from core.errors import OperationError
from history.questions.ask import find_question
from history.sql.session import opened
from history.sql.sources.execution import Limits
from tests.integration.history.archive_maintenance import Maintained
from tests.integration.history.sealed_plant import DAY
from tests.integration.history.sql.asking import NEXT, archived_and_dropped, failure, rows_of


def listed(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


async def test_damaged_or_swapped_file_is_an_error_that_names_it(plant: Maintained) -> None:
    await archived_and_dropped(plant)
    count = f"SELECT count(*) FROM samples WHERE time < '{NEXT}'"
    first, second = (next(plant.site.folder.glob(f"samples/*/day={day}/*")) for day in (DAY, NEXT))
    whole, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(whole[:-100])
    assert f"{first.name} has {len(whole) - 100:,} bytes, {len(whole):,} by the manifest" in await failure(plant, count)
    first.write_bytes(other + bytes(max(0, len(whole) - len(other))))
    assert first.name in await failure(plant, count)
    first.write_bytes(whole)
    assert await rows_of(plant, count) == [(680,)]
    first.unlink()
    assert "is missing" in await failure(plant, count)


async def test_manifest_of_another_plant_or_of_an_older_copy_is_an_error(plant: Maintained) -> None:
    await archived_and_dropped(plant)
    path = next(plant.site.folder.glob(f"manifests/*/{DAY}.json"))
    data = json.loads(path.read_text())
    foreign = {**data, "installation": "00000000-0000-0000-0000-000000000000", "plant": "south"}
    path.write_text(json.dumps(foreign))
    found = await failure(plant, "SELECT count(*) FROM samples")
    assert "installation: found 00000000-0000-0000-0000-000000000000, of plant south" in found
    path.write_text(json.dumps({**data, "root": "00" * 32}))
    assert "restore the archive" in await failure(plant, "SELECT count(*) FROM samples")
    path.unlink()
    assert f"{DAY} of installation" in await failure(plant, "SELECT count(*) FROM samples")


async def test_query_beyond_its_limits_says_how_to_narrow_it(plant: Maintained) -> None:
    many = "SELECT count(DISTINCT md5(i::text)) FROM range(100000000000) AS t (i)"
    assert "took longer than 0.5 s: narrow" in await failure(plant, many, limits=Limits("1GiB", 2, 0.5))
    large = "SELECT list(md5(i::text)) FROM range(10000000) AS t (i)"
    assert "needs more than 50MiB of memory: narrow" in await failure(plant, large, limits=Limits("50MiB", 2, 120))


async def test_question_whose_first_query_needs_more_memory_says_so(plant: Maintained) -> None:
    limits = Limits("8MB", 2, 60)
    object.__setattr__(limits, "memory", "8KiB")  # less than is legal: how much more takes how much is DuckDB's affair

    def begin() -> None:
        with opened(plant.site.plant.state, limits, question=find_question("timeline")) as session:
            session.table("SELECT count(DISTINCT i) FROM range(100000) AS t (i)")

    with pytest.raises(OperationError, match=r"needs more than 8KiB of memory: narrow .*, or raise --memory$"):
        await asyncio.to_thread(begin)


async def test_query_that_waits_for_the_database_is_ended_in_time(plant: Maintained) -> None:
    async with plant.owner.transaction():
        await plant.owner.execute("LOCK TABLE plant.samples_raw IN ACCESS EXCLUSIVE MODE")
        assert "took longer than 1 s" in await failure(
            plant, "SELECT count(*) FROM samples", limits=Limits("1GiB", 2, 1)
        )


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "SELECT * FROM read_csv('{folder}/plant.toml')",
        "ATTACH '{folder}/some.db'",
        "SET enable_external_access = true",
        "SET memory_limit = '100GB'",
        "INSERT INTO channel (id) VALUES (1)",
        "SELECT * FROM session",
        "SELEC 1",
    ],
)
async def test_nothing_else_is_read_or_written(plant: Maintained, tmp_path: Path, statement: str) -> None:
    before = listed(tmp_path)
    await failure(plant, statement.format(folder=tmp_path))
    assert listed(tmp_path) == before
