"""Portions of a question's channels: groups that belong together, as many as fit."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from history.questions import portions
from history.questions.request import Request
from schema.question_files import questions
from tests.sample_tables import DAY

_CHANNELS = [("a/boiler/x", "a/boiler"), ("a/boiler/y", "a/boiler"), ("a/pump/x", "a/pump"), ("b/boiler/x", "b/boiler")]


def request(channels: list[tuple[str, str]], rate: float, by: str = "unit") -> Request:
    values = {"since": DAY, "until": DAY + timedelta(seconds=portions._SAMPLES)}
    question = replace(questions()["stuck_sensors"], portions=by)
    return Request(question, values, DAY, channels, rate, None, is_archived=True)


@pytest.mark.parametrize(
    ("by", "rate", "expected"),
    [
        ("channel", 1.0, ["a/boiler/x", "a/boiler/y", "a/pump/x", "b/boiler/x"]),
        ("channel", 0.5, ["a/boiler/x a/boiler/y", "a/pump/x b/boiler/x"]),
        ("channel", 0.0, ["a/boiler/x a/boiler/y a/pump/x b/boiler/x"]),
        ("unit", 1.0, ["a/boiler/x a/boiler/y", "a/pump/x", "b/boiler/x"]),
        ("unit", 0.5, ["a/boiler/x a/boiler/y", "a/pump/x b/boiler/x"]),
        ("namesake", 1.0, ["a/boiler/x a/boiler/y b/boiler/x", "a/pump/x"]),
        ("sister", 1.0, ["a/boiler/x a/boiler/y b/boiler/x", "a/pump/x"]),
    ],
)
def test_groups_stay_together(by: str, rate: float, expected: list[str]) -> None:
    found = portions.portions(request(_CHANNELS, rate, by))
    assert [" ".join(name for group in portion for name in group) for portion in found] == expected


def test_sisters_stay_together() -> None:
    channels = [(f"{unit}/x", unit) for unit in ("park/t1", "park/t2", "park/mast", "other/t10")]
    found = list(portions.portions(request(channels, 1.0, "sister")))
    assert found == [[["park/mast/x"]], [["park/t1/x", "park/t2/x", "other/t10/x"]]]


def test_no_channel_is_one_portion() -> None:
    assert list(portions.portions(request([], 1.0))) == [[]]
