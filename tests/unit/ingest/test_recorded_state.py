"""States of a source that become events."""

from __future__ import annotations

from collections.abc import Callable

from ingest.status import RecordedState, SourceStatus


def clock(time: int) -> Callable[[], int]:
    return lambda: time


def test_each_reason_is_recorded_once_an_outage() -> None:
    recorded = RecordedState(SourceStatus(1, "plc", "modbus", "", 1))
    (first,) = recorded.change("disconnected", "closed", clock(1))
    assert (first.text, first.detail) == ("disconnected", {"reason": "closed"})
    (other,) = recorded.change("disconnected", "certificate ab12 is not trusted", clock(2))
    assert (other.time, other.text) == (2, "disconnected")
    assert other.detail == {"reason": "certificate ab12 is not trusted", "since": 1}
    assert recorded.change("disconnected", "closed", clock(3)) == []
    assert recorded.change("connected", "", clock(4))
    assert recorded.change("connected", "", clock(5)) == []
    assert recorded.change("disconnected", "closed", clock(6))


def test_reasons_that_differ_each_time_are_no_flood() -> None:
    recorded = RecordedState(SourceStatus(1, "plc", "modbus", "", 1))
    numbers = [recorded.change("disconnected", f"no answer for {n / 7} s from port {n}", clock(n)) for n in range(1000)]
    assert sum(map(len, numbers)) == 1
    texts = [recorded.change("disconnected", "x" * n, clock(n)) for n in range(1, 1000)]
    assert sum(map(len, texts)) < 20
