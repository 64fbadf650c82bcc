"""Durations and references that nobody chose, and what an answer says of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from history.questions.request import Request, first_read
from schema.question_files import questions
from tests.sample_tables import DAY

HOUR = timedelta(hours=1)


def request(name: str, length: timedelta, **values: Any) -> Request:
    """A request for an interval from DAY on."""
    question = questions()[name]
    unset = dict.fromkeys(parameter.name for parameter in question.parameters)
    of_name = {**unset, "since": DAY, "until": DAY + length, **values}
    return Request(question, of_name, first_read(question, of_name), [], 1.0, None, is_archived=False)


@pytest.mark.parametrize(
    ("question", "length", "sampling", "reference"),
    [
        ("departure", 8 * HOUR, 1.0, 8 * HOUR),
        ("episodes", timedelta(minutes=10), 1.0, timedelta(minutes=10)),
        ("episodes", timedelta(minutes=10), 180.0, 5 * HOUR),
        ("first_mover", timedelta(minutes=3), 0.1, HOUR),
        ("first_mover", timedelta(minutes=10), 180.0, 15 * HOUR),
        ("first_mover", 2 * HOUR, 1.0, 20 * HOUR),
        ("first_mover", 30 * HOUR, 1.0, 24 * HOUR),
    ],
)
def test_a_reference_lies_directly_before_the_interval(
    question: str, length: timedelta, sampling: float, reference: timedelta
) -> None:
    known = request(question, length).with_sampling(sampling)
    assert known.values["reference"] == [DAY - reference, DAY]
    assert known.first == DAY - reference
    assert any(line.startswith("reference: ") or ", reference: " in line for line in known.notes())


def test_a_chosen_reference_is_read_and_said() -> None:
    bounds = [DAY - 48 * HOUR, DAY - 40 * HOUR]
    for question in ("departure", "compare", "first_mover"):
        known = request(question, HOUR, reference=bounds).with_sampling(1.0)
        assert (known.values["reference"], known.first) == (bounds, bounds[0])
        assert f"reference: 8 h ({bounds[0]:%Y-%m-%d %H:%M:%S}Z to " in next(iter(known.notes()))


def test_the_value_before_a_reference_is_read_too() -> None:
    assert request("what_changed", HOUR, carry=HOUR).first == DAY - 2 * HOUR
    assert request("what_changed", HOUR, carry=HOUR, reference=[DAY + 8 * HOUR, DAY + 9 * HOUR]).first == DAY


def test_durations_follow_interval_and_sampling() -> None:
    """A step is a whole number of sampling intervals, so that all means have as many samples."""
    for sampling, step in ((1.0, 1.0), (0.1, 0.1), (180.0, 180.0)):
        assert request("departure", HOUR / 10, reference=[DAY - HOUR, DAY]).with_sampling(sampling).values[
            "step"
        ] == timedelta(seconds=step)
    assert request("departure", HOUR).with_sampling(1.0).values["alarm_every"] == 20 * HOUR


def test_means_of_a_short_reference_are_shorter() -> None:
    for reference, sampling, step in ((8, 1.0, 14.0), (1, 1.0, 9.0), (1, 60.0, 60.0)):
        known = request("departure", 8 * HOUR, reference=[DAY - reference * HOUR, DAY]).with_sampling(sampling)
        assert known.values["step"] == timedelta(seconds=step)


def test_periods_that_can_be_found_are_said() -> None:
    before = "reference: 1 h before (2026-03-08 23:00:00Z to 2026-03-09 00:00:00Z)"
    for options, step, shortest in (({}, "7 s", "35 s"), ({"step": timedelta(seconds=2)}, "2 s", "10 s")):
        [line] = request("oscillation", HOUR, **options).with_sampling(1.0).notes()
        assert line == f"step {step}, {before}, periods from {shortest} to 6 min"
