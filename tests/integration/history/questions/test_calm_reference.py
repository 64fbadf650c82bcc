"""``--reference calm``: the last day in which no unit departed from the day before."""

from __future__ import annotations

import numpy as np
import pytest

from core.errors import OperationError
from tests.integration.history.questions.recording import Recording, at

_DAY = 86400
_SECONDS = np.arange(0.0, 4 * _DAY, 60)
_BEGIN, _END = at(3 * _DAY), at(4 * _DAY)


async def _pump(recorded: Recording, faulty: slice) -> None:
    """A pump for four days, whose flow is lost for some of the time."""
    noise = np.random.default_rng(1).normal(0, 1, (3, len(_SECONDS)))
    flow = 30 + 3 * noise[0] + 0.1 * noise[1]
    flow[faulty] = 5
    await recorded.samples("pump/speed", _SECONDS, 50 + noise[0])
    await recorded.samples("pump/flow", _SECONDS, flow)
    await recorded.samples("pump/ambient", _SECONDS, 20 + noise[2])


async def test_calm_reference_is_the_last_day_without_a_departure(recorded: Recording) -> None:
    a_day = _DAY // 60
    await _pump(recorded, slice(2 * a_day + 600, 2 * a_day + 900))
    _, notes = await recorded.answer("what_changed", _BEGIN, _END, reference="calm")
    assert "reference: 1 d (2026-03-10 10:00:00Z to 2026-03-11 10:00:00Z)" in notes
    _, notes = await recorded.answer("what_changed", at(2 * _DAY), _BEGIN, reference="calm")
    assert "reference: 1 d before (2026-03-10 10:00:00Z to 2026-03-11 10:00:00Z)" in notes


async def test_no_calm_day_is_an_error(recorded: Recording) -> None:
    a_day = _DAY // 60
    await _pump(recorded, slice(a_day + 600, a_day + 900))
    with pytest.raises(OperationError, match="--reference calm: in each of the seven days before 2026-03-11T10"):
        await recorded.answer("what_changed", at(2 * _DAY), _BEGIN, reference="calm")
    with pytest.raises(OperationError, match="; or calm, the last day in which"):
        await recorded.answer("what_changed", _BEGIN, _END, reference="quiet")
