"""Arrival times, by clocks that are passed in."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from core.clock import ArrivalClock, ClockStep, machine_clocks
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
        """Let time pass, by the steady clock and by the wall clock (if another)."""
        self.steady += us
        self.wall += us if wall is None else wall


def test_clock_times_follow_the_wall_clock_and_are_unique() -> None:
    clocks = Clocks()
    clock = ArrivalClock(5.0, read_clocks=clocks)
    assert [clock.now(), clock.now(), clock.now(10), clock.now()] == [T0, T0 + 1, T0 + 2, T0 + 12]
    clocks.passes(SECOND)
    assert clock.detect_step() is None and clock.now() == T0 + SECOND


def test_small_clock_offset_is_slewed_in_either_direction() -> None:
    for by in (-4 * SECOND, 4 * SECOND):
        clocks = Clocks()
        clock = ArrivalClock(5.0, read_clocks=clocks)
        clocks.wall += by
        given_times = []
        for _ in range(200):
            clocks.passes(SECOND)
            assert clock.detect_step() is None
            given_times.append(clock.now())
        assert all(0.94 * SECOND <= b - a <= 1.06 * SECOND for a, b in pairwise(given_times))
        assert given_times[-1] == clocks.wall, "caught up within 100 s"


def test_clock_set_back_is_a_step_and_times_start_again() -> None:
    clocks = Clocks()
    clock = ArrivalClock(5.0, read_clocks=clocks)
    clocks.passes(10 * SECOND, wall=10 * SECOND - HOUR)
    assert clock.now() == T0 + 10 * SECOND, "a poll that is being made keeps its time"
    assert clock.detect_step() == ClockStep(T0 + 10 * SECOND, T0 + 10 * SECOND - HOUR)
    assert clock.detect_step() is None
    clocks.passes(SECOND)
    assert clock.now() == T0 + 11 * SECOND - HOUR


def test_clock_set_forward_is_a_step_and_a_long_sleep_is_not() -> None:
    clocks = Clocks()
    clock = ArrivalClock(5.0, read_clocks=clocks)
    clocks.passes(HOUR)  # the machine slept, or the process was stopped
    assert clock.detect_step() is None and clock.now() == T0 + HOUR
    clocks.wall += HOUR
    step = clock.detect_step()
    assert step == ClockStep(T0 + HOUR, T0 + 2 * HOUR) and clock.now() == T0 + 2 * HOUR
    event = step.event()
    assert (event.type, event.text, event.detail["step_seconds"]) == ("clock_set", "forward", 3600.0)


def test_process_continues_after_the_last_time_of_the_previous_one() -> None:
    clock = ArrivalClock(5.0, since=T0 + SECOND, read_clocks=Clocks())
    assert clock.detect_step() is None and clock.now() == T0 + SECOND + 1
    clock = ArrivalClock(5.0, since=T0 + HOUR, read_clocks=Clocks())
    assert clock.detect_step() == ClockStep(T0 + HOUR, T0), "the clock was set back between both"
    assert clock.now() == T0


@given(
    st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(-2 * SECOND, 2 * SECOND), st.booleans()), max_size=60),
    st.integers(0, 10 * SECOND),
)
@example(moves=[(0, 0, False), (0, 0, True)], limit=0)
def test_times_go_back_only_at_a_reported_step(moves: list[tuple[int, int, bool]], limit: int) -> None:
    clocks = Clocks()
    clock = ArrivalClock(limit / 1e6, read_clocks=clocks)
    last = clock.now()
    for lead, (us, drift, follows) in enumerate(moves, 1):  # µs: while no time passes, each time is one later
        clocks.passes(us, wall=us + drift)
        step = clock.detect_step() if follows else None
        now = clock.now()
        if step is None:
            assert last < now
        else:
            assert step.before >= last and now == step.after == clocks.wall
        if follows:
            assert abs(clocks.wall - now) <= limit + lead
        last = now


def test_both_system_clocks_are_read_together() -> None:
    (wall, boot_seconds), (later, after) = machine_clocks(), machine_clocks()
    assert after >= boot_seconds and abs((later - wall) - (after - boot_seconds)) < SECOND
