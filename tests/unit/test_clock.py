"""Arrival times, by clocks that are passed in."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ingest.clock import ArrivalClock, Step, machine
from tests.samples import T0

SECOND = 1_000_000
HOUR = 3600 * SECOND


class Clocks:
    """A wall clock and a steady one."""

    def __init__(self, wall: int = T0) -> None:
        self.wall, self.steady = wall, 77 * SECOND

    def __call__(self) -> tuple[int, int]:
        return self.wall, self.steady

    def passes(self, us: int, wall: int | None = None) -> None:
        """So much time passes, by the steady clock and by the wall clock (if another)."""
        self.steady += us
        self.wall += us if wall is None else wall


def test_times_are_those_of_the_wall_clock_and_no_two_are_one() -> None:
    clocks = Clocks()
    clock = ArrivalClock(5.0, look=clocks)
    assert [clock.now(), clock.now(), clock.now(10), clock.now()] == [T0, T0 + 1, T0 + 2, T0 + 12]
    clocks.passes(SECOND)
    assert clock.follow() is None and clock.now() == T0 + SECOND


def test_a_small_difference_is_made_up_smoothly_in_either_direction() -> None:
    for by in (-4 * SECOND, 4 * SECOND):
        clocks = Clocks()
        clock = ArrivalClock(5.0, look=clocks)
        clocks.wall += by
        given_times = []
        for _ in range(200):
            clocks.passes(SECOND)
            assert clock.follow() is None
            given_times.append(clock.now())
        assert all(0.94 * SECOND <= b - a <= 1.06 * SECOND for a, b in pairwise(given_times))
        assert given_times[-1] == clocks.wall, "caught up within 100 s"


def test_a_clock_that_is_set_back_is_a_step_and_times_begin_anew() -> None:
    clocks = Clocks()
    clock = ArrivalClock(5.0, look=clocks)
    clocks.passes(10 * SECOND, wall=10 * SECOND - HOUR)
    assert clock.now() == T0 + 10 * SECOND, "a poll that is being made keeps its time"
    assert clock.follow() == Step(T0 + 10 * SECOND, T0 + 10 * SECOND - HOUR)
    assert clock.follow() is None
    clocks.passes(SECOND)
    assert clock.now() == T0 + 11 * SECOND - HOUR


def test_a_clock_that_is_set_forward_is_a_step_and_a_long_sleep_is_none() -> None:
    clocks = Clocks()
    clock = ArrivalClock(5.0, look=clocks)
    clocks.passes(HOUR)  # the machine slept, or the process was stopped
    assert clock.follow() is None and clock.now() == T0 + HOUR
    clocks.wall += HOUR
    step = clock.follow()
    assert step == Step(T0 + HOUR, T0 + 2 * HOUR) and clock.now() == T0 + 2 * HOUR
    event = step.event()
    assert (event.type, event.text, event.detail["step_seconds"]) == ("clock_set", "forward", 3600.0)


def test_a_process_goes_on_behind_the_one_before() -> None:
    clock = ArrivalClock(5.0, since=T0 + SECOND, look=Clocks())
    assert clock.follow() is None and clock.now() == T0 + SECOND + 1
    clock = ArrivalClock(5.0, since=T0 + HOUR, look=Clocks())
    assert clock.follow() == Step(T0 + HOUR, T0), "the clock was set back between both"
    assert clock.now() == T0


@given(
    st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(-2 * SECOND, 2 * SECOND), st.booleans()), max_size=60),
    st.integers(0, 10 * SECOND),
)
def test_times_only_go_back_where_a_step_says_so(moves: list[tuple[int, int, bool]], limit: int) -> None:
    clocks = Clocks()
    clock = ArrivalClock(limit / 1e6, look=clocks)
    last = clock.now()
    for us, drift, follows in moves:
        clocks.passes(us, wall=us + drift)
        step = clock.follow() if follows else None
        now = clock.now()
        if step is None:
            assert last < now
        else:
            assert step.before >= last and now == step.after == clocks.wall
        if follows:
            assert abs(clocks.wall - now) <= limit + 1
        last = now


def test_the_machine_s_clocks_are_read_at_once() -> None:
    (wall, steady), (later, after) = machine(), machine()
    assert after >= steady and abs((later - wall) - (after - steady)) < SECOND
