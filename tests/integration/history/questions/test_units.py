"""Answers say the unit that a value had, not the one that its channel has now."""

from __future__ import annotations

import numpy as np

from tests.integration.history.questions.recording import Recording, at


async def test_values_from_before_a_change_keep_their_unit(recorded: Recording) -> None:
    seconds = np.arange(0.0, 3600.0)
    await recorded.channel("sp", unit="°C")
    await recorded.samples("sp", seconds, np.where(seconds < 1200, 40.0, np.where(seconds < 2400, 46.0, 319.0)))
    await recorded.new_unit("sp", "K", 2000)
    changes = await recorded.ask("setpoint_changes", at(600), at(3600))
    assert [(row["new"], row["unit"]) for row in changes] == [("46", "°C"), ("319", "K")]
    lines = await recorded.ask("timeline", at(600), at(3600))
    assert [row["detail"] for row in lines if row["what"] == "held value"] == ["40 → 46 °C", "46 → 319 K"]
    [moved] = await recorded.ask("what_changed", at(2400), at(3600))
    assert moved["unit"] == "°C → K"
    [moved] = await recorded.ask("what_changed", at(1200), at(1900))
    assert moved["unit"] == "°C"
