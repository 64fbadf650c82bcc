"""Privileges of each role, whatever form the samples are in."""

from __future__ import annotations

import asyncpg
import pytest

from tests.database import connected
from tests.integration.conformance.plant import CHANNELS, NEXT_DAY, ConformancePlant
from tests.sample_tables import DAY, copy, samples_between, samples_in_view


async def test_reader_and_ingest_read_all_forms(plant: ConformancePlant) -> None:
    await plant.fill()
    await plant.fill(NEXT_DAY)
    await plant.compress()
    await plant.copy(1, [(1, 0, 0)])  # a late one beside the closed form
    for dsn in (plant.database.reader_dsn, plant.database.ingest_dsn):
        async with connected(dsn) as connection:
            assert len(await samples_in_view(connection, 1)) == 2 * 1440 + 1
            assert len(await samples_between(connection, 1, 0, 86_400_000_000)) == 1440 + 1
            assert await connection.fetchval("SELECT count(*) FROM plant.samples_named") == CHANNELS * 2880 + 1
            assert await connection.fetchval("SELECT count(*) FROM plant.coverage WHERE day = $1", DAY) == CHANNELS
            assert await connection.fetchval("SELECT sum(bytes) FROM plant.storage()") > 0


_OF_THE_OWNER = (
    "DELETE FROM plant.samples_packed",
    "DELETE FROM plant.samples_raw WHERE channel_id = 1",
    "UPDATE plant.samples_raw SET value = 0",
    "DELETE FROM plant.rollup_1h",
    "DELETE FROM plant.event",
    "UPDATE plant.source SET name = 'x'",
    "INSERT INTO plant.setting VALUES ('other', 'packed')",
    "CREATE TABLE plant.mine ()",
    "DROP TABLE plant.event",
    "TRUNCATE plant.gap",
)
_OF_INGEST = ("INSERT INTO plant.samples_raw VALUES (now(), 1, 1, 0)", "DELETE FROM plant.alarm")


async def test_ingest_only_adds_and_the_reader_only_reads(plant: ConformancePlant) -> None:
    await plant.fill(minutes=120)
    before = await plant.look()
    for dsn, statements in (
        (plant.database.ingest_dsn, _OF_THE_OWNER),
        (plant.database.reader_dsn, (*_OF_THE_OWNER, *_OF_INGEST)),
    ):
        async with connected(dsn) as connection:
            read_only = dsn == plant.database.reader_dsn
            assert await connection.fetchval("SHOW transaction_read_only") == ("on" if read_only else "off")
            await connection.execute("SET default_transaction_read_only = off")
            for statement in statements:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(statement)
    assert await plant.look() == before
    assert set(await plant.forms()) == {(DAY, "rows")}


async def test_only_ingest_writes_also_into_a_closed_day(plant: ConformancePlant) -> None:
    await plant.fill()
    await plant.compress()
    async with connected(plant.database.reader_dsn) as reader:
        await reader.execute("SET default_transaction_read_only = off")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await copy(reader, 1, [(1, 0, 0)])
    await plant.copy(1, [(1, 0, 0)])
    assert len(await samples_in_view(plant.owner, 1)) == 1441
