"""departure: when a unit left its usual operation, also where each channel is within its usual band."""

from __future__ import annotations

import numpy as np
import pytest

from tests.integration.history.questions.recording import BAD, Recording, at

_SECONDS = np.arange(0.0, 1200.0)
_FAULT = 900  # s


def noise(seed: int, size: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, size, len(_SECONDS))


async def unit(recorded: Recording, name: str, flow_loss: float) -> None:
    """A pump whose pressure and flow follow its speed; then some of the flow is lost."""
    speed, late = noise(1), _SECONDS >= _FAULT
    await recorded.samples(f"{name}/speed", _SECONDS, 50 + speed)
    await recorded.samples(f"{name}/pressure", _SECONDS, 40 + 2 * speed + noise(2, 0.1))
    await recorded.samples(f"{name}/flow", _SECONDS, 30 + 3 * speed + noise(3, 0.1) - flow_loss * late)
    await recorded.samples(f"{name}/ambient", _SECONDS, 20 + noise(4))


async def test_a_unit_departs_while_its_channels_stay_within_their_bands(recorded: Recording) -> None:
    await unit(recorded, "area/pump1", flow_loss=2.0)  # the flow is within 3 spreads
    await unit(recorded, "area/pump2", flow_loss=0.0)
    await recorded.samples("area/pump1/held", [0.0], [7.0])
    [row] = await recorded.ask("departure", at(600), at(1200))
    assert row["unit"] == "area/pump1"
    assert at(_FAULT) <= row["departed_at"] <= at(_FAULT + 3)
    assert row["returned_at"] is None
    assert row["statistic"] == "SPE"
    assert row["score"] > 2
    assert row["channels"][0] == "area/pump1/flow"
    assert row["shares"] == sorted(row["shares"], reverse=True)
    assert (row["judged_channels"], row["left_out_channels"]) == (4, 1)


async def test_a_reference_of_another_time_and_rare_alarms(recorded: Recording) -> None:
    await unit(recorded, "pump1", flow_loss=2.0)
    earlier = {"reference": f"{at(0).isoformat()}..{at(300).isoformat()}"}
    rows = await recorded.ask("departure", at(1000), at(1200), **earlier)
    assert [(row["departed_at"] <= at(1003), row["returned_at"]) for row in rows] == [(True, None)]
    assert await recorded.ask("departure", at(600), at(900), **earlier, alarm_every="30 days") == []


async def test_what_cannot_be_judged_is_said(recorded: Recording) -> None:
    await recorded.samples("short/pressure", _SECONDS[570:], 40 + noise(2)[570:])
    await recorded.samples("silent/pressure", _SECONDS[600:], 40 + noise(2)[600:])
    await recorded.samples("bad/pressure", _SECONDS, 40 + noise(2), BAD)
    await recorded.samples("nan/pressure", _SECONDS, np.full(1200, np.nan))
    await recorded.samples("constant/pressure", _SECONDS, np.where(_SECONDS < 900, 40.0, 80.0))
    table, notes = await recorded.answer("departure", at(600), at(1200), step="1 s")
    assert table.num_rows == 0
    assert notes.splitlines() == [
        "no rows: nothing could be judged",
        "reference: 10 min before (2026-03-09 10:00:00Z to 2026-03-09 10:10:00Z), step 1 s, "
        "one false alarm of a unit in 3 h 20 min",
        "0 channels judged",
        "1 channel not judged, constant in the reference: constant/pressure",
        "4 channels not judged, too few samples in the reference: "
        "bad/pressure, nan/pressure, short/pressure, silent/pressure",
    ]


@pytest.mark.parametrize("channels", [["pump1/flow"], ["pump1/flow", "pump1/speed"]])
async def test_one_and_two_channels_are_enough(recorded: Recording, channels: list[str]) -> None:
    await unit(recorded, "pump1", flow_loss=40.0)
    [row] = await recorded.ask("departure", at(600), at(1200), channels=channels)
    assert (row["departed_at"], row["channels"][0]) == (at(_FAULT), "pump1/flow")


async def test_a_gap_is_no_departure(recorded: Recording) -> None:
    there = (_SECONDS < 800) | (_SECONDS >= 1000)
    for name, seed in (("pump/a", 1), ("pump/b", 2), ("pump/c", 3)):
        await recorded.samples(name, _SECONDS[there], 50 + noise(seed)[there])
        await recorded.gap(name, 799.5, 1000)
    assert await recorded.ask("departure", at(600), at(1200), step="2 s") == []


@pytest.mark.parametrize(
    ("begin", "line"),
    [
        (0, ", and was left out (unlike: 2026-03-09T10:00:00Z to 2026-03-09T10:02:00Z)"),
        (
            480,
            ": choose another one, such as --reference 2026-03-09T10:00:00Z..2026-03-09T10:08:00Z "
            "(unlike: 2026-03-09T10:08:00Z to 2026-03-09T10:10:00Z)",
        ),
    ],
)
async def test_an_unlike_part_of_the_reference_is_said(recorded: Recording, begin: float, line: str) -> None:
    await unit(recorded, "pump", flow_loss=0.0)
    odd = np.where((begin <= _SECONDS) & (begin + 120 > _SECONDS), 30.0, 0.0)
    await recorded.samples("pump/heat", _SECONDS, 50 + noise(9) + odd)
    table, notes = await recorded.answer("departure", at(600), at(1200))
    assert table.num_rows == 0
    names = "pump/ambient, pump/flow, pump/heat, pump/pressure, pump/speed"
    said = f"5 channels judged though a part of their reference is unlike the rest{line}: {names}"
    assert said in notes.splitlines(), notes
