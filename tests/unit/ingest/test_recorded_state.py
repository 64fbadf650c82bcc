"""Which states of a source become events."""

from __future__ import annotations

from collections.abc import Callable

from ingest.recorded_state import RecordedState


def clock(time: int) -> Callable[[], int]:
    return lambda: time


def test_each_reason_is_recorded_once_an_outage() -> None:
    recorded = RecordedState()
    first = recorded.event("disconnected", "closed", clock(1))
    assert first is not None
    assert (first.text, first.detail) == ("disconnected", {"reason": "closed"})
    other = recorded.event("disconnected", "certificate ab12 is not trusted", clock(2))
    assert other is not None
    assert (other.time, other.text) == (2, "disconnected")
    assert other.detail == {"reason": "certificate ab12 is not trusted", "since": 1}
    assert recorded.event("disconnected", "closed", clock(3)) is None
    assert recorded.event("connected", "", clock(4)) is not None
    assert recorded.event("connected", "", clock(5)) is None
    assert recorded.event("disconnected", "closed", clock(6)) is not None


def test_reasons_that_differ_each_time_are_no_flood() -> None:
    recorded = RecordedState()
    numbers = [recorded.event("disconnected", f"no answer for {n / 7} s from port {n}", clock(n)) for n in range(1000)]
    assert sum(event is not None for event in numbers) == 1
    texts = [recorded.event("disconnected", "x" * n, clock(n)) for n in range(1, 1000)]
    assert sum(event is not None for event in texts) < 20
