"""Questions of dashboard 4 over days that retention dropped: the same answers as before, within limits."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import aiohttp
import pytest

from core.errors import OperationError
from core.paths import State
from dashboards.viewer import questions
from dashboards.viewer.library import Library
from dashboards.viewer.reader import Timeouts
from history.archive.day_files import DayFiles
from history.questions import portions
from history.questions.request import Request
from history.sql.session import Session
from history.sql.sources.execution import Limits
from tests.database import Database
from tests.integration.dashboards.viewer.serving import reading, served
from tests.integration.history.archive_maintenance import Maintained
from tests.integration.history.questions.recorded_plant import plant
from tests.integration.history.questions.recording import Recording, at
from tests.waiting import PATIENCE, until

__all__ = ["plant"]  # a fixture
_QUESTIONS = ("${question:text}", "Timeline", "Changed behaviour", "Stuck sensors", "Replayed signals", "Coverage")


@pytest.fixture
async def page(plant: tuple[Maintained, Recording], database: Database) -> AsyncIterator[str]:
    async with reading(database.reader_dsn, plant[0].site.plant.state.root) as reader, served(reader) as address:
        yield address


async def panels(page: str, *titles: str) -> dict[str, Any]:
    """Answers of the panels of dashboard 4 for an hour, by title."""
    since, until = (int(at(second).timestamp() * 1000) for second in (1200, 4800))
    found = {}
    async with aiohttp.ClientSession() as session:
        for panel in Library().dashboard("plantlog-forensics").panels():
            if not panel.get("targets") or (titles and panel["title"] not in titles):
                continue
            query = {"dashboard": "plantlog-forensics", "panel": panel["id"], "since": since, "until": until}
            variables = {"installation": [""], "unit": ["*"], "question": ["change_points"]}
            async with session.post(f"{page}/api/query", json={**query, "variables": variables}) as response:
                found[panel["title"]] = (await response.json())["error" if response.status != 200 else "A"]
    return found


@pytest.mark.slow
async def test_answers_are_the_same_once_the_day_is_only_in_the_archive(
    plant: tuple[Maintained, Recording], page: str, database: Database
) -> None:
    maintenance, _ = plant
    before = await panels(page)
    assert all(before[title]["columns"][0] for title in _QUESTIONS)
    assert (await maintenance.job()).outcome == "ok"
    assert await maintenance.drop() == ["chunk"]
    after = await panels(page)
    assert [before.pop("Samples of this time")["columns"], after.pop("Samples of this time")["columns"]] == [
        [["none dropped"]],
        [["archived"]],
    ]
    for title, expected in before.items():
        assert isinstance(after[title], dict), (title, after[title])
        assert after[title]["fields"] == expected["fields"], title
        for row, values in zip(_rows(after[title]), _rows(expected), strict=True):
            assert all(map(_same, row, values)), (title, row, values)
    [archived] = maintenance.site.folder.glob("samples/*/*/*.parquet")
    archived.write_bytes(archived.read_bytes()[:-100])
    assert "by the manifest: restore the file" in (await panels(page, "Stuck sensors"))["Stuck sensors"]
    state = maintenance.site.plant.state.root
    async with reading(database.reader_dsn, state, Timeouts(statement=0)) as reader, served(reader) as hurried:
        error = (await panels(hurried, "Stuck sensors"))["Stuck sensors"]
    busy = "the archive does not answer within 0 s"  # where it takes long to end what has begun
    assert error in (f"the query took longer than 0 s: {questions.NARROW}", busy)


def _rows(answer: Any) -> list[tuple[Any, ...]]:
    """In one order, also those of the same time."""
    rows = list(zip(*answer["columns"], strict=True))
    return sorted(rows, key=lambda row: [str(value) for value in row if not isinstance(value, float)])


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)


async def test_question_ends_when_the_browser_goes_on(
    plant: tuple[Maintained, Recording], page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question that waits for the archive is given up, and the next one is answered."""
    maintenance, _ = plant
    assert (await maintenance.job()).outcome == "ok"
    assert await maintenance.drop() == ["chunk"]
    waits, answers = threading.Event(), threading.Event()
    opened, answer_session = DayFiles.opened, portions.answer_session
    stops: list[Future[None]] = []
    outcomes: list[str] = []

    def slow(*arguments: Any) -> Any:
        waits.set()
        answers.wait()
        return opened(*arguments)

    @contextmanager
    def noted(state: State, request: Request, limits: Limits) -> Iterator[Session]:
        stops.append(limits.stop)
        try:
            with answer_session(state, request, limits) as session:
                yield session
        except OperationError as error:
            outcomes.append(str(error))
            raise

    with monkeypatch.context() as slowly:
        slowly.setattr(DayFiles, "opened", slow)
        slowly.setattr(portions, "answer_session", noted)
        asking = asyncio.create_task(panels(page, "Stuck sensors"))
        assert await asyncio.to_thread(waits.wait, PATIENCE)
        asking.cancel()
        await asyncio.wait([asking])
        await until(stops[0].done)
        answers.set()
        await until(lambda: outcomes)
    assert (await panels(page, "Stuck sensors"))["Stuck sensors"]["columns"][0]
