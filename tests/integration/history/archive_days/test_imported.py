"""History that is imported into days that are archived, of which one was dropped: amendments, of new channels, too."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from core.registry import Registry
from core.timestamps import begin, microseconds
from history import notebook
from tests.command import plantlog
from tests.integration.history.archive_maintenance import Key, Maintained
from tests.integration.history.sealed_plant import DAY
from tests.integration.history.sql.asking import NEXT, archived_and_dropped, both_days, samples
from tests.sample_tables import bits

_AGGREGATES = "aggregates", "--from", f"{DAY}T00:00Z", "--to", f"{NEXT}T00:00Z", "--step", "1 day"
_Samples = dict[Key, tuple[int, int]]


def _file(folder: Path, rows: list[tuple[str, datetime, float]]) -> Path:
    path = folder / "history.csv"
    path.write_text("tag,time,value\n" + "".join(f"{name},{at.isoformat()},{value!r}\n" for name, at, value in rows))
    return path


async def _imported(plant: Maintained, file: Path, code: int = 0) -> str:
    result = await plantlog(plant.site.plant.state.root, "source", "import-history", file, "--yes")
    assert result.code == code, result.err
    return result.err


@pytest.fixture
async def expected(plant: Maintained) -> _Samples:
    """Samples of two days that are archived; retention keeps neither, and has dropped the first one."""
    found = await both_days(plant)
    await archived_and_dropped(plant)
    await plant.owner.execute("UPDATE plant.retention_class SET raw = '1 day'")
    site = plant.site.plant
    Registry({"plc": site.source}, {"plc": site.ids}, last_ids=(site.source, max(site.ids.values()))).save(
        site.state.registry
    )
    return found


@pytest.mark.slow
async def test_new_channel_amends_archived_days(plant: Maintained, expected: _Samples, tmp_path: Path) -> None:
    state = plant.site.plant.state.root
    rows = [("new/level", begin(DAY, hour) + timedelta(seconds=i), i / 8) for hour in (5, 20) for i in range(700)]
    rows += [("new/level", begin(NEXT, 5) + timedelta(seconds=i), 2.5) for i in range(3)]
    pressure = plant.site.plant.ids["unit/pressure"]
    rows += [("unit/pressure", begin(DAY, 5) + timedelta(seconds=second), 40.0) for second in (0, 1)]  # 40.0, 40.01
    rows += [("unit/pressure", begin(DAY, 9), 7.0)]
    file = _file(tmp_path, rows)
    said = await _imported(plant, file)
    assert "creates 1 channel of source import: new/level" in said
    assert f"amends 2 days of the archive: {DAY}, {NEXT}" in said
    assert f"{len(rows):,} samples stored, 0 already there" in said
    assert f"0 samples stored, {len(rows):,} already there" in await _imported(plant, file)
    assert await plant.drop() == ["unarchived"]
    level = await plant.owner.fetchval("SELECT id FROM plant.channel WHERE name = 'new/level'")
    ids = {"new/level": level, "unit/pressure": pressure}
    expected = {(ids[name], microseconds(at)): (bits(value), 0) for name, at, value in rows} | expected
    assert len(expected) == 1160 + 1403 + 1

    async def is_everywhere() -> None:
        assert await samples(plant) == expected
        asked = await plantlog(state, "ask", *_AGGREGATES, "--channel", "new/level", "--json")
        assert asked.code == 0, asked.err
        [average] = json.loads(asked.out)  # two ramps to 87.375, and lines to 0 at 20:00 and to 2.5 on the next day
        assert (average["seconds"], average["value"]) == (19 * 3600, pytest.approx(48.76453, abs=1e-5))

    await is_everywhere()
    await plant.site.plant.seal()
    assert (await plant.job()).outcome == "ok"
    assert [tuple(row)[:2] for row in await plant.archived()] == [(DAY, 1), (NEXT, 1)]
    assert await plant.owner.fetchval("SELECT count(*) FROM plant.event WHERE type = 'conflict'") == 1
    await plant.owner.execute("CALL plant.refresh_rollups()")
    for day in (DAY, NEXT):
        assert set(await plant.drop(day)) == {"chunk"}
    assert await both_days(plant) == {}
    await is_everywhere()
    assert plant.in_archive() | plant.in_archive(NEXT) == expected
    table = notebook.samples(str(plant.site.folder), ["new/level"])
    assert (table.num_rows, set(table["name"].to_pylist())) == (1403, {"new/level"})
    verified = await plantlog(state, "evidence", "verify", DAY)
    assert verified.code == 0, verified.out
    assert "revision 1: new/level, hour 05: 700 samples added" in verified.out, verified.out


async def test_days_that_are_not_archived_are_refused(plant: Maintained, expected: _Samples, tmp_path: Path) -> None:
    before = DAY - timedelta(days=1)
    rows = [("new/level", begin(DAY, 5), 1.0), ("new/level", begin(before, 5), 1.0)]
    said = await _imported(plant, _file(tmp_path, rows), code=1)
    assert f"history.csv:3: time: found '{before}T05:00:00+00:00'; legal: times from 20" in said
    assert "or of archived days while days are archived: [retention] drops other samples of new/level" in said
    await plant.owner.execute("DELETE FROM plant.archived_day WHERE day = $1", NEXT)
    rows = [("new/level", begin(day, 5), 1.0) for day in (DAY, NEXT)]
    said = await _imported(plant, _file(tmp_path, rows), code=1)
    assert f"history.csv: time: found '{NEXT}'; legal: times from 20" in said
    assert await samples(plant) == expected
