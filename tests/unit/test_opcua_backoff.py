"""Attempts to connect: often while nobody listens, seldom where somebody does and can't."""

from __future__ import annotations

from ingest.opcua.backoff import ConnectionBackoff


def waits(backoff: ConnectionBackoff, seconds: float, refused: bool, start: float = 0.0) -> list[tuple[float, float]]:
    """(s since ``start``, wait) of each attempt that fails at once."""
    now, found = start, []
    while now < start + seconds:
        wait = backoff.wait(now, refused)
        found.append((now - start, wait))
        now += wait
    return found


def test_refusing_address_is_tried_each_second_for_half_a_minute() -> None:
    found = waits(ConnectionBackoff(0.5, 30.0), 300.0, refused=True)
    assert max(wait for at, wait in found if at < 29) <= 1.0
    assert max(wait for _, wait in found) > 15.0, "then it backs off"
    assert len(found) < 90


def test_failing_server_is_tried_less_often() -> None:
    found = waits(ConnectionBackoff(0.5, 30.0), 300.0, refused=False)
    assert len(found) < 25
    assert found[0][1] <= 0.5


def test_server_restart_after_a_session_is_tried_often() -> None:
    backoff = ConnectionBackoff(0.5, 30.0)
    waits(backoff, 300.0, refused=True)
    backoff.session_ended(5.0)
    assert max(wait for _, wait in waits(backoff, 20.0, refused=True, start=1000.0)) <= 1.0
    backoff.session_ended(5.0)
    assert max(wait for _, wait in waits(backoff, 300.0, refused=False, start=2000.0)) > 10.0, "no storm of sessions"


def test_maximum_backoff_is_never_exceeded() -> None:
    assert max(wait for _, wait in waits(ConnectionBackoff(0.05, 0.5), 30.0, refused=True)) <= 0.5
