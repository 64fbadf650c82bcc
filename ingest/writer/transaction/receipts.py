"""Receipts of what comes to days that are sealed. An amended seal proves by them that it only adds to the one before.

They are claims and no proof: without the samples of a receipt, an hour must have the digest that was sealed. A gap is
reported anew while it lasts, so its receipts are signed with the installation's key.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from core.batch import Int32s, Int64s
from core.sealing_key import load_sealing_key, receipt_statement
from core.timestamps import DAY_US, now_us, timestamp
from schema.queries import load

log = logging.getLogger(__name__)

SAMPLE = np.dtype([("channel_id", ">i4"), ("time", ">i8")])  # of a receipt's content


def today() -> int:
    """Begin of the day (UTC), µs since 1970. Later days are not sealed."""
    return now_us() // DAY_US * DAY_US


async def write_sample_receipts(
    connection: asyncpg.Connection[Any], channel_id: Int32s, time: Int64s, *, may_be_packed: bool = True
) -> None:
    """Receipts of new samples, of columns of equal length, for those on sealed days.

    ``may_be_packed``: some may not be new, as rows can repeat what is packed.
    """
    if not len(time) or int(time.min()) >= (end := today()):
        return
    queries = load("write")
    indices = np.flatnonzero(time < end)
    days = time[indices] // DAY_US
    dates = [timestamp(day * DAY_US).date() for day in np.unique(days).tolist()]
    sealed = await connection.fetchval(queries["select_sealed_among"], dates)
    if not sealed:
        return
    indices = indices[np.isin(days, [(day - _EPOCH).days for day in sealed])]
    if may_be_packed and await connection.fetchval(queries["may_be_packed"], int(time[indices].min())):
        packed = await connection.fetch(queries["select_packed"], channel_id[indices].tolist(), time[indices].tolist())
        indices = np.delete(indices, [row["index"] for row in packed])
    contents = []
    for day in sealed:
        of_day = indices[time[indices] // DAY_US == (day - _EPOCH).days]
        content = np.empty(len(of_day), SAMPLE)
        content["channel_id"], content["time"] = channel_id[of_day], time[of_day]
        contents.append(content.tobytes())
    days_with_some = [(day, content) for day, content in zip(sealed, contents, strict=True) if content]
    if days_with_some:
        await connection.execute(queries["insert_receipts"], *map(list, zip(*days_with_some, strict=True)))


async def write_event_receipts(connection: asyncpg.Connection[Any], new: Sequence[asyncpg.Record]) -> None:
    """Receipts of new events, of rows with time (µs) and id, for those on sealed days."""
    end = today()
    late = [row for row in new if row["time"] < end]
    if late:
        times = [timestamp(row["time"]) for row in late]
        await connection.execute(load("write")["insert_event_receipts"], times, [row["id"] for row in late])


async def sign_gap_receipts(connection: asyncpg.Connection[Any], state: Path) -> None:
    """Sign the receipts that the database wrote of this transaction's gaps."""
    queries = load("write")
    rows = await connection.fetch(queries["select_unsigned_receipts"])
    if not rows:
        return
    try:
        key = load_sealing_key(state)
    except (OSError, ValueError) as error:
        log.warning("gaps of sealed days are not signed, and `plantlog evidence verify` will name them: %s", error)
        return
    if key is not None:
        signer = hashlib.sha256(key.public_key().public_bytes_raw()).digest()
        signatures = [key.sign(receipt_statement("gap", row["content"], row["id"])) for row in rows]
        await connection.execute(queries["sign_receipts"], [row["id"] for row in rows], signatures, signer)


_EPOCH = timestamp(0).date()
