"""Waits double up to a limit; jitter only shortens them."""

from __future__ import annotations

from core.backoff import Backoff, exponential, jittered


def test_waits_double_up_to_the_longest_and_start_again_after_a_success() -> None:
    backoff = Backoff(0.5, 3.0, jitter=0)
    assert [backoff.next() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert [backoff.next(1.0), backoff.next(1.0), backoff.next(), backoff.next()] == [1.0, 1.0, 2.0, 3.0]
    backoff.reset()
    assert backoff.next() == 0.5


def test_any_number_of_failures_has_a_wait() -> None:
    assert [exponential(n, 5, 300) for n in (1, 2, 3, 7, 8, 10**6)] == [5, 10, 20, 300, 300, 300]


def test_jitter_shortens_a_wait_by_its_part() -> None:
    waits = [jittered(8.0) for _ in range(500)]
    assert 4.0 <= min(waits) < 4.5
    assert 7.5 < max(waits) <= 8.0
    assert min(jittered(8.0, 1) for _ in range(500)) < 0.5
