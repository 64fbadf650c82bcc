"""Gaps of a redundant pair: what both members are missing, for the channels that both miss."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.timestamps import timestamp
from tests.database import Database, connected, prepared
from tests.writer_pair import INSTALLATION, add_plant

Span: TypeAlias = tuple[int | None, int, int | None]  # channel, from, to (s)
_SOURCE, _CHANNELS = 1, (1, 2, 3)
_END = 100
_RECORD = """
SELECT * FROM plant.record_member_gaps($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_GAPS = """
SELECT g.channel_id, extract(epoch FROM g.from_time)::int AS a, extract(epoch FROM g.to_time)::int AS b,
       g.reason, g.detail
FROM plant.gap AS g
WHERE g.to_time IS DISTINCT FROM g.from_time
ORDER BY g.channel_id NULLS FIRST, g.from_time
"""
_SEEN = "SELECT plant.member_seen($1, $2, $3)"
_AGO = "UPDATE plant.member SET seen_at = seen_at - INTERVAL '1 minute' WHERE member = $1"


async def _filled(database: Database) -> None:
    async with connected(database.owner_dsn) as owner:
        await add_plant(owner, "a", channels=_CHANNELS)


@pytest.fixture
async def member(database: Database, owner: asyncpg.Connection, ingest: asyncpg.Connection) -> asyncpg.Connection:
    await _filled(database)
    return ingest


async def record(member: asyncpg.Connection, number: int, spans: list[Span], revision: int = 1) -> list[Any]:
    """Record gaps of a member. Returns the new ones of the pair."""
    channels, begins, ends = (list(column) for column in zip(*spans, strict=True))
    n = len(spans)
    times = (
        [timestamp(at * 1_000_000) for at in begins],
        [None if at is None else timestamp(at * 1_000_000) for at in ends],
    )
    return await member.fetch(
        _RECORD,
        number,
        [_SOURCE] * n,
        channels,
        *times,
        [f"reason {number}"] * n,
        [""] * n,
        [False] * n,
        [revision] * n,
    )


async def gaps(member: asyncpg.Connection) -> list[tuple[int | None, int, int | None]]:
    return [(row["channel_id"], row["a"], row["b"]) for row in await member.fetch(_GAPS)]


async def test_gap_of_one_member_is_none(member: asyncpg.Connection) -> None:
    assert not await record(member, 1, [(None, 10, 20), (2, 30, None)])
    assert await gaps(member) == []


async def test_gap_of_both_members_is_their_intersection(member: asyncpg.Connection) -> None:
    await record(member, 1, [(None, 10, 20)])
    [new] = await record(member, 2, [(None, 15, 30)])
    assert (new["gap_begin"], new["gap_channels"]) == (15_000_000, list(_CHANNELS))
    [row] = await member.fetch(_GAPS)
    assert tuple(row) == (None, 15, 20, "reason 2", "member 1: reason 1; member 2: reason 2")


async def test_gap_of_a_source_and_one_of_a_channel(member: asyncpg.Connection) -> None:
    await record(member, 1, [(None, 10, None)])
    await record(member, 2, [(2, 5, 30)])
    assert await gaps(member) == [(2, 10, 30)]


async def test_open_gap_ends_with_the_first_member_that_has_samples(member: asyncpg.Connection) -> None:
    await record(member, 1, [(None, 10, None)])
    await record(member, 2, [(None, 12, None)])
    assert await gaps(member) == [(None, 12, None)]
    await record(member, 2, [(None, 12, 40)], revision=2)
    assert await gaps(member) == [(None, 12, 40)]
    await record(member, 1, [(None, 10, 12)], revision=2)
    assert await gaps(member) == [], "it has the samples after all"


async def test_member_that_is_away_misses_everything(member: asyncpg.Connection) -> None:
    folders = UUID(int=1), UUID(int=2)
    for number in (1, 2):
        await member.execute(_SEEN, INSTALLATION, number, folders[number - 1])
    await member.execute(_AGO, 2)
    await member.execute(_SEEN, INSTALLATION, 1, folders[0])
    assert await member.fetchval("SELECT away FROM plant.member WHERE member = 2")
    assert await gaps(member) == [], "member 1 has the samples"
    later = int(await member.fetchval("SELECT extract(epoch FROM now())::int8")) - 20
    await record(member, 1, [(1, later, later + 5)])
    assert await gaps(member) == [(1, later, later + 5)]
    await member.execute(_SEEN, INSTALLATION, 2, folders[1])
    assert await gaps(member) == [], "member 2 was only cut off from the database"


async def test_new_state_folder_has_no_samples_of_before(member: asyncpg.Connection) -> None:
    for number in (1, 2):
        await member.execute(_SEEN, INSTALLATION, number, UUID(int=number))
    await member.execute(_AGO, 2)
    await member.execute(_SEEN, INSTALLATION, 2, UUID(int=3))
    later = int(await member.fetchval("SELECT extract(epoch FROM now())::int8")) - 20
    await record(member, 1, [(1, later, later + 5), (1, later + 60, later + 65)])
    found = [(1, later, later + 5), (1, later + 60, later + 65)]
    assert await gaps(member) == found, "it may not have connected yet"
    await member.execute(_SEEN.replace("$3", "$3, 0, $4"), INSTALLATION, 2, UUID(int=3), [_SOURCE])
    assert await gaps(member) == found[:1]


async def test_new_state_folder_ends_what_was_missing_in_the_former_one(member: asyncpg.Connection) -> None:
    """Also if the clock was ahead."""
    for number in (1, 2):
        await member.execute(_SEEN, INSTALLATION, number, UUID(int=number))
    now = int(await member.fetchval("SELECT extract(epoch FROM now())::int8"))
    await record(member, 1, [(None, now - 20, None), (1, now + 1800, None)], revision=(now + 1800) * 1_000_000)
    await record(member, 2, [(None, now - 10, None)])
    assert await gaps(member) == [(None, now - 10, None), (1, now + 1800, None)]
    for receiving in ([], [_SOURCE]):
        await member.execute(_SEEN.replace("$3", "$3, 0, $4"), INSTALLATION, 1, UUID(int=3), receiving)
    assert await member.fetchval("SELECT count(*) FROM plant.gap WHERE to_time IS NULL") == 0


@pytest.fixture(scope="module")
def shared(server: str, template: str) -> Any:
    with prepared(server, template, "pair_gaps", _filled) as database:
        yield database


_spans = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.sampled_from([None, *_CHANNELS]),
        st.integers(0, 30),
        st.one_of(st.none(), st.integers(0, 20)),
    ),
    max_size=12,
)


@given(reports=_spans)
def test_pair_misses_a_second_if_both_members_do(
    shared: Database, reports: list[tuple[int, int | None, int, Any]]
) -> None:
    """Reports of any gaps in any order, the later of the same begin replacing the earlier."""

    async def run() -> None:
        async with connected(shared.owner_dsn) as owner:
            await owner.execute("TRUNCATE plant.gap, plant.member_gap")
            known: dict[tuple[int, int | None, int], int | None] = {}
            for revision, (number, channel, begin, length) in enumerate(reports, 1):
                end = None if length is None else begin + length
                known[number, channel, begin] = end
                await record(owner, number, [(channel, begin, end)], revision)
            expected = {
                (c, at)
                for c in _CHANNELS
                for at in range(_END)
                if all(
                    any(
                        n == number and channel in (None, c) and begin <= at < (_END if end is None else end)
                        for (n, channel, begin), end in known.items()
                    )
                    for number in (1, 2)
                )
            }
            found = {
                (c, at)
                for channel, begin, end in await gaps(owner)
                for c in ([channel] if channel else _CHANNELS)
                for at in range(begin, _END if end is None else end)
            }
            assert found == expected

    asyncio.run(run())
