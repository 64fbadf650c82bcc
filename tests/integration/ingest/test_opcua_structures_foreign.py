"""Members of structures of servers that are not ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from asyncua import ua

from core.config.sources import ChannelKind, OpcuaTag
from ops.certificates import trust
from tests.integration.ingest.test_opcua_collector import SERVERS, collecting
from tests.integration.ingest.test_opcua_structures import ABSENT, NO_ELEMENT, values
from tests.integration.ops.test_opcua_discover import discovered
from tests.memory_appender import MemoryAppender
from tests.peers import KINDS, Peer, peer
from tests.waiting import until

FOREIGN: list[tuple[str, ChannelKind, str | None]] = [
    ("Motor.Speed", "analog", None),
    ("On", "discrete", None),
    ("Mode", "discrete", None),
    ("Motor.Name", "text", None),
    ("Torque", "analog", None),
    ("Temperatures", "analog", "3"),
    ("Temperatures", "analog", "4"),
    ("Extra.Number", "analog", None),
    ("Extra.Text", "text", None),
]


def of_round(n: int) -> list[Any]:
    """Values of FOREIGN in a round, or the status code that says why there are none."""
    odd = n % 2 == 1
    none = ua.StatusCode(ABSENT)
    extra = [none, f"step {n}"] if odd else [n, none]
    return [n, n % 2, n % 3, f"step {n}", n + 0.5 if odd else none, n + 0.75, ua.StatusCode(NO_ELEMENT), *extra]


def rounds(spool: Sequence[MemoryAppender], tags: Sequence[OpcuaTag]) -> dict[int, list[Any]]:
    """Values of each time (µs), by channel; a text holds until the next one. Raises KeyError where a channel has
    none."""
    found: list[dict[int, Any]] = []
    for channel, tag in enumerate(tags):
        samples = {
            t: value if s < 0x8000_0000 else ua.StatusCode(s) for k in spool for t, value, s in k.samples(channel)
        }
        events = [e for k in spool for e in k.events("text") if e.channel_id == channel]
        texts = {e.time: ua.StatusCode(e.status) if e.text is None else e.text for e in events}
        found.append(texts if tag.kind == "text" else samples)
    for of, tag in zip(found, tags, strict=True):
        if tag.kind == "text":
            for before, time in pairwise(sorted(found[0])):
                of.setdefault(time, of[before])
    return {time: [of[time] for of in found] for time in sorted(found[0])}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SERVERS)
async def foreign(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Peer]:
    """A server that tests only read."""
    async with peer(request.param, tmp_path_factory.mktemp("peer"), 0, "200") as server:
        yield server


@pytest.mark.slow
async def test_members_of_foreign_servers(foreign: Peer, tmp_path: Path) -> None:
    """Each round is complete, also across a restart in which a member is removed and another one is added."""
    node = f"{KINDS[foreign.name].node}Drive"
    tags = [OpcuaTag(name=f"t{i}", address=node, member=m, kind=k, index=x) for i, (m, k, x) in enumerate(FOREIGN)]
    options: dict[str, Any] = {"accept": ["wrong-host"], "time_out": 30.0, "backfill": False}
    address = f"opc.tcp://127.0.0.1:{foreign.port}"
    async with collecting(address, tags, tmp_path / "pki", **options) as (_, status):
        await until(lambda: "is not trusted" in status.reason)
    trust(tmp_path / "pki", "ua")
    async with collecting(address, tags, tmp_path / "pki", **options) as (first, status):
        await first.until(lambda: len(first.samples(0)) > 5)
        assert status.bad_channels.keys() == {"t6"}, "an optional member may be absent"
    second = MemoryAppender(first.notes)
    async with collecting(address, tags[:-1], tmp_path / "pki", second, **options) as (_, status):
        await second.until(lambda: len(second.samples(0)) > 5)
    third = MemoryAppender(second.notes)
    async with collecting(address, tags, tmp_path / "pki", third, **options) as (_, status):
        await third.until(lambda: len([e for e in third.events("text") if e.channel_id == len(tags) - 1]) > 5)
        assert status.bad_channels.keys() == {"t6"}
    complete = rounds([first, second, third], tags[:-1])
    numbers = [int(row[0]) for row in complete.values()]
    assert numbers == list(range(numbers[0], numbers[-1] + 1)), "no round is missing"
    for n, row in zip(numbers, complete.values(), strict=True):
        if n:  # before the first round, the nodes have initial values
            assert row == of_round(n)[:-1]
    added = {e.time: e.text for e in third.events("text") if e.channel_id == len(tags) - 1}
    since = sorted(added)[1]  # the first one may be older than the notification with it
    for time, row in complete.items():
        if since <= time <= max(added):
            expected = of_round(int(row[0]))[-1]
            assert added[time] == (expected if isinstance(expected, str) else None)


@pytest.mark.slow
async def test_discover_lists_members_of_foreign_servers(foreign: Peer, tmp_path: Path) -> None:
    found = await discovered(f"opc.tcp://127.0.0.1:{foreign.port}", tmp_path)
    kinds = {tag.member: tag.kind for tag in found.tags if tag.address.endswith(";s=Drive")}
    assert kinds == {member: kind for member, kind, index in FOREIGN if index is None}
    assert "Drive.Temperatures" in {node.name for node in found.skipped}


ELEMENTS: list[tuple[str, ChannelKind, str | None]] = [
    ("[0].Motor.Speed", "analog", None),
    ("[1].Motor.Speed", "analog", None),
    ("[1].Motor.Name", "text", None),
    ("[1].Torque", "analog", None),
    ("[1].Temperatures", "analog", "3"),
    ("[1].Extra.Text", "text", None),
    ("[2].On", "discrete", None),
]
MATRIX = ("0,0", "0,2", "1,0", "1,2", "2,0", "1,3", "1")


@pytest.mark.slow
async def test_elements_of_foreign_servers(foreign: Peer, tmp_path: Path) -> None:
    """Of an array of structures and of a matrix, each round complete; what is not there is Bad and named."""
    begin = KINDS[foreign.name].node
    tags = [
        OpcuaTag(name=f"t{i}", address=f"{begin}Drives", member=m, kind=k, index=x)
        for i, (m, k, x) in enumerate(ELEMENTS)
    ]
    tags += [OpcuaTag(name=f"m{i.replace(',', '.')}", address=f"{begin}Matrix", index=i) for i in MATRIX]
    first = len(ELEMENTS)
    options: dict[str, Any] = {"insecure": True, "time_out": 30.0, "backfill": False}
    address = f"opc.tcp://127.0.0.1:{foreign.port}"
    async with collecting(address, tags, tmp_path / "pki", **options) as (spool, status):
        await spool.until(lambda: min(len(values(spool, k)) for k in (0, *range(first, first + 4))) > 5)
        await until(lambda: status.bad_channels.keys() == {"t6", "m2.0", "m1.3", "m1"})
    assert status.bad_channels == {
        "t6": "an array has no such element as in [2].On; the first one has index 0",
        "m1": "an array of 2 dimensions: an element has an index of 2 numbers, as in 0,0",
        "m2.0": "the array has no element 2,0; the first one has index 0,0",
        "m1.3": "the array has no element 1,3; the first one has index 0,0",
    }
    complete = rounds([spool], tags[:first])
    numbers = [int(found[0]) for found in complete.values()]
    assert numbers == list(range(numbers[0], numbers[-1] + 1)), "no round is missing"
    for n, found in zip(numbers, complete.values(), strict=True):
        if n:  # before the first round, the nodes have initial values
            speed, _, _, motor_name, torque, temperature, _, _, text = of_round(n + 1)
            assert found == [n, speed, motor_name, torque, temperature, text, ua.StatusCode(NO_ELEMENT)]
    matrix = [dict(zip(*list(zip(*spool.samples(first + place), strict=True))[:2], strict=True)) for place in range(4)]
    for time, n in matrix[0].items():
        if n:
            assert [of[time] for of in matrix] == [n, n + 0.25, n + 0.375, n + 0.625]
    of = list(matrix[0].values())
    assert of == [of[0] + n for n in range(len(of))], "no round is missing"
    assert not any(values(spool, place) for place in range(first + 4, len(tags))), "the matrix does not have them"
