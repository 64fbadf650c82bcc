"""Habits: rows that came at the same time on days before are left out; others are listed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.integration.history.questions.recording import Recording, at

_HOUR, _DAY = 3600, 86400
_DAYS = 5
_SECONDS = np.arange(0.0, _DAYS * _DAY, 60)
_TODAY = (_DAYS - 1) * _DAY
_ON = (_SECONDS % _DAY >= 4 * _HOUR) & (_SECONDS % _DAY < 12 * _HOUR)
_SINCE, _UNTIL = at(_TODAY + 2 * _HOUR), at(_TODAY + 8 * _HOUR)


async def _plant(recorded: Recording) -> None:
    """A fan that starts each day, and a filter that is blocked two hours later today."""
    noise = np.random.default_rng(1).normal(0, 0.3, (2, len(_SECONDS)))
    await recorded.samples("fan", _SECONDS, np.where(_ON, 50, 5) + noise[0])
    await recorded.samples("filter", _SECONDS, 20 + noise[1] + 15 * (_SECONDS >= _TODAY + 6 * _HOUR))


@pytest.mark.parametrize("question", ["first_mover", "change_points", "timeline", "episodes", "what_changed"])
async def test_start_of_each_day_is_left_out(recorded: Recording, question: str) -> None:
    await _plant(recorded)
    table, notes = await recorded.answer(question, _SINCE, _UNTIL)
    every, notes_of_every = await recorded.answer(question, _SINCE, _UNTIL, habits="true")
    left_out = every.num_rows - table.num_rows
    assert {*every["channel"].to_pylist()} == {"fan", "filter"}
    assert {*table["channel"].to_pylist()} == {"filter"}
    assert table.schema.names == every.schema.names
    came = "that came at the same time on days before (--habits true lists them): fan"
    assert f"{left_out} row{'s' if left_out > 1 else ''} left out {came}" in notes
    assert "days before" not in notes_of_every


async def test_answer_is_as_ever_where_there_is_no_day_before(recorded: Recording) -> None:
    """Also with a reference that somebody chose, and for more than a day."""
    await _plant(recorded)
    for since, until, options in (
        (at(2 * _HOUR), at(8 * _HOUR), {}),
        (_SINCE, _UNTIL, {"reference": "12h"}),
        (at(_TODAY - 6 * _HOUR), at(_TODAY + 18 * _HOUR + 60), {}),
    ):
        table, notes = await recorded.answer("change_points", since, until, **options)
        every, _ = await recorded.answer("change_points", since, until, habits="true", **options)
        assert table.equals(every)
        assert "days before" not in notes
