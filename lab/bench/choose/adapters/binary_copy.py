"""Columns into and out of PostgreSQL by binary COPY, as cheaply for the client as can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import asyncpg
import numpy as np
from numpy.typing import NDArray

from core.timestamps import POSTGRES_EPOCH_US
from ingest.writer.transaction.copy_stream import COLUMNS, HEADER, TRAILER, copy_stream
from lab.bench.data import Columns, Minutes, Raw

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy


def _row(*fields: str) -> np.dtype[np.void]:
    """Row of a binary COPY: each field has its length before it."""
    with_lengths = [part for i, field in enumerate(fields) for part in ((f"length {i}", ">i4"), (str(i), field))]
    return np.dtype([("fields", ">i2"), *with_lengths])


_RAW, _MINUTE = _row(">i8", ">f8", ">i4"), _row(">i8", ">f8")


async def answer(pool: asyncpg.Pool[Any], query: str, row: np.dtype[np.void]) -> list[NDArray[Any]]:
    """The fields of a query's rows as columns, by binary COPY: what is measured is the database, not a driver."""
    buffer = bytearray()

    async def take(data: bytes) -> None:
        buffer.extend(data)

    await pool.copy_from_query(query, output=take, format="binary")
    rows = np.frombuffer(
        buffer, row, offset=len(HEADER), count=(len(buffer) - len(HEADER) - len(TRAILER)) // row.itemsize
    )
    fields = [rows[name] for name in row.names or () if name.isdecimal()]
    return [field.astype(field.dtype.newbyteorder("=")) for field in fields]


async def ask_raw(pool: asyncpg.Pool[Any], query: str) -> Raw:
    """Time, value and status."""
    time, value, status = await answer(pool, query, _RAW)
    return Raw(time + POSTGRES_EPOCH_US, value, status.view(np.uint32))


async def ask_minutes(pool: asyncpg.Pool[Any], query: str) -> Minutes:
    """Minute and mean."""
    minute, mean = await answer(pool, query, _MINUTE)
    return Minutes(minute + POSTGRES_EPOCH_US, mean)


async def copy(
    to: asyncpg.Pool[Any] | PoolConnectionProxy[Any], schema: str | None, table: str, columns: Columns
) -> None:
    """Binary COPY of ``columns``, whose channels are the table's."""
    stream = copy_stream(columns.channel, columns.time, columns.value, columns.status)
    source = cast(Any, stream)
    await to.copy_to_table(table, schema_name=schema, source=source, columns=COLUMNS, format="binary")
