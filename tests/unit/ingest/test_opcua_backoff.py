"""Attempts to connect: often while nobody listens, seldom where somebody does and can't."""

from __future__ import annotations

from ingest.opcua.servers import ConnectionBackoff


def waits(backoff: ConnectionBackoff, seconds: float, refused: bool) -> list[float]:
    """The wait after each attempt that fails at once."""
    found: list[float] = []
    while sum(found) < seconds:
        found.append(backoff.wait(refused))
    return found


def test_refusing_address_is_tried_every_two_seconds_for_ever() -> None:
    assert max(waits(ConnectionBackoff(0.5, 30.0), 3600.0, refused=True)) <= 2.0


def test_failing_server_is_tried_less_often() -> None:
    found = waits(ConnectionBackoff(0.5, 30.0), 300.0, refused=False)
    assert len(found) < 25
    assert found[0] <= 0.5


def test_server_restart_after_a_session_is_tried_often() -> None:
    backoff = ConnectionBackoff(0.5, 30.0)
    waits(backoff, 300.0, refused=True)
    backoff.session_ended(5.0)
    assert max(waits(backoff, 20.0, refused=True)) <= 2.0
    backoff.session_ended(5.0)
    assert max(waits(backoff, 300.0, refused=False)) > 10.0, "no storm of sessions"


def test_maximum_backoff_is_never_exceeded() -> None:
    assert max(waits(ConnectionBackoff(0.05, 0.5), 30.0, refused=True)) <= 0.5
