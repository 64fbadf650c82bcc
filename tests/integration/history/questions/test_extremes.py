"""Values that no plant has, but that faulty devices send, must not stop a question from being answered."""

from __future__ import annotations

import math

import numpy as np
import pytest

from schema.question_files import questions
from tests.integration.history.questions.recording import Recording, at

_SECONDS = np.arange(0.0, 1200.0)


@pytest.mark.parametrize("name", sorted(questions()))
async def test_extreme_values_break_no_question(recorded: Recording, name: str) -> None:
    random = np.random.default_rng(1)
    sign = np.where(_SECONDS % 2 == 0, 1.0, -1.0)
    await recorded.samples("a/level", _SECONDS, sign * 1.7e308)
    await recorded.samples("a/inlet_flow", _SECONDS, 10 * np.exp(-_SECONDS / 1.2))  # down to the smallest numbers
    await recorded.samples("a/outlet_flow", _SECONDS, np.full(1200, 5e-324))
    await recorded.samples("b/level", _SECONDS, random.choice([math.nan, math.inf, -math.inf, 1.0, 1e49], 1200))
    await recorded.samples("b/one", [700], [1.0])
    await recorded.samples("b/sensor", _SECONDS, random.normal(50, 1, 1200))
    for kind in ("counter", "discrete"):
        await recorded.channel(f"b/{kind}", kind, lo=None, hi=None)
        await recorded.samples(f"b/{kind}", _SECONDS, sign * random.choice([1.7e308, 0.0, 5e-324], 1200))
    options = {"target": "b/sensor"} if name == "correlation" else {}
    await recorded.ask(name, at(600), at(1200), **options)
