"""Channels that report changes only: what they held before is known, however long ago they reported it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.integration.history.questions.recording import Recording, at

_BEGIN, _CHANGED, _END = 100_000, 100_120, 100_600  # s: the value of the day before is changed
_INTERVAL = at(_BEGIN), at(_END)


@pytest.fixture
async def plant(recorded: Recording) -> Recording:
    seconds = np.arange(_BEGIN - 7200.0, _END)
    pressure = np.where(seconds < _CHANGED + 5, 40.0, 46.0) + np.random.default_rng(1).normal(0, 0.05, len(seconds))
    await recorded.samples("unit/pressure", seconds, pressure)
    await recorded.samples("unit/pressure_sp", [0.0, _CHANGED], [40.0, 46.0])
    await recorded.samples("unit/level_sp", [0.0], [50.0])
    await recorded.channel("unit/valve", "discrete")
    await recorded.samples("unit/valve", [0.0, _BEGIN - 4000], [0.0, 1.0])
    return recorded


async def test_change_of_a_set_point_is_listed_with_what_it_was(plant: Recording) -> None:
    [row] = await plant.ask("setpoint_changes", *_INTERVAL)
    assert (row["channel"], row["old"], row["new"], row["time"]) == ("unit/pressure_sp", "40", "46", at(_CHANGED))


async def test_set_point_moves_first(plant: Recording) -> None:
    first, second = await plant.ask("first_mover", *_INTERVAL)
    assert (first["channel"], first["moved_at"], first["usual"]) == ("unit/pressure_sp", at(_CHANGED), 40)
    assert first["moved_to"] == 46
    assert second["channel"] == "unit/pressure"


async def test_change_is_on_the_timeline(plant: Recording) -> None:
    rows = await plant.ask("timeline", *_INTERVAL, channels=["unit/pressure_sp"])
    assert [(row["time"], row["what"], row["detail"].strip()) for row in rows] == [
        (at(_CHANGED), "held value", "40 → 46")
    ]


async def test_change_is_a_change_of_level(plant: Recording) -> None:
    [row] = await plant.ask("change_points", *_INTERVAL, channels=["unit/pressure_sp"])
    assert (row["before"], row["after"]) == (40, 46)


async def test_means_count_what_was_held(plant: Recording) -> None:
    changed = {row["channel"]: row for row in await plant.ask("what_changed", *_INTERVAL)}
    assert changed.keys() == {"unit/pressure", "unit/pressure_sp"}
    row = changed["unit/pressure_sp"]
    assert (row["change"], row["mean_before"]) == ("higher", 40)
    assert row["mean_after"] == pytest.approx(40 + 6 * (_END - _CHANGED) / (_END - _BEGIN))


async def test_channel_that_changed_in_the_reference_has_not_fallen_silent(plant: Recording) -> None:
    rows = await plant.ask("what_changed", at(_BEGIN - 3600), at(_END), channels=["unit/valve"], reference="2 h")
    assert [row["change"] for row in rows] == ["higher"]
    assert await plant.ask("what_changed", *_INTERVAL, channels=["unit/valve"], reference="1 h") == []


async def test_change_of_a_mode_is_listed_with_what_it_was(plant: Recording) -> None:
    await plant.channel("unit/mode", "text")
    await plant.event(0, "text", "AUTO", "unit/mode")
    await plant.event(_CHANGED, "text", "MANUAL", "unit/mode")
    [row] = await plant.ask("setpoint_changes", *_INTERVAL, channels=["unit/mode"])
    assert (row["what"], row["old"], row["new"]) == ("mode", "AUTO", "MANUAL")
    assert row["held_at_least"].total_seconds() == _CHANGED - _BEGIN + 3600


async def test_set_point_that_was_changed_between_two_intervals_differs(plant: Recording) -> None:
    seconds = np.arange(180_000.0, 188_000.0)
    await plant.samples("unit/pressure", seconds, np.random.default_rng(2).normal(46, 0.05, len(seconds)))
    await plant.samples("unit/dead", seconds - 180_000, np.sin(seconds))  # not by the day
    later, earlier = (at(187_000), at(188_000)), f"{at(_BEGIN - 2000).isoformat()}..{at(_BEGIN - 1000).isoformat()}"
    changed = {row["channel"]: row for row in await plant.ask("what_changed", *later, reference=earlier)}
    assert changed.keys() == {"unit/pressure", "unit/pressure_sp"}
    row = changed["unit/pressure_sp"]
    assert (row["change"], row["mean_before"], row["mean_after"]) == ("higher", 40, 46)
    rows = {row["channel"]: row for row in await plant.ask("compare", *later, reference=earlier)}
    assert rows.keys() == {"unit/pressure", "unit/pressure_sp"}
    assert (rows["unit/pressure_sp"]["other_value"], rows["unit/pressure_sp"]["value"]) == (40, 46)


async def test_set_point_that_was_changed_before_a_later_run_differs(plant: Recording) -> None:
    seconds = np.arange(180_000.0, 188_000.0)
    await plant.samples("unit/pressure", seconds, np.random.default_rng(2).normal(46, 0.05, len(seconds)))
    earlier, later = (at(_BEGIN - 2000), at(_BEGIN - 1000)), f"{at(187_000).isoformat()}..{at(188_000).isoformat()}"
    rows = {row["channel"]: row for row in await plant.ask("compare", *earlier, reference=later)}
    assert rows.keys() == {"unit/pressure", "unit/pressure_sp"}
    assert (rows["unit/pressure_sp"]["other_value"], rows["unit/pressure_sp"]["value"]) == (46, 40)


@pytest.mark.parametrize("name", ["first_mover", "timeline", "change_points", "what_changed", "setpoint_changes"])
async def test_what_is_held_all_the_time_is_judged(plant: Recording, name: str) -> None:
    """It has not changed. Of a channel that never had a sample nothing is known."""
    await plant.channel("unit/empty_sp")
    _, notes = await plant.answer(name, *_INTERVAL)
    assert "1 channel not judged, no samples in the interval: unit/empty_sp" in notes.splitlines()


async def test_mode_that_is_held_all_the_time_is_judged(plant: Recording) -> None:
    """Modes are held as set points are."""
    for mode in ("unit/mode", "unit/empty_mode"):
        await plant.channel(mode, "text")
    await plant.event(0, "text", "AUTO", "unit/mode")
    _, notes = await plant.answer("setpoint_changes", *_INTERVAL)
    assert "1 channel not judged, no samples in the interval: unit/empty_mode" in notes.splitlines()
