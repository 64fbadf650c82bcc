"""A collector's report of a source."""

from __future__ import annotations

import pytest

from ingest.status import SourceStatus


def test_rate_is_that_of_the_last_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that is polled every ten seconds, and then silent."""
    now = 1000.0
    monkeypatch.setattr("ingest.status.time.monotonic", lambda: now)
    status = SourceStatus(1, "plc", "modbus", "tcp://127.0.0.1:502", 50, began=now)
    assert status.report()["samples_per_second"] == 0
    rates = []
    for _ in range(30):
        for _ in range(5):  # batches of one poll
            status.count_samples(10)
            now += 0.01
        now += 9.95
        rates.append(status.report()["samples_per_second"])
    assert rates == pytest.approx([5.0] * 30)
    assert status.report()["samples"] == 1500
    now += 51
    assert status.report()["samples_per_second"] == 0
    assert not status.recent
    assert {"recent", "began"}.isdisjoint(status.report())
