"""gaps_and_coverage: what is missing, what was backfilled, and silences without a record."""

from __future__ import annotations

import numpy as np
import pytest

from tests.integration.forensics.recorded import BAD, Recorded, at

_SECONDS = np.arange(0.0, 1000.0)


async def test_what_lacks_and_what_does_not(recorded: Recorded) -> None:
    kept = (_SECONDS < 100) | (_SECONDS >= 300)
    for name in ("whole", "gapped", "silent", "backfilled", "failing", "empty"):
        await recorded.channel(name, interval=1.0)
    await recorded.samples("whole", _SECONDS, _SECONDS)
    await recorded.samples("gapped", _SECONDS[kept], _SECONDS[kept])
    await recorded.gap("gapped", 99, 300)
    await recorded.gap("gapped", 200, 250)  # within the other: counts once
    await recorded.gap("gapped", 2000, 2100)  # later
    await recorded.samples("silent", _SECONDS[kept], _SECONDS[kept])
    await recorded.samples("backfilled", _SECONDS, _SECONDS)
    await recorded.gap("backfilled", 400, 500, backfilled=True)
    await recorded.samples("failing", _SECONDS[:990], _SECONDS[:990])
    await recorded.samples("failing", _SECONDS[990:], _SECONDS[990:], BAD)
    await recorded.samples("on_change", [0], [1])  # reports changes: its silence is none
    rows = await recorded.ask("gaps_and_coverage($1, $2)", at(0), at(1000))
    found = {r["channel"]: r for r in rows}
    assert [r["channel"] for r in rows] == ["empty", "gapped", "silent", "backfilled", "failing"]
    assert found["gapped"]["covered_percent"] == pytest.approx(79.9)
    assert (found["gapped"]["gaps"], found["gapped"]["missing_seconds"], found["gapped"]["unrecorded"]) == (1, 201, 0)
    assert found["gapped"]["reasons"] == "disconnected"
    assert (found["silent"]["gaps"], found["silent"]["unrecorded"], found["silent"]["unrecorded_seconds"]) == (
        0,
        1,
        201,
    )
    assert (found["backfilled"]["covered_percent"], found["backfilled"]["backfilled_seconds"]) == (100, 100)
    assert (found["failing"]["samples"], found["failing"]["good"]) == (1000, 990)
    assert (found["empty"]["samples"], found["empty"]["covered_percent"]) == (0, 0)
    every = await recorded.ask("gaps_and_coverage($1, $2, complete => true)", at(0), at(1000))
    assert {r["channel"] for r in every} == {*found, "whole", "on_change"}


async def test_a_gap_of_the_source_is_one_of_each_channel(recorded: Recorded) -> None:
    await recorded.channel("a", interval=1.0)
    await recorded.channel("b", interval=1.0)
    await recorded.gap(None, -100, None)
    rows = await recorded.ask("gaps_and_coverage($1, $2)", at(0), at(1000))
    assert [(r["channel"], r["covered_percent"], r["missing_seconds"], r["unrecorded"]) for r in rows] == [
        ("a", 0, 1000, 0),
        ("b", 0, 1000, 0),
    ]
