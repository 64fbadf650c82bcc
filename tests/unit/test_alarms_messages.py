"""Which messages are made of what waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.alarms.limits import PRIORITIES
from ingest.alarms.notifier.messages import Decided, Notice, decide, text_of
from ingest.config.model import NotifyOptions

NOW = datetime(2026, 3, 9, 12, tzinfo=UTC)
OPTIONS = NotifyOptions(webhook="http://h/", flood=10, flood_window=600.0)


def notice(number: int = 0, **other: object) -> Notice:
    at = NOW - timedelta(seconds=1) + timedelta(milliseconds=number)
    made = Notice(
        time=at,
        event_id=number,
        queued_at=NOW,
        kind="alarm",
        channel=f"boilerhouse/boiler{number % 3}/pressure",
        plant_unit=f"boilerhouse/boiler{number % 3}",
        unit="bar",
        limit="hi",
        priority="medium",
        value=44.5,
        threshold=44.0,
        late=False,
        state_now="unacknowledged_active",
    )
    return replace(made, **other)  # type: ignore[arg-type]


def decided(*waiting: Notice, sent: int = 0, flood: float | None = None, options: NotifyOptions = OPTIONS) -> Decided:
    flood_at = None if flood is None else NOW - timedelta(seconds=flood)
    return decide(waiting, sent, flood_at, NOW, "demo", options)


def test_one_alarm_is_one_message() -> None:
    (message,) = decided(notice()).messages
    assert message.subject == "[demo] medium: boilerhouse/boiler0/pressure above its high limit"
    assert message.body["alarm"]["time"] == "2026-03-09T11:59:59Z"
    text = text_of(message.kind, message.subject, message.body)
    assert "value     44.5 bar" in text
    assert "limit     hi (44)" in text


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ({"kind": "return"}, "returns are not sent"),
        ({"state_now": "shelved"}, "shelved"),
        ({"state_now": "out_of_service"}, "out_of_service"),
        ({"late": True, "state_now": "return_to_normal_unacknowledged"}, "late, and over"),
        ({"queued_at": NOW - timedelta(days=2)}, "too old"),
    ],
)
def test_what_nobody_is_told_of(what: dict[str, Any], why: str) -> None:
    found = decided(notice(**what))
    assert (found.messages, list(found.unsent)) == ([], [why])


def test_a_late_one_that_still_lasts_is_told_of_and_a_return_where_it_is_wanted() -> None:
    assert len(decided(notice(late=True)).messages) == 1
    (message,) = decided(notice(kind="return"), options=replace_options(returns=True)).messages
    assert message.kind == "return"


def replace_options(**other: object) -> NotifyOptions:
    return OPTIONS.model_copy(update=other)


@pytest.mark.parametrize("priority", PRIORITIES)
def test_priority(priority: str) -> None:
    found = decided(notice(priority=priority), options=replace_options(min_priority="high"))
    assert bool(found.messages) == (priority in ("critical", "high"))


def test_a_flood_is_one_message_that_names_the_first_out() -> None:
    waiting = [notice(number) for number in range(500, 0, -1)]
    (message,) = decided(*waiting).messages
    assert message.kind == "flood"
    assert message.body["alarms"] == 500
    assert message.body["first_out"]["event_id"] == "1"
    assert message.body["by_unit"] == {
        "boilerhouse/boiler2": 167,
        "boilerhouse/boiler1": 167,
        "boilerhouse/boiler0": 166,
    }
    assert message.body["by_priority"] == {"medium": 500}
    assert len(message.body["named"]) == 20
    text = text_of(message.kind, message.subject, message.body)
    assert "and 480 more" in text
    assert "boilerhouse/boiler1/pressure" in message.subject


def test_the_eleventh_within_ten_minutes_is_a_flood() -> None:
    assert decided(notice(), sent=9).messages[0].kind == "alarm"
    assert decided(notice(), sent=10).messages[0].kind == "flood"


def test_what_follows_a_flood_waits_and_is_then_one_or_several() -> None:
    some = [notice(number) for number in range(3)]
    assert decided(*some, sent=500, flood=599) == Decided()
    assert [m.kind for m in decided(*some, sent=0, flood=601).messages] == ["alarm"] * 3
    assert [m.kind for m in decided(*some, sent=500, flood=601).messages] == ["flood"]


def test_a_critical_one_waits_for_a_minute_at_most() -> None:
    critical = notice(1, priority="critical")
    assert decided(notice(), critical, sent=500, flood=59) == Decided()
    (message,) = decided(notice(), critical, sent=500, flood=61).messages
    assert message.body["by_priority"] == {"critical": 1, "medium": 1}


def test_returns_are_not_told_of_in_a_flood() -> None:
    waiting = [notice(number, kind="return" if number % 2 else "alarm") for number in range(40)]
    found = decided(*waiting, options=replace_options(returns=True))
    assert [message.body["alarms"] for message in found.messages] == [20]
    assert len(found.unsent["return, in a flood"]) == 20
    assert decided(*waiting[1::2], options=replace_options(returns=True)).messages == []


@given(st.lists(st.tuples(st.sampled_from(PRIORITIES), st.booleans(), st.booleans()), max_size=40), st.integers(0, 20))
def test_each_is_told_of_once_or_not_at_all_or_waits(made: list[tuple[str, bool, bool]], sent: int) -> None:
    waiting = [
        notice(n, priority=p, late=late, state_now="normal" if over else "unacknowledged_active")
        for n, (p, late, over) in enumerate(made)
    ]
    found = decided(*waiting, sent=sent, options=replace_options(min_priority="medium"))
    told = [one for message in found.messages for one in message.notices]
    unsent = [one for of in found.unsent.values() for one in of]
    assert sorted(one.event_id for one in told + unsent) == list(range(len(waiting)))
    alarms = sent + len(told)
    assert len(found.messages) == (len(told) if alarms <= OPTIONS.flood else bool(told))
