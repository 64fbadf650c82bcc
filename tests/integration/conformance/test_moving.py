"""A database moves from the Apache-2 edition to Community, with data inside: rows, packed hours, late rows, all of it.

Runs only where PLANTLOG_COMMUNITY_CACHE names a cache with PostgreSQL 17 and TimescaleDB Community; without
it there is nothing to move to, and conftest.py does not collect this file. The Apache-2 server is the usual one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from core.errors import DatabaseError
from ops.migration.migrate import migrate
from ops.postgres.binaries import Binaries
from ops.postgres.bootstrap import bootstrap
from ops.postgres.cluster import Cluster
from ops.postgres.server import Server
from tests.database import Database, connected
from tests.integration.conformance.plant import ConformancePlant
from tests.sample_tables import DAY, Sample, bits

_DAYS = [DAY + timedelta(days=n) for n in range(4)]
_CHANNELS = range(1, 6)
_SPECIAL = (0x7FF8000000000ABC, 1 << 63, 0x7FF0000000000000, 1, bits(0.1 + 0.2))
Step = Callable[[ConformancePlant], Awaitable[dict[int, list[Sample]]]]


def _run(server: Server, step: Step) -> dict[int, list[Sample]]:
    async def connected() -> dict[int, list[Sample]]:
        await bootstrap(server.owner_dsn, {})
        owner = await asyncpg.connect(server.owner_dsn)
        edition: Any = await owner.fetchval("SELECT value FROM plant.setting WHERE key = 'edition'")
        try:
            roles = (server.role(role) for role in ("reader", "maintenance"))
            return await step(ConformancePlant(Database(server.owner_dsn, server.owner_dsn, *roles), owner, edition))
        finally:
            await owner.close()

    return asyncio.run(connected())


async def _all(plant: ConformancePlant) -> dict[int, list[Sample]]:
    return {channel: await plant.everywhere(channel, _DAYS[0], _DAYS[-1] + timedelta(days=1)) for channel in _CHANNELS}


async def _fill(plant: ConformancePlant) -> dict[int, list[Sample]]:
    assert plant.edition == "apache"
    await plant.owner.execute(
        "INSERT INTO plant.source (id, name, kind, address) OVERRIDING SYSTEM VALUE VALUES (1, 'g', 'push', '');"
        "INSERT INTO plant.channel (id, name, source_id, address, kind) OVERRIDING SYSTEM VALUE"
        " SELECT i, 'c' || i, 1, '', 'analog' FROM generate_series(1, 5) AS i"
    )
    for day in _DAYS:
        await plant.fill(day, 1440, 4)
    every_kind = [(n * 300_000_000, _SPECIAL[n % 5], n % 3 << 30) for n in range(4 * 288)]
    await plant.copy(5, every_kind)
    await plant.compress(_DAYS[1] + timedelta(hours=7))  # a day and a part of the next one
    await plant.copy(1, [(7, bits(0.5), 0)])  # late
    assert {form for _, form in await plant.form_of_days()} == {"packed", "rows"}
    return await _all(plant)


async def _moved(plant: ConformancePlant) -> dict[int, list[Sample]]:
    assert plant.edition == "community"
    assert await plant.native()
    before = await _all(plant)
    for _ in range(2):
        await plant.compress(_DAYS[3])
    assert await _all(plant) == before
    forms = await plant.form_of_days()
    closed = {(_DAYS[0], "packed"), (_DAYS[1], "packed"), (_DAYS[2], "columnstore"), (_DAYS[3], "rows")}
    assert forms == closed
    # It goes on: late rows for each form, by the writer's staging table too, and the other form from now on.
    late = [(n * 86_400_000_000 + 11, bits(-0.25), 0) for n in range(4)]
    await plant.copy(2, late)
    for _ in range(2):
        await plant.compress(_DAYS[3])
    assert (await _all(plant))[2] == sorted(before[2] + late)
    assert await plant.form_of_days() == closed
    return await _all(plant)


def test_database_moves_from_apache_to_community_edition(tmp_path: Path, server: str) -> None:
    """``server`` is asked for because it sees to the Apache-2 programs being there."""
    assert server
    [community] = map(Binaries, Path(os.environ["PLANTLOG_COMMUNITY_CACHE"]).glob("postgresql-17_*"))
    with Server(tmp_path) as apache:
        before = _run(apache, _fill)
        version = asyncio.run(_version(apache.owner_dsn))
    with Server(tmp_path, cluster=Cluster(tmp_path, community)) as moved:
        assert _run(moved, _all) == before, "nothing differs by the move alone"
        assert asyncio.run(_version(moved.owner_dsn)) != version
        after = _run(moved, _moved)
        assert _run(moved, _all) == after
        asyncio.run(_moved_by_several_at_once(moved.owner_dsn))
    # Not back, with days that only Community can read, and the message says what to do.
    with (
        Server(tmp_path, ("-c", "timescaledb.license=apache"), Cluster(tmp_path, community)) as back,
        pytest.raises(DatabaseError, match=r"1 chunks of this database are columnstored.*decompress_chunk"),
    ):
        asyncio.run(migrate(back.owner_dsn))
    with Server(tmp_path, cluster=Cluster(tmp_path, community)) as rows:
        asyncio.run(_to_rows(rows.owner_dsn))
    with Server(tmp_path, ("-c", "timescaledb.license=apache"), Cluster(tmp_path, community)) as back:
        assert _run(back, _back) == after


async def _version(dsn: str) -> str:
    async with connected(dsn) as connection:
        return str(await connection.fetchval("SELECT value FROM plant.setting WHERE key = 'timescaledb_version'"))


async def _moved_by_several_at_once(dsn: str) -> None:
    assert await asyncio.gather(*(migrate(dsn) for _ in range(3))) == [[], [], []]


async def _to_rows(dsn: str) -> None:
    async with connected(dsn) as connection:
        await connection.execute(
            "SELECT public.decompress_chunk(c) FROM public.show_chunks('plant.samples_raw') AS c"
            " WHERE (SELECT k.is_compressed FROM timescaledb_information.chunks AS k"
            "        WHERE format('%I.%I', k.chunk_schema, k.chunk_name)::regclass = c)"
        )


async def _back(plant: ConformancePlant) -> dict[int, list[Sample]]:
    assert plant.edition == "apache"
    with pytest.raises(asyncpg.FeatureNotSupportedError):
        await plant.set_compression("native")
        await plant.compress(_DAYS[3])
    await plant.set_compression(None)
    for _ in range(2):
        await plant.compress(_DAYS[3])
    assert {form for _, form in await plant.form_of_days()} == {"packed", "rows"}
    return await _all(plant)
