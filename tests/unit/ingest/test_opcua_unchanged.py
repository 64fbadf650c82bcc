"""The first value of an item after a gap is stated again if it is older than the gap, and almost nothing else is."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.opcua.subscription.tracking import Unchanged, keep_columns

SINCE, UNTIL = 100, 200


def messages(unchanged: Unchanged, *several: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(place, time) of samples, by message: what is stated again, with the time for which it is."""
    stated: list[tuple[int, int, int]] = []
    for number, message in enumerate(several, 1):
        place = np.array([place for place, _ in message], np.uint32)
        time = np.array([time for _, time in message], np.int64)
        again, at = unchanged.find(place, time, number)
        stated += zip(place[again].tolist(), time[again].tolist(), at.tolist(), strict=True)
        unchanged.stored(place[again])
    return stated


def after_gap() -> Unchanged:
    unchanged = Unchanged(3)
    unchanged.expect(np.array([0, 1], np.intp), SINCE, UNTIL, 1)
    return unchanged


def test_message_from_before_the_request_is_not_the_current_value() -> None:
    """It was received, and waited while a lost one was requested; one after it has been stored meanwhile."""
    unchanged = Unchanged(1)
    unchanged.expect(np.array([0], np.intp), SINCE, UNTIL, 3)
    assert messages(unchanged, [(0, 50)], [(0, 60)], [(0, 70)]) == [(0, 70, 201)]


@pytest.mark.parametrize(
    ("several", "stated"),
    [
        ([[(0, 50)]], [(0, 50, 201)]),
        ([[(0, 50), (1, 100)]], [(0, 50, 201), (1, 100, 201)]),
        ([[(1, 50), (0, 60), (1, 40)]], [(0, 60, 201), (1, 50, 201)]),
        ([[(0, 50)], [(1, 60)]], [(0, 50, 201), (1, 60, 201)]),
        ([[(0, 101)]], []),  # it holds since then
        ([[(0, 101)], [(0, 50)]], []),
        ([[(0, 201)], [(0, 50)]], []),  # sampled after the gap
        ([[(2, 50)]], []),  # there was no gap
        ([[(0, 50)], [(0, 50)]], [(0, 50, 201)]),  # sent again
        ([[(0, 50)], [(0, 201)], [(0, 50)]], [(0, 50, 201)]),
        ([[(0, 50), (0, 150)]], []),
        ([[(0, 50), (0, 201)]], []),  # known by the later one
        ([[(0, 50)], [(0, 150)]], [(0, 50, 201), (0, 150, 202)]),
        ([[(0, 50)], [(0, 200)]], [(0, 50, 201), (0, 200, 202)]),
        ([[(0, 50)], [(0, 30)]], [(0, 50, 201), (0, 30, 202)]),
        ([[(0, 50)], [(0, 150)], [(0, 150)]], [(0, 50, 201), (0, 150, 202)]),
    ],
)
def test_what_is_stated_again(several: list[list[tuple[int, int]]], stated: list[tuple[int, int, int]]) -> None:
    assert messages(after_gap(), *several) == stated


@pytest.mark.parametrize("first", [50, 150])
def test_while_a_clock_is_set_back_no_further_values_are_stated(first: int) -> None:
    """All are dated before the end of the gap, and may be before its begin."""
    unchanged = after_gap()
    stated = messages(unchanged, [(0, first)], *([(0, time)] for time in range(1, 200) if time != first))
    assert stated == ([(0, 50, 201), (0, 1, 202)] if first == 50 else [])


def test_a_message_that_is_not_stored_is_stated_when_it_comes_again() -> None:
    unchanged = after_gap()
    place, time = np.array([0], np.uint32), np.array([50], np.int64)
    assert [found.tolist() for found in unchanged.find(place, time, 1)] == [[0], [201]]
    assert messages(unchanged, [(0, 50)], [(0, 50)]) == [(0, 50, 201)]


def test_an_older_value_of_the_same_message_is_not_stated() -> None:
    """A server may send a current value first, and then what waited in the item's queue."""
    unchanged = after_gap()
    place = np.array([0], np.uint32)
    stated = [unchanged.find(place, np.array([time], np.int64), 7)[1].tolist() for time in (50, 30, 50, 150)]
    assert stated == [[201], [], [201], [202]]
    assert messages(after_gap(), [(0, 50)], [(0, 30)]) == [(0, 50, 201), (0, 30, 202)], "a clock was set back"


def test_other_tags_keep_what_is_expected() -> None:
    fresh = Unchanged(2)
    keep_columns(fresh, after_gap(), np.array([1]), [0])
    assert messages(fresh, [(0, 50), (1, 50)]) == [(1, 50, 201)]


@given(st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=3), min_size=1, max_size=6))
@example([[1], [2, 3], [4, 202]])
def test_the_last_value_in_order_of_time_is_the_current_one(several: list[list[int]]) -> None:
    """Unless several values come late: times ascend, as those of a node do."""
    times = iter(sorted({time for message in several for time in message}))
    ascending = [list(islice(times, len(message))) for message in several]
    ascending = [message for message in ascending if message]
    unchanged = after_gap()
    table: dict[int, int] = {}  # time → of which value
    late = 0
    for message in ascending:
        stated = messages(unchanged, [(0, time) for time in message])
        table |= {time: time for time in message} | {at: of for _, of, at in stated}
        known = [at for at in table if at > SINCE]
        late += message[-1] <= UNTIL
        assert message[-1] > SINCE or known, "its value is known"
        assert late > 2 or not known or table[max(known)] == message[-1]
        assert len(stated) <= 1
