"""A wait in tests ends with its condition, and one that fails says what it waited for."""

from __future__ import annotations

import pytest

from tests.waiting import until, until_sync


async def test_result_of_the_condition_is_returned() -> None:
    found: list[int] = []

    async def more() -> list[int]:
        found.append(1)
        return found if len(found) == 3 else []

    assert await until(more, every=0) == [1, 1, 1]
    assert await until(lambda: len(found)) == 3
    assert until_sync(found.pop, every=0) == 1


async def test_failed_wait_shows_condition_and_values() -> None:
    found = ["a"]
    with pytest.raises(AssertionError) as error:
        await until(lambda: len(found) > 1, 0.01, show=lambda: "the log")
    text = str(error.value)
    assert text.startswith("after 0.01 s there is still not: ")
    assert "len(found) > 1" in text
    assert text.endswith("  found = ['a']\n  the log")
    with pytest.raises(AssertionError, match=r"len\(found\) > 2"):
        until_sync(lambda: len(found) > 2, 0.01, every=0.001)


async def test_condition_that_hangs_or_times_out_by_itself() -> None:
    async def times_out() -> bool:
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await until(times_out)
