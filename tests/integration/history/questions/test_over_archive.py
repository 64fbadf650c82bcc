"""Questions about days that retention dropped: the answers are those from before, or an error."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from core.errors import OperationError
from core.installation import ALL
from history.questions import portions
from history.questions.ask import TimeRange, answer
from history.questions.request import Request
from history.sql.session import Session
from history.sql.sources.execution import Limits
from schema.queries import load
from schema.question_files import questions
from tests.command import run as plantlog
from tests.database import Database
from tests.integration.history.evidence.archive_maintenance import Maintained, maintained
from tests.integration.history.evidence.archive_site import Site
from tests.integration.history.evidence.plant import SealedPlant
from tests.integration.history.questions.answers import LIMITS, assert_same
from tests.integration.history.questions.recording import BAD, Recording, at

_RANGE = TimeRange(at(3600).isoformat(), at(4800).isoformat())
_QUESTIONS: dict[str, dict[str, str]] = {  # with the parameters that each is asked with
    "aggregates": {
        "aggregate": "time_average,total,duration_in_state,count_transitions,increase,rate,percentile",
        "step": "7 min",
    },
    "change_points": {"step": "10 s"},
    "correlation": {"target": "boiler/sp"},
    "excursions": {},
    "first_mover": {},
    "gaps_and_coverage": {},
    "implausible": {},
    "interpolated": {"step": "130 s"},
    "replayed_signals": {},
    "setpoint_changes": {},
    "stuck_sensors": {},
    "timeline": {},
    "what_changed": {},
}


@pytest.fixture
async def plant(database: Database, tmp_path: Path) -> AsyncIterator[tuple[Maintained, Recording]]:
    """What each question finds something of."""
    folder = tmp_path / "archive"
    folder.mkdir()
    async with (
        SealedPlant(database, tmp_path / "state", "north") as sealed,
        Recording(database, tmp_path / "r") as made,
    ):
        await record(made)
        await sealed.seal()
        yield await maintained(Site(sealed, folder), tmp_path), made


async def record(made: Recording) -> None:
    """An hour and twenty minutes of a plant in which something happens at 4200 s."""
    seconds = np.arange(0.0, 4800.0)
    late = seconds >= 4200
    random = np.random.default_rng(1)

    def noise(middle: float = 50.0) -> np.ndarray:
        return random.normal(middle, 0.5, len(seconds))

    await made.channel("boiler/stuck", unit="bar", interval=1.0, configured=-100)
    await made.samples("boiler/stuck", seconds, np.where(late, 51.5, noise()))
    await made.samples("boiler/silent", seconds[~late], noise()[~late])
    await made.samples("boiler/moving", seconds, noise())
    await made.samples("boiler/spiking", seconds, np.where(late & (seconds % 30 == 0), 95.0, noise()))
    await made.samples("boiler/drifting", seconds, noise() + 0.05 * np.maximum(0, seconds - 4200))
    recording = noise()
    recording[4300:4500] = recording[1000:1200]
    await made.samples("pump/replayed", seconds, recording)
    await made.samples("boiler/frozen", seconds[~late], noise()[~late])
    await made.standing("boiler/frozen", 4199, [(4201, 1), (4202, 2), (4204, 4)], kept=51.5)
    await made.samples("boiler/missing", seconds[~late], noise()[~late])
    await made.gap("boiler/missing", 4199, None)
    # Values that end at a gap: of several in an hour, of another hour than the value, and of a counter.
    await made.samples("boiler/gapped", seconds[::60], np.where(late, 80.0, noise())[::60])
    for begin in (2500, 2505, 2580, 3700, 4300, 4310, 4790):
        await made.gap("boiler/gapped", begin, begin + 20)
    await made.samples("boiler/slow", [100.0, 3650.0, 4000.0, 4700.0], [1.0, 2.0, 3.0, 9.0])
    for begin in (3300, 3660, 4100, 4400):
        await made.gap("boiler/slow", begin, begin + 1)
    await made.channel("boiler/energy", kind="counter")
    await made.samples("boiler/energy", seconds[::30], np.cumsum(np.where(late, 7.0, 1.0))[::30])
    for begin in (2705, 2715, 4215):
        await made.gap("boiler/energy", begin, begin + 10)
    await made.channel("boiler/sp", unit="°C")
    await made.samples("boiler/sp", seconds, np.where(late, 46.0, 40.0))
    await made.new_unit("boiler/sp", "K", 4500)
    await made.quarantined("boiler/silent", [4300, 4310])
    for name, offset in (("a/boiler1/oxygen", 2.0), ("b/boiler1/oxygen", 0.0)):
        await made.samples(name, seconds[::5], (noise() + late * offset)[::5])
    await made.channel("boiler/mode", kind="text")
    for second, text in ((3500, "off"), (4200, "on"), (4600, "auto")):
        await made.event(second, "text", text, "boiler/mode")
    await made.event(4300, "rounded", "", "boiler/sp")
    for _ in range(2):
        await made.event(4250, "source_state", "disconnected", detail='{"reason": "test", "at": 1773050400000000}')
    await made.samples("boiler/moving", [4800.0, 4801.0], [1.0, 2.0], BAD)


async def rows_of(
    plant: tuple[Maintained, Recording], name: str, limits: Limits = LIMITS, **others: str
) -> list[dict[str, Any]]:
    """An answer of ``plantlog ask``. ``others``: options that are not those of every test."""
    state, options = plant[0].site.plant.state, {**_QUESTIONS.get(name, {}), **others}
    table, _ = await asyncio.to_thread(answer, state, questions()[name], _RANGE, [], options, ALL, limits)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


async def explain_empty(plant: tuple[Maintained, Recording]) -> str:
    """What ``plantlog ask`` says where nothing is far enough from what was usual."""
    state, options = plant[0].site.plant.state, {"sigmas": "1e9"}
    table, why = await asyncio.to_thread(answer, state, questions()["excursions"], _RANGE, [], options, ALL, LIMITS)
    assert table.num_rows == 0
    return why


@pytest.mark.slow
async def test_answers_are_the_same_once_the_day_is_only_in_the_archive(
    plant: tuple[Maintained, Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several portions of channels are read for each."""
    monkeypatch.setattr("history.questions.portions._SAMPLES", 1000)
    maintenance, recorded = plant
    assert set(_QUESTIONS) == set(questions())
    expected = {name: await rows_of(plant, name) for name in _QUESTIONS}
    assert all(expected.values())
    why = await explain_empty(plant)
    assert "2 channels not judged, not analog: boiler/energy, boiler/mode" in why
    assert (await maintenance.job()).outcome == "ok"
    assert await maintenance.drop() == ["chunk"]
    assert await maintenance.stored() == {}
    for name, rows in expected.items():
        assert_same(await rows_of(plant, name), rows)
    assert_same(await divided(plant, monkeypatch), expected["gaps_and_coverage"])
    assert await explain_empty(plant) == why
    assert await rows_of(plant, "correlation", target="boiler/mode") == [], "a text has no correlation"
    with pytest.raises(OperationError, match="step: found 0 µs; legal: more than 0"):
        await rows_of(plant, "first_mover", step="0 s")
    command = ("ask", "stuck_sensors")
    await recorded.samples("boiler/moving", [90000], [1.0])  # of the next day, which is not archived
    words = ("--from", _RANGE.since, "--to", at(90010).isoformat(), "-c", "boiler/*", "--json")
    done = await asyncio.to_thread(plantlog, maintenance.site.plant.state.root, *command, *words)
    assert "boiler/stuck" in [row["channel"] for row in json.loads(done.out)], done.err
    # An interval with both: samples of the archive at 4000 and 4700 s, and one of the database.
    await recorded.samples("boiler/slow", [88_000.0], [11.0])
    both, options = (
        TimeRange(at(4000).isoformat(), at(90_010).isoformat()),
        {"aggregate": "minimum,maximum,count_transitions"},
    )
    question, state = questions()["aggregates"], maintenance.site.plant.state
    table, _ = await asyncio.to_thread(answer, state, question, both, ["boiler/slow"], options, ALL, LIMITS)
    assert table["aggregate"].to_pylist() == ["count_transitions", "maximum", "minimum"]
    assert table["value"].to_pylist() == [3.0, 11.0, 3.0]


async def divided(plant: tuple[Maintained, Recording], monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """An answer for which all channels together need too much memory, but half of them or fewer do not."""
    sizes: list[int] = []

    def counted(session: Session, request: Request, groups: Sequence[Sequence[str]], *rest: Any) -> None:
        sizes.append(len(groups))
        add(session, request, groups, *rest)

    add = portions._add
    monkeypatch.setattr(portions, "_SAMPLES", 10**9)
    monkeypatch.setattr(portions, "_add", counted)
    for megabytes in range(30, 8, -2):  # how much it takes is DuckDB's affair
        sizes.clear()
        with suppress(OperationError):
            rows = await rows_of(plant, "gaps_and_coverage", replace(LIMITS, memory=f"{megabytes}MiB"))
            if len(sizes) > 1:
                assert sizes[0] > max(sizes[1:])
                return rows
    pytest.fail("no limit divides it")


async def test_samples_that_are_nowhere_are_an_error(plant: tuple[Maintained, Recording]) -> None:
    maintenance, recorded = plant
    await maintenance.owner.execute("UPDATE plant.installation SET archive_from = NULL, archive_location = NULL")
    await recorded.channel("boiler/new")
    assert await maintenance.drop() == ["chunk"]
    for name in questions():
        if name != "correlation":
            with pytest.raises(OperationError, match=f"{name}: retention dropped samples of 2026-03-09, which are not"):
                await rows_of(plant, name)
    # A channel that had none, and a time of which nothing was dropped.
    state, question = maintenance.site.plant.state, questions()["stuck_sensors"]
    later = TimeRange(at(900_000).isoformat(), at(901_000).isoformat())
    for interval, channels in ((_RANGE, ["boiler/new"]), (later, [])):
        table, _ = await asyncio.to_thread(answer, state, question, interval, channels, {}, ALL, LIMITS)
        assert table.num_rows == 0


def test_duckdb_writes_numbers_as_postgresql_does() -> None:
    numbers = [0.0, 40.0, -12.5, 1e14, 1e15, -1.5e15, 1234567890123456.0, 9999999999999998.0, 1e16, 1e-4, 1e-5, 1.5e300]
    expected = (
        "0 40 -12.5 100000000000000 1e+15 -1.5e+15 1.234567890123456e+15 9.999999999999998e+15 1e+16 0.0001 1e-05"
    )
    with duckdb.connect() as connection:
        connection.execute(load("duckdb")["texts"])
        found = [connection.execute("SELECT number_text(?::DOUBLE)", [one]).fetchone() for one in numbers]
    assert " ".join(one[0] for one in found if one) == f"{expected} 1.5e+300"
