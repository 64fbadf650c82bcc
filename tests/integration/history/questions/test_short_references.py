"""References that are shorter than a daily swing, or hold few cycles of a machine: the answer says so."""

from __future__ import annotations

import numpy as np
import pytest

from tests.integration.history.questions.recording import Recording, at

_HOURS = 28
_SHORT = (
    "4 channels judged though they drift all through their reference: "
    "one as long as a slow swing, such as a day, tells it from an event: unit/0, unit/1, unit/2, unit/3"
)
_FEW = (
    "2 channels judged though their reference holds fewer than 5 of their cycles: choose a longer one: press/0, press/1"
)


@pytest.mark.slow
async def test_a_reference_of_few_cycles_is_said(recorded: Recording) -> None:
    seconds = np.arange(0.0, 120.0, 0.1)
    random = np.random.default_rng(1)
    for number in range(2):
        stroke = np.minimum(seconds % 13 / 8, 1)
        await recorded.samples(f"press/{number}", seconds, 10 + stroke + random.normal(0, 0.02, len(seconds)))
    for question in ("broken_relation", "departure", "episodes", "what_changed"):
        _, notes = await recorded.answer(question, at(80), at(120))
        assert _FEW in notes.splitlines(), (question, notes)
        _, notes = await recorded.answer(question, at(80), at(120), reference="80 s")
        unlisted = "fewer than 5" if question in ("departure", "episodes") else "cycles"  # those two know cycles
        assert unlisted not in notes, (question, notes)


@pytest.mark.slow
async def test_a_reference_shorter_than_a_swing_is_said(recorded: Recording) -> None:
    seconds = np.arange(0.0, 3600 * _HOURS, 10)
    random = np.random.default_rng(1)
    day = np.sin(2 * np.pi * seconds / 86400 - 0.3)
    for number in range(4):
        await recorded.samples(f"unit/{number}", seconds, 50 + 20 * day + random.normal(0, 0.5, len(seconds)))
    hour = at(3600 * (_HOURS - 1)), at(3600 * _HOURS)
    for question in ("broken_relation", "departure", "episodes", "what_changed"):
        table, notes = await recorded.answer(question, *hour)
        if question == "broken_relation":
            assert "4 channels not judged, move with no other of their unit, nor with sisters, beyond chance" in notes
        else:
            assert _SHORT in notes.splitlines(), (question, notes)
        assert table.num_rows <= (4 if question in ("episodes", "what_changed") else 0), question
        assert table.num_rows or question != "what_changed"
        table, notes = await recorded.answer(question, *hour, reference="24 h")
        assert (table.num_rows, "drift" in notes) == (0, False), (question, notes)
