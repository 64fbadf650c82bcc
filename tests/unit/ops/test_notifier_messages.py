"""Messages made of the notices that wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.model import NotifyOptions
from core.config.sources import PRIORITIES
from ops.notifier.messages import Decision, Notice, decide, text_of

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


def decision(*waiting: Notice, sent: int = 0, flood: float | None = None, options: NotifyOptions = OPTIONS) -> Decision:
    flood_at = None if flood is None else NOW - timedelta(seconds=flood)
    return decide(waiting, sent, flood_at, NOW, "demo", options)


def test_one_alarm_is_one_message() -> None:
    (message,) = decision(notice()).messages
    assert message.subject == "[demo] medium: boilerhouse/boiler0/pressure above its high limit"
    assert message.body["alarm"]["time"] == "2026-03-09T11:59:59Z"
    text = text_of(message.kind, message.subject, message.body)
    assert "value     44.5 bar" in text
    assert "limit     hi (44 bar)" in text


@pytest.mark.parametrize(("limit", "shown"), [("stale", "stale (44 s)"), ("rate", "rate (44 bar/s)"), ("bad", "bad")])
def test_threshold_has_its_own_unit(limit: str, shown: str) -> None:
    (message,) = decision(notice(limit=limit)).messages
    lines = text_of(message.kind, message.subject, message.body).splitlines()
    assert f"  limit     {shown}" in lines


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ({"kind": "return"}, "returns are not sent"),
        ({"state_now": "shelved"}, "shelved"),
        ({"state_now": "out_of_service"}, "out_of_service"),
        ({"late": True, "state_now": "return_to_normal_unacknowledged"}, "late, and already over"),
        ({"queued_at": NOW - timedelta(days=2)}, "too old"),
    ],
)
def test_events_that_are_not_notified(what: dict[str, Any], why: str) -> None:
    found = decision(notice(**what))
    assert (found.messages, list(found.unsent)) == ([], [why])


def test_late_active_alarm_is_notified_and_its_return_if_configured() -> None:
    assert len(decision(notice(late=True)).messages) == 1
    (message,) = decision(notice(kind="return"), options=replace_options(returns=True)).messages
    assert message.kind == "return"


def replace_options(**other: object) -> NotifyOptions:
    return OPTIONS.model_copy(update=other)


@pytest.mark.parametrize("priority", PRIORITIES)
def test_notification_follows_the_minimum_priority(priority: str) -> None:
    found = decision(notice(priority=priority), options=replace_options(min_priority="high"))
    assert bool(found.messages) == (priority in ("critical", "high"))


def test_alarm_flood_is_one_message_that_names_the_first_out() -> None:
    waiting = [notice(number) for number in range(500, 0, -1)]
    (message,) = decision(*waiting).messages
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


def test_eleventh_alarm_within_ten_minutes_is_a_flood() -> None:
    assert decision(notice(), sent=9).messages[0].kind == "alarm"
    assert decision(notice(), sent=10).messages[0].kind == "flood"


def test_alarms_after_a_flood_are_held_back_then_sent() -> None:
    some = [notice(number) for number in range(3)]
    assert decision(*some, sent=500, flood=599) == Decision()
    assert [m.kind for m in decision(*some, sent=0, flood=601).messages] == ["alarm"] * 3
    assert [m.kind for m in decision(*some, sent=500, flood=601).messages] == ["flood"]


def test_critical_alarm_is_held_for_a_minute_at_most() -> None:
    critical = notice(1, priority="critical")
    assert decision(notice(), critical, sent=500, flood=59) == Decision()
    (message,) = decision(notice(), critical, sent=500, flood=61).messages
    assert message.body["by_priority"] == {"critical": 1, "medium": 1}


def test_returns_to_normal_are_not_notified_in_a_flood() -> None:
    waiting = [notice(number, kind="return" if number % 2 else "alarm") for number in range(40)]
    found = decision(*waiting, options=replace_options(returns=True))
    assert [message.body["alarms"] for message in found.messages] == [20]
    assert len(found.unsent["return, in a flood"]) == 20
    assert decision(*waiting[1::2], options=replace_options(returns=True)).messages == []


def test_alarm_that_chatters_is_one_message_with_its_number() -> None:
    some = [notice(number, alarm="7 hi", chatters=True, channel="a/b") for number in range(29)]
    (message,) = decision(*some).messages
    assert (message.kind, message.subject) == ("alarm", "[demo] medium: a/b above its high limit × 29")
    assert message.notices == tuple(some)
    assert message.body["alarm"] | {"times": 29, "first": "2026-03-09T11:59:59Z"} == message.body["alarm"]
    text = text_of(message.kind, message.subject, message.body)
    assert "raised    29 times since 2026-03-09T11:59:59Z" in text
    assert "now       unacknowledged active" in text


def test_alarm_that_chatters_is_held_after_a_message_and_others_get_through() -> None:
    def chattering(priority: str, since: float) -> list[Notice]:
        at = NOW - timedelta(seconds=since)
        return [notice(n, alarm="7 hi", chatters=True, notified_at=at, priority=priority) for n in range(29)]

    others = [notice(number, alarm=f"{number} hi") for number in range(40, 45)]
    assert [m.notices for m in decision(*chattering("medium", 599), *others).messages] == [(other,) for other in others]
    assert len(decision(*chattering("medium", 601), *others).messages) == 6
    assert decision(*chattering("critical", 59)).messages == []
    assert len(decision(*chattering("critical", 61)).messages) == 1


def test_alarm_that_chatters_counts_once_in_a_flood() -> None:
    some = [notice(number, alarm="7 hi", chatters=True, channel="a/b") for number in range(29)]
    others = [notice(number, alarm=f"{number} hi") for number in range(40, 50)]
    (flood,) = decision(*some, *others).messages
    assert (flood.kind, flood.body["alarms"], len(flood.notices)) == ("flood", 11, 39)
    assert flood.body["named"][0]["times"] == 29
    assert "a/b  hi × 29" in text_of(flood.kind, flood.subject, flood.body)
    returned = decision(notice(kind="return", chatters=True), options=replace_options(returns=True))
    assert list(returned.unsent) == ["return, chattering"]


def test_alarms_from_before_notifications_were_enabled_are_not_sent() -> None:
    assert list(decision(notice(disabled=True)).unsent) == ["notifications were disabled"]


@given(st.lists(st.tuples(st.sampled_from(PRIORITIES), st.booleans(), st.booleans()), max_size=40), st.integers(0, 20))
def test_each_alarm_is_notified_at_most_once_or_is_pending(made: list[tuple[str, bool, bool]], sent: int) -> None:
    waiting = [
        notice(n, priority=p, late=late, state_now="normal" if over else "unacknowledged_active")
        for n, (p, late, over) in enumerate(made)
    ]
    found = decision(*waiting, sent=sent, options=replace_options(min_priority="medium"))
    notices = [queued for message in found.messages for queued in message.notices]
    unsent = [queued for of in found.unsent.values() for queued in of]
    assert sorted(queued.event_id for queued in notices + unsent) == list(range(len(waiting)))
    alarms = sent + len(notices)
    assert len(found.messages) == (len(notices) if alarms <= OPTIONS.flood else bool(notices))
