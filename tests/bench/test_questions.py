"""The benchmark of questions over generated days: each one finds something, and a kept archive is asked again."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import pytest

from core.errors import OperationError
from history.archive.location import Location
from history.archive.manifest import DayFolder, read_manifest
from lab.bench import generated_plant
from lab.bench.generated_archive import ArchivePlan, place_of, state_of
from lab.bench.question_costs import NAMES, measure, spans
from ops.registration.installation import installation_id
from schema.question_files import questions

_PLAN = ArchivePlan(channels=20, few=12, days=2, first_hour=14, until_hour=16)
_SECONDS = 2 * 3600


@pytest.mark.timeout(900)
def test_every_question_finds_something_in_generated_days_that_are_kept(tmp_path: Path) -> None:
    lines: list[str] = []
    plan, costs = measure(tmp_path, _PLAN, ["hour"], NAMES, lines.append)
    assert plan == _PLAN
    assert [(cost.span, cost.question, cost.error) for cost in costs] == [("hour", name, "") for name in NAMES]
    assert [cost.question for cost in costs if not cost.rows] == []
    assert all(cost.samples == 20 * 3600 and cost.cpu_seconds > 0 and cost.peak_mib > 50 for cost in costs)
    assert len([line for line in lines if "sealed" in line]) == 2
    folder = DayFolder(installation_id(state_of(tmp_path)), _PLAN.last)
    manifest = read_manifest(Location.at(str(place_of(tmp_path))), folder)
    assert manifest.samples == sum(len(generated_plant.samples(n, _PLAN.last, _PLAN.hours)) for n in range(1, 21))
    assert manifest.samples == 20 * (_SECONDS - 60) - 60

    found, again = measure(tmp_path, ArchivePlan(1000, 20, 1), ["day", "month"], ["setpoint_changes"], lines.append)
    assert found == _PLAN
    assert [(one.span, one.samples, one.error) for one in again] == [
        ("day", 20 * _SECONDS, ""),
        ("month", 12 * (86_400 + _SECONDS), ""),
    ]
    assert len([line for line in lines if "sealed" in line]) == 2


def test_folder_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    with pytest.raises(OperationError, match="neither empty nor a finished archive"):
        measure(tmp_path, _PLAN, [], [], lambda line: None)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_generated_days_are_the_same_each_time_and_differ_from_each_other() -> None:
    def values(number: int, day: int) -> bytes:
        return generated_plant.samples(number, date(2026, 9, day), range(24)).value.tobytes()

    assert values(120, 1) == values(120, 1)
    assert len({values(120, 1), values(120, 2), values(121, 1)}) == 3


def test_transmitters_have_two_decimals_and_twins_stay_together() -> None:
    day, hours = date(2026, 9, 1), range(24)
    twin, transmitter = (generated_plant.samples(100 + n, day, hours).value for n in (8, 11))
    assert np.array_equal(np.rint(transmitter * 100) / 100, transmitter)
    assert np.abs(twin - transmitter).max() < 0.1
    assert generated_plant.channel(108).name.split("/")[1:] == generated_plant.channel(111).name.split("/")[1:]


def test_spans_leave_the_hour_before_to_questions_that_learn_from_it() -> None:
    day, hour = (spans(ArchivePlan(20, 20, 30))[name] for name in ("day", "hour"))
    begins = {name: (day.since(questions()[name]).hour, hour.since(questions()[name]).hour) for name in NAMES}
    learns_nothing = ("aggregates", "correlation", "gaps_and_coverage", "interpolated")
    assert begins == {
        **dict.fromkeys(NAMES, (12, 15)),  # the reference is as long as the interval
        **dict.fromkeys(("implausible", "replayed_signals", "setpoint_changes"), (1, 15)),
        **dict.fromkeys(learns_nothing, (0, 15)),
    }
