"""A redundant pair of appliances: whom ``up`` refuses, and what a fault of a member costs."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from core.installation import installation_of
from core.timestamps import now_us
from tests.e2e.appliance import Appliance
from tests.pair import GAPS, IDLE_GAPS, NEWEST, PUSHED, SECOND, Pair, running_pair, states
from tests.waiting import until


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Member 1 writes."""
    with running_pair(tmp_path, monkeypatch) as pair:
        yield pair


async def written_since(member: Appliance, us: int) -> bool:
    return bool((await member.fetchval(NEWEST) or 0) > us)


async def test_pair_of_appliances(pair: Pair) -> None:
    one, two = pair.members
    assert f"the pair of plant pair is installation {installation_of(one.root)}" in pair.refused(2)
    pair.copy_identity()
    other = pair.configuration(2, ("500ms", "250ms"))
    assert 'source.load-opcua.publishing_interval: "500ms" there, "250ms" here' in pair.refused(2, other)
    assert "found 1, but member 1 of this pair runs in" in pair.refused(
        2, pair.configuration(2, ("member = 2", "member = 1"))
    )
    pair.up(2)
    await pair.until_complete(2)
    complete = now_us()
    assert [(m["writes"], m["away"]) for m in two.status()["database"]["members"]] == [(True, False), (False, False)]
    assert "stands by" in two.plantlog("status", "--once")
    gaps = await one.fetchval(GAPS)
    await until(lambda: set(states(one).values()) == {"connected"}, every=0.5)
    assert states(two) == {**states(one), "load2": "standby"}
    assert await one.fetchval(IDLE_GAPS) is None
    await pair.until_stored(complete + SECOND, 2)  # so that each source was polled in the interval that is compared

    began, killed = time.monotonic(), now_us()
    pair.kill(1)
    await until(lambda: written_since(two, killed), every=0.05)
    print(f"member 2 writes {time.monotonic() - began:.2f} s after member 1 was killed")
    await until(lambda: two.status()["database"]["members"][0]["away"], every=0.5)
    assert "away" in two.plantlog("status", "--once")
    assert await two.fetchval("SELECT text FROM plant.event WHERE type = 'lease_taken'") == (
        "member 2 writes instead of member 1"
    )
    await pair.check(complete, killed + SECOND, 2)
    assert await two.fetchval(GAPS) == gaps
    assert states(two)["load2"] == "connected"
    await until(partial(two.fetchval, IDLE_GAPS), every=0.5)  # once the database knows it, too
    assert await two.fetchval(IDLE_GAPS) == ["away true"]

    shutil.rmtree(one.root)  # power-off, and the disk is gone
    pair.members = two, one
    pair.copy_identity()
    pair.members = one, two
    pair.up(1)
    again = now_us() + 2 * SECOND
    await pair.until_stored(again + 5 * SECOND, 1)
    await pair.until_complete(1)
    two.plantlog("down")
    await pair.check(complete, now_us(), 1)
    assert await one.fetchval(GAPS) == gaps

    slower = "500ms", "1s"  # another configuration: one member after the other
    for member in (1, 2):
        pair.up(member, pair.configuration(member, slower))
    assert [m["away"] for m in one.status()["database"]["members"]] == [False, False]
    assert (one.root / "secrets" / "seal.key").read_bytes() == (two.root / "secrets" / "seal.key").read_bytes()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair for several faults: each ends with both members."""
    with pytest.MonkeyPatch.context() as patch, running_pair(tmp_path_factory.mktemp("t"), patch) as pair:
        pair.copy_identity()
        pair.up(2)
        yield pair


@pytest.mark.parametrize(
    ("fault", "of"), [("freeze", "writer"), ("freeze", "standby"), ("kill", "writer"), ("kill", "standby")]
)
async def test_fault_of_a_member_costs_nothing(both: Pair, fault: str, of: str) -> None:
    """A member that is frozen for 10 s, or killed for as long: all is there once, without a gap, unless one polls."""
    one, _ = both.members
    await both.until_complete(1)
    [writer] = [number for number, row in enumerate(one.status()["database"]["members"], 1) if row["writes"]]
    member = writer if of == "writer" else 3 - writer
    survivor = both.members[2 - member]
    complete = now_us() + 2 * SECOND
    await both.until_stored(complete + 3 * SECOND, 1)
    with both.pushing() as gateway:
        await until(lambda: len(gateway.sent) > 20)
        gaps = await one.fetchval(GAPS)
        began, failed = time.monotonic(), now_us()
        if fault == "freeze":
            both.send(member, signal.SIGSTOP)
        else:
            both.kill(member)
        await until(lambda: written_since(survivor, failed), every=0.05)
        print(f"{fault} of member {member}: {time.monotonic() - began:.2f} s until new samples are in the table")
        await until(lambda: time.monotonic() > began + 10, every=0.1)
        if fault == "freeze":
            both.send(member, signal.SIGCONT)
        else:
            both.up(member)
        again = now_us()
        await both.until_stored(again + 3 * SECOND, 3 - member)
    n = len(gateway.sent)

    async def pushed() -> bool:
        return bool(await survivor.fetchval(PUSHED.format(complete)) == f"{n} {n} 0 {n - 1}")

    await until(pushed, every=0.5)
    await both.check(complete, now_us(), 3 - member)
    assert await one.fetchval(GAPS) == gaps
    assert await one.fetchval("SELECT count(*) FROM plant.event WHERE type = 'conflict'") == 0
    assert await one.fetchval("SELECT count(*) FROM plant.quarantine") == 0
