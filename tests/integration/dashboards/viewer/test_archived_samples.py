"""Charts of days that retention dropped: the samples themselves, from the archive, or minutes and the reason."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from core.timestamps import begin
from dashboards.viewer import archive
from dashboards.viewer.library import Library
from dashboards.viewer.macros import ChartRange, expand
from dashboards.viewer.reader import ReaderPool, Timeouts
from history.archive.location import Location
from tests.database import Database
from tests.integration.dashboards.viewer.browser_page import open_page, running_browser
from tests.integration.dashboards.viewer.serving import reading, served
from tests.integration.history.archive_maintenance import Maintained, maintained
from tests.integration.history.archive_site import archive_site
from tests.integration.history.sealed_plant import DAY
from tests.sample_tables import HOUR_US, Sample, bits
from tests.waiting import until

_SECOND = 1_000_000
_CHANNEL = "unit/pressure"
_MINUTES = "Minutes instead of samples: "
# Held into the first minute, several in a second, Bad, and what is after the last whole minute.
_SAMPLES: list[Sample] = [
    (9 * HOUR_US + at, bits(value), status)
    for at, value, status in (
        (10 * _SECOND, 1.5, 0),
        (40 * _SECOND + 1, 2.5, 0),
        (40 * _SECOND + 2, 0.1, 0),
        (60 * _SECOND, float("nan"), 0),
        (90 * _SECOND, 4.0, 0x80000000),
        (100 * _SECOND, -0.0, 0),
        (200 * _SECOND + 500_000, 1e300, 0),
    )
]


@pytest.fixture
async def plant(database: Database, tmp_path: Path) -> AsyncIterator[Maintained]:
    """Two archived days with minutes, of which nothing is dropped yet."""
    async with archive_site(database, tmp_path) as site:
        await site.plant.late(_CHANNEL, _SAMPLES)
        await site.plant.late(_CHANNEL, [(24 * HOUR_US + at * _SECOND, bits(6.0 + at), 0) for at in (-5, 5)])
        await site.plant.seal()
        await site.plant.owner.execute(
            "INSERT INTO plant.rollup_dirty (from_time, to_time) VALUES ($1, $2)", begin(DAY), begin(DAY, 48)
        )
        await site.plant.owner.execute("CALL plant.refresh_rollups()")
        made = await maintained(site, tmp_path)
        assert (await made.job()).outcome == "ok"
        yield made


@pytest.fixture
async def reader(plant: Maintained) -> AsyncIterator[ReaderPool]:
    async with reading(plant.site.plant.database.reader_dsn, plant.site.plant.state.root) as connections:
        yield connections


class ChartRequest:
    """Requests of the panels of a channel for an interval."""

    def __init__(self, reader: ReaderPool, since: datetime, until: datetime, interval_ms: int = 1000) -> None:
        self._reader = reader
        self._range = ChartRange(since, until, interval_ms)

    async def panels(self) -> dict[str, Any]:
        """Title → columns of all panels with charts or figures, with what is compared."""
        dashboard = Library().dashboard("plantlog-channel")
        found = {}
        for panel in dashboard.panels():
            for query in dashboard.panel(panel["id"]):
                if "chart_steps" in query.sql or "chart_values" in query.sql:
                    found[f"{panel['title']} {query.ref}"] = await self._answer(query.sql)
        return found

    async def curve(self) -> tuple[int, str]:
        """Number of values of the trend, and the notice."""
        dashboard = Library().dashboard("plantlog-channel")
        [trend] = [panel["id"] for panel in dashboard.panels() if panel["title"] == "Trend"]
        answer = await self._answer(dashboard.panel(trend)[0].sql)
        return len(answer.columns[0]), answer.notice

    async def _answer(self, sql: str) -> Any:
        variables = {"channel": [_CHANNEL], "compare": ["3600"], "installation": [""], "unit": ["unit"]}
        return await self._reader.query(*expand(sql, variables, self._range))


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
async def test_panels_of_a_dropped_day_show_what_they_showed_before(
    plant: Maintained, reader: ReaderPool, packed: bool
) -> None:
    if packed:
        await plant.site.plant.pack()
    hours = [
        ChartRequest(reader, begin(DAY, 9) + timedelta(seconds=20.5), begin(DAY, 9) + timedelta(seconds=230)),
        ChartRequest(reader, begin(DAY, 5) + timedelta(seconds=3), begin(DAY, 5) + timedelta(minutes=3), 5000),
        ChartRequest(reader, begin(DAY, 6), begin(DAY, 7) + timedelta(minutes=1), 100),
        ChartRequest(reader, begin(DAY, 24) - timedelta(minutes=4), begin(DAY, 24) + timedelta(minutes=3)),
    ]
    before = [await asked.panels() for asked in hours]
    assert all(len(answer) == 8 for answer in before), [list(answer) for answer in before]
    assert await plant.drop()
    for asked, expected in zip(hours, before, strict=True):
        assert await asked.panels() == expected


async def test_samples_that_came_after_the_day_was_dropped_are_shown(plant: Maintained, reader: ReaderPool) -> None:
    """From the database, until they are archived as well."""
    hour = ChartRequest(reader, begin(DAY, 9), begin(DAY, 9) + timedelta(minutes=4))
    await plant.drop()
    new, conflict = (25, -9.0), (10, -99.0)  # the archived sample of the same time was first
    await plant.late(_CHANNEL, [(9 * HOUR_US + at * _SECOND, bits(value), 0) for at, value in (new, conflict)])
    found = await hour.panels()
    [[lowest], _, _] = found["Statistics A"].columns
    assert lowest == -9.0
    await plant.site.plant.seal()
    assert (await plant.job()).outcome == "ok"
    assert await hour.panels() == found


async def test_minutes_and_the_reason_are_shown_where_the_archive_cannot_be_read(
    plant: Maintained, reader: ReaderPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plant.drop()
    hour = ChartRequest(reader, begin(DAY, 9), begin(DAY, 9) + timedelta(minutes=4))
    assert await hour.curve() == (240, "")

    async def reason() -> str:
        n, notice = await hour.curve()
        assert n == 4
        assert notice.startswith(_MINUTES)
        return notice.removeprefix(_MINUTES)

    with monkeypatch.context() as few:
        few.setattr(archive, "MAX_SAMPLES", 6)
        assert await reason() == "there are more than 6 samples: choose a shorter time range"

    folder = plant.site.folder
    moved = folder.rename(folder.with_name("moved"))
    assert str(folder) in await reason()
    moved.rename(folder)

    [file] = folder.glob(f"samples/*/day={DAY}/*.parquet")
    content = file.read_bytes()
    file.write_bytes(content[:-100])
    assert "by the manifest: restore the file" in await reason()
    damaged = bytearray(content)
    damaged[100] ^= 1
    file.write_bytes(damaged)
    assert "is damaged" in await reason()
    file.write_bytes(content)

    answers, read = threading.Event(), Location.read

    def read_late(self: Location, path: str) -> bytes:
        answers.wait()  # as a file of NFS whose server is away
        return read(self, path)

    here = plant.site.plant
    async with reading(here.database.reader_dsn, here.state.root, Timeouts(archive=1)) as hurried:
        hour = ChartRequest(hurried, begin(DAY, 9), begin(DAY, 9) + timedelta(minutes=4))
        with monkeypatch.context() as slow:
            slow.setattr(Location, "read", read_late)
            late = "it took longer than 1 s to read the archive: refresh, or choose a shorter time range"
            assert await reason() == late
        assert await reason() == "the archive does not answer: an earlier access still waits"
        answers.set()
        assert await until(lambda: _answered(hour)) == (240, "")


@pytest.mark.slow
async def test_page_says_why_it_shows_minutes(plant: Maintained, reader: ReaderPool, tmp_path: Path) -> None:
    await plant.drop()
    since, until = ((begin(DAY, 5) + timedelta(seconds=at)).strftime("%FT%T.000Z") for at in (-10, 130))
    # As the link in Grafana has it.
    chosen = {"installation": "$__all", "unit": "unit", "channel": _CHANNEL, "compare": "3600", "viewer": "http://x"}
    async with served(reader) as address, running_browser() as browser:
        look = await open_page(browser, address)
        trend = look.page.locator(".panel", has=look.page.get_by_role("heading", name="Trend"))
        await look.open("plantlog-channel", since, until, **chosen)
        await look.screenshot("archived-samples", tmp_path)
        assert await look.page.locator(".notice").count() == 0
        assert (await look.states())["Trend"] == "shown"
        assert "2026-03-09" in await look.page.locator("#time").inner_text()
        for file in plant.site.folder.glob(f"samples/*/day={DAY}/*.parquet"):
            file.unlink()
        await look.page.reload()
        await look.opened("plantlog-channel")
        await look.screenshot("archived-minutes", tmp_path)
        assert (await look.states())["Trend"] == "shown"
        assert "restore the file" in await trend.locator(".notice").inner_text()
        assert look.wrong == []


async def _answered(request: ChartRequest) -> tuple[int, str] | None:
    found = await request.curve()
    return found if not found[1] else None
