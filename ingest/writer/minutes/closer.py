"""Writes the rollup rows of each minute that is over, in one transaction on its own connection.

What fails is left to maintenance, which computes such minutes from the stored samples: at once if they can be marked,
otherwise after ``plant.open_minute_limit()``. The next minute does not wait: it continues from the rows written now.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, cast

import asyncpg
import numpy as np

from core.batch import Int32s
from core.database import bounded, connect_writer
from core.timestamps import MINUTE_US, now_us, timestamp
from ingest.writer.minutes.accumulator import Accumulator, ClosedMinute
from ingest.writer.minutes.open_minutes import OpenMinutes, PendingGroup
from ingest.writer.minutes.rollup_rows import (
    INCREASE_COLUMNS,
    MINUTE_COLUMNS,
    STATE_COLUMNS,
    Kinds,
    Rows,
    increase_stream,
    minute_stream,
    state_stream,
)
from ingest.writer.restored.restore_check import RestoreCheck
from ingest.writer.transaction.failures import classify
from ingest.writer.transaction.write import Fence
from schema.queries import load

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
_RETRY_SECONDS = 60.0  # how long a transaction that failed temporarily is retried; see plant.open_minute_limit()
_RELEASE_SECONDS = 3.0
_MAX_LISTED = 500  # channels; if there are more, the hour is recomputed for all


class MinuteCloser:
    """Accumulates committed samples into minutes, and writes the rows of each minute that is over."""

    def __init__(
        self, dsn: str, time_out: float, minutes: OpenMinutes, check: RestoreCheck, fence: Fence | None = None
    ) -> None:
        self._dsn = dsn
        self._time_out = time_out
        self._minutes = minutes
        self._check = check
        self._fence = fence
        self._accumulator = Accumulator()  # changed in the thread only
        self._thread = ThreadPoolExecutor(1, "minutes")
        self._connection: asyncpg.Connection[Any] | None = None
        self._began = time.monotonic()  # this writer has written nothing before
        self._has_predecessor = True  # a killed predecessor may have left open minutes

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            while True:
                await asyncio.sleep(_POLL_SECONDS)
                await self._release_predecessor()
                try:
                    while await self._fold_and_close():
                        pass  # in a backlog several are due
                except Exception:
                    log.exception("cannot close rollup minutes; leaving them to maintenance")
                    self._discard()
                await self._release()
        finally:
            self._minutes.release_all()
            await self._release()
            self._disconnect()
            self._thread.shutdown()

    async def _fold_and_close(self) -> bool:
        """Accumulate what was committed; close the oldest minute that is due. Returns whether there was one."""
        loop = asyncio.get_running_loop()
        now = now_us()
        due = self._minutes.oldest_due(now)
        if groups := self._minutes.to_fold(now, due):
            await loop.run_in_executor(self._thread, _fold, self._accumulator, groups)
        if due is None or (rows := self._minutes.close(due)) is None:
            return False
        done = not rows
        try:
            minute = await loop.run_in_executor(self._thread, self._accumulator.close, due)
            done = done or await self._write(minute, rows)
        finally:
            self._minutes.released += [] if done else rows
        return True

    def _discard(self) -> None:
        self._accumulator = Accumulator()
        self._minutes.release_all()

    async def _write(self, minute: ClosedMinute, rows: list[int]) -> bool:
        """Write the minute. Returns whether that worked."""
        until, database = time.monotonic() + _RETRY_SECONDS, self._minutes.databases
        while True:
            try:
                connection = await self._connected()
                if database != self._minutes.databases:
                    return True  # its rows are gone, and what is written again marks the minute
                self._accumulator.kinds = await bounded(
                    connection, self._time_out, self._close(connection, minute, rows)
                )
                return True
            except Exception as error:
                self._disconnect()
                if classify(error) != "transient" or time.monotonic() > until:
                    log.info(
                        "cannot close rollup minute %s: %s: %s", timestamp(minute.begin), type(error).__name__, error
                    )
                    return False
                await asyncio.sleep(_POLL_SECONDS)

    async def _close(self, connection: asyncpg.Connection[Any], minute: ClosedMinute, rows: list[int]) -> Kinds:
        """The transaction of one minute. Returns the kinds of channels now.

        Channels that are inconsistent with the previous minute get a row, too, unless there are later ones. It will be
        recomputed, but the next minute can continue from it.
        """
        queries = load("write")
        begin = timestamp(minute.begin)
        async with connection.transaction():
            await connection.execute(queries["close_minute"], begin)
            replaced_channels = await _ids(connection, "delete_minute_rows", rows)
            await connection.execute(queries["release_lost_minutes"], begin)
            kinds = await _kinds(connection)
            complete = await _complete_rows(connection, minute, kinds)
            inconsistent = await _inconsistent(connection, minute.begin, complete)
            silent = np.setdiff1d(replaced_channels, np.union1d(minute.rows.channel_id, minute.doubtful))
            having_later = await _ids(
                connection, "select_channels_with_minutes", np.union1d(inconsistent, silent).tolist(), begin
            )
            rows_to_write = complete.part(~np.isin(complete.channel_id, np.intersect1d(inconsistent, having_later)))
            await _copy(connection, minute, rows_to_write)
            consistent = np.setdiff1d(complete.channel_id, inconsistent)
            doubtful = np.union1d(minute.doubtful, np.setdiff1d(minute.rows.channel_id, consistent))
            onward = np.union1d(np.intersect1d(replaced_channels, doubtful), np.intersect1d(silent, having_later))
            await _dirty(connection, minute.begin, doubtful, many=len(doubtful) > max(_MAX_LISTED, len(consistent)))
            await _dirty(connection, minute.begin, onward, onward=True)
            hours = np.union1d(rows_to_write.channel_id, np.setdiff1d(silent, having_later))
            if len(hours):
                await connection.execute(
                    queries["insert_dirty_hour"], begin, hours.tolist() if len(hours) <= _MAX_LISTED else None
                )
            await connection.execute(queries["update_closed_counts"], len(consistent))
            if self._fence is not None:
                await self._fence.check(connection)
        return kinds

    async def _connected(self) -> asyncpg.Connection[Any]:
        if self._connection is None or self._connection.is_closed():
            name = "plantlog writer: rollups" if self._fence is None else self._fence.session_name
            self._connection = await connect_writer(self._dsn, self._time_out, name, self._check.check)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _release_predecessor(self) -> None:
        """Release minutes that a predecessor left open: only one writer runs at a time."""
        if self._has_predecessor:
            with suppress(Exception):
                async with asyncio.timeout(_RELEASE_SECONDS):
                    connection = await self._connected()
                    clock = await connection.fetchval(load("write")["select_clock"])
                    began = clock - timedelta(seconds=time.monotonic() - self._began)  # or slightly earlier
                    await connection.execute(load("write")["release_predecessor_minutes"], began)
                    self._accumulator.kinds = await _kinds(connection)
                    self._has_predecessor = False

    async def _release(self) -> None:
        (rows, self._minutes.released), database = (self._minutes.released, []), self._minutes.databases
        if rows:
            with suppress(Exception):
                async with asyncio.timeout(_RELEASE_SECONDS):
                    connection = await self._connected()
                    if database == self._minutes.databases:
                        await connection.execute(load("write")["release_minutes"], rows)


def _fold(accumulator: Accumulator, groups: list[PendingGroup]) -> None:
    for group in groups:
        accumulator.fold(group.samples, group.minutes, group.gaps)


async def _ids(connection: asyncpg.Connection[Any], query: str, *parameters: object) -> Int32s:
    """The channels returned by a section of write.sql, sorted and unique."""
    rows = await connection.fetch(load("write")[query], *parameters)
    return np.unique(np.fromiter((row["id"] for row in rows), np.int32))


async def _kinds(connection: asyncpg.Connection[Any]) -> Kinds:
    return Kinds.of_rows(await connection.fetch(load("write")["select_kinds"]))


async def _complete_rows(connection: asyncpg.Connection[Any], minute: ClosedMinute, kinds: Kinds) -> Rows:
    """The rows of channels without missing data: no other writer has recorded a gap that begins in the minute."""
    rows = minute.rows
    begun = await connection.fetch(load("write")["count_gaps_in_minute"], timestamp(minute.begin))
    ids, counts = (np.fromiter((row[name] for row in begun), np.int32) for name in ("id", "gaps"))
    begun_here = np.zeros(len(ids), np.int32)
    has_row, row_at = np.isin(ids, rows.channel_id), np.searchsorted(rows.channel_id, ids)
    begun_here[has_row] = minute.gaps[row_at[has_row]]
    doubtful = np.concatenate((minute.kinds.changed(kinds), ids[counts > begun_here]))
    return rows.part(~np.isin(rows.channel_id, doubtful))


async def _inconsistent(connection: asyncpg.Connection[Any], begin: int, rows: Rows) -> Int32s:
    """Channels whose value before the minute differs from that in the database."""
    values = [
        value if carries else None for value, carries in zip(rows.carried.tolist(), rows.carries.tolist(), strict=True)
    ]
    ids, times = rows.channel_id.tolist(), rows.carried_time.tolist()
    return await _ids(connection, "select_inconsistent_channels", ids, times, values, timestamp(begin))


async def _dirty(
    connection: asyncpg.Connection[Any], begin: int, channels: Int32s, *, many: bool = False, onward: bool = False
) -> None:
    """Leave a minute to maintenance. ``many``: for all channels."""
    if len(channels):
        named = None if many else channels.tolist()
        await connection.execute(
            load("write")["insert_dirty"], timestamp(begin), timestamp(begin + MINUTE_US), named, onward
        )


async def _copy(connection: asyncpg.Connection[Any], minute: ClosedMinute, rows_to_write: Rows) -> None:
    if len(rows_to_write):
        stream = cast(Any, minute_stream(rows_to_write, minute.begin))
        await connection.copy_to_table(
            "rollup_1m", schema_name="plant", source=stream, columns=MINUTE_COLUMNS, format="binary"
        )
    states = minute.states.part(np.isin(minute.states.channel_id, rows_to_write.channel_id))
    if len(states.channel_id):
        stream = cast(Any, state_stream(states, minute.begin))
        await connection.copy_to_table(
            "rollup_states_1m", schema_name="plant", source=stream, columns=STATE_COLUMNS, format="binary"
        )
    increases = minute.increases.part(np.isin(minute.increases.channel_id, rows_to_write.channel_id))
    if len(increases.channel_id):
        stream = cast(Any, increase_stream(increases, minute.begin))
        await connection.copy_to_table(
            "rollup_increases_1m", schema_name="plant", source=stream, columns=INCREASE_COLUMNS, format="binary"
        )
