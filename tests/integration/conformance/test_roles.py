"""Who may do what, whatever form the samples are in."""

from __future__ import annotations

import asyncpg
import pytest

from tests.integration.conformance.plant import CHANNELS, NEXT_DAY, ConformancePlant
from tests.sample_tables import DAY, copy, samples_between, samples_in_view

_REFUSED = (asyncpg.InsufficientPrivilegeError, asyncpg.ReadOnlySQLTransactionError)


async def test_reader_and_ingest_read_all_forms(plant: ConformancePlant) -> None:
    await plant.fill()
    await plant.fill(NEXT_DAY)
    await plant.compress()
    await plant.copy(1, [(1, 0, 0)])  # a late one beside the closed form
    for dsn in (plant.database.reader_dsn, plant.database.ingest_dsn):
        connection = await asyncpg.connect(dsn)
        assert len(await samples_in_view(connection, 1)) == 2 * 1440 + 1
        assert len(await samples_between(connection, 1, 0, 86_400_000_000)) == 1440 + 1
        assert await connection.fetchval("SELECT count(*) FROM plant.samples_named") == CHANNELS * 2880 + 1
        assert await connection.fetchval("SELECT count(*) FROM plant.coverage WHERE day = $1", DAY) == CHANNELS
        assert await connection.fetchval("SELECT sum(bytes) FROM plant.storage()") > 0
        await connection.close()


_STATEMENTS = (
    "DELETE FROM plant.samples_packed",
    "DELETE FROM plant.samples_raw WHERE channel_id = 1",
    "UPDATE plant.samples_raw SET value = 0",
    "INSERT INTO plant.setting VALUES ('other', 'packed')",
)


async def test_only_the_owner_changes_what_is_stored(plant: ConformancePlant) -> None:
    await plant.fill(minutes=120)
    before = await plant.look()
    for dsn in (plant.database.reader_dsn, plant.database.ingest_dsn):
        connection = await asyncpg.connect(dsn)
        await connection.execute("SET default_transaction_read_only = off")
        for statement in _STATEMENTS:
            with pytest.raises(_REFUSED):
                await connection.execute(statement)
        await connection.close()
    assert await plant.look() == before
    assert set(await plant.forms()) == {(DAY, "rows")}


async def test_only_ingest_writes_also_into_a_closed_day(plant: ConformancePlant) -> None:
    await plant.fill()
    await plant.compress()
    reader = await asyncpg.connect(plant.database.reader_dsn)
    await reader.execute("SET default_transaction_read_only = off")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await copy(reader, 1, [(1, 0, 0)])
    await reader.close()
    await plant.copy(1, [(1, 0, 0)])
    assert len(await samples_in_view(plant.owner, 1)) == 1441
