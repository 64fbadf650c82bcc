"""The Tennessee Eastman process: published recordings of a fault each, begun 8 hours after the start.

Downs and Vogel, A plant-wide industrial process control problem, 1993; a row every 3 minutes.
"""

from __future__ import annotations

import csv

import numpy as np
import pytest

from core.paths import CHECKOUT
from tests.integration.history.questions.recording import Recording, at

_DATA = CHECKOUT.parent / "shared" / "data" / "tep"
_ROW = 180.0  # s
_FAULT = 8 * 3600.0  # s

pytestmark = pytest.mark.skipif(
    not _DATA.exists(), reason="the Tennessee Eastman recordings (shared/data/tep) are not beside this checkout"
)


async def play(recorded: Recording, fault: int) -> None:
    rows = np.loadtxt(_DATA / f"d{fault:02d}_te.dat")
    with (_DATA / "columns.csv").open(newline="") as file:
        columns = list(csv.DictReader(file))
    for column, values in zip(columns, rows.T, strict=True):
        name = f"tep/{column['tag']}"
        await recorded.channel(name, unit=column["unit"], lo=None, hi=None)
        await recorded.samples(name, np.arange(len(values)) * _ROW, values)


_OPTIONS = {"step": "3 min", "reference": "8 hours"}


@pytest.mark.parametrize(
    ("fault", "mover"),
    [
        (4, "tep/XMV10"),  # reactor cooling water comes in warmer: its valve opens at once
        (6, "tep/XMEAS01"),  # A feed is lost: its flow
        (14, "tep/XMV10"),  # reactor cooling water valve sticks
    ],
)
async def test_the_first_mover_is_among_the_top_three(recorded: Recording, fault: int, mover: str) -> None:
    await play(recorded, fault)
    rows = await recorded.ask("first_mover", at(_FAULT), at(_FAULT + 4 * 3600), **_OPTIONS)
    assert mover in [row["channel"] for row in rows[:3]]
    [moved] = [row["moved_at"] for row in rows if row["channel"] == mover]
    assert at(_FAULT) <= moved <= at(_FAULT + 2 * _ROW)


async def test_without_a_fault_nothing_moves(recorded: Recording) -> None:
    await play(recorded, 0)
    assert await recorded.ask("first_mover", at(_FAULT), at(_FAULT + 4 * 3600), **_OPTIONS) == []


async def test_before_the_fault_nothing_moves(recorded: Recording) -> None:
    await play(recorded, 6)
    assert await recorded.ask("first_mover", at(5 * 3600), at(_FAULT), step="3 min", reference="4 hours") == []


@pytest.mark.parametrize("hours", [0, 12, 24, 36])
async def test_without_a_fault_there_is_no_change_point(recorded: Recording, hours: int) -> None:
    await play(recorded, 0)
    begin = hours * 3600
    assert await recorded.ask("change_points", at(begin), at(begin + 12 * 3600), step="3 min") == []


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (1, "tep/XMEAS20"),  # A/C feed ratio
        (4, "tep/XMV10"),
        (6, "tep/XMEAS01"),
        (14, "tep/XMV10"),
    ],
)
async def test_each_fault_is_a_departure_from_its_onset(recorded: Recording, fault: int, cause: str) -> None:
    await play(recorded, fault)
    rows = await recorded.ask("departure", at(_FAULT), at(_FAULT + 4 * 3600), reference=f"{_FAULT} s")
    assert len(rows) == 1, rows
    assert at(_FAULT) <= rows[0]["departed_at"] <= at(_FAULT + (5 if fault == 1 else 1) * _ROW)
    assert cause in rows[0]["channels"][:3]


@pytest.mark.slow
async def test_without_a_fault_at_most_one_of_ten_windows_has_a_departure(recorded: Recording) -> None:
    await play(recorded, 0)
    found = []
    for hours in range(8, 48, 4):
        found += await recorded.ask("departure", at(hours * 3600), at((hours + 4) * 3600), reference="8 hours")
    assert len(found) <= 1, found
