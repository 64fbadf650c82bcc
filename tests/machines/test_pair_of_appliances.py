"""A redundant pair of appliances, one of which is killed. ``tests/chaos`` has more faults."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from core.timestamps import now_us
from tests.pair import GAPS, IDLE_GAPS, NEWEST, SECOND, Pair, running_pair, states
from tests.waiting import until


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Member 1 writes."""
    with running_pair(tmp_path, monkeypatch) as pair:
        yield pair


async def test_member_takes_over_from_one_that_is_killed(pair: Pair) -> None:
    one, two = pair.members
    pair.copy_identity()
    pair.up(2)
    await pair.until_complete(2)
    complete = now_us()
    assert [(m["writes"], m["away"]) for m in two.status()["database"]["members"]] == [(True, False), (False, False)]
    gaps = await one.fetchval(GAPS)
    await until(lambda: set(states(one).values()) == {"connected"}, 30, 0.5)
    assert states(two) == {**states(one), "load2": "standby"}
    assert await one.fetchval(IDLE_GAPS) is None
    await pair.until_stored(complete + SECOND, 2)  # so that each source was polled in the interval that is compared

    began, killed = time.monotonic(), now_us()
    pair.kill(1)

    async def written() -> bool:
        return bool((await two.fetchval(NEWEST) or 0) > killed)

    await until(written, 30, 0.05)
    print(f"member 2 writes {time.monotonic() - began:.2f} s after member 1 was killed")
    await until(lambda: two.status()["database"]["members"][0]["away"], 30, 0.5)
    assert "away" in two.plantlog("status", "--once")
    await pair.check(complete, killed + SECOND, 2)
    assert await two.fetchval(GAPS) == gaps
    assert states(two)["load2"] == "connected"
    await until(partial(two.fetchval, IDLE_GAPS), 30, 0.5)  # once the database knows it, too
    assert await two.fetchval(IDLE_GAPS) == ["away true"]
