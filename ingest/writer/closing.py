"""Closes the minutes of the rollups that are over: one transaction each, on a connection of its own.

What fails is left to maintenance, which makes such minutes from what is stored: at once where that can be said, else
when ``plant.open_for()`` has passed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, cast

import asyncpg
import numpy as np

from ingest.batch import Int32s, now_us
from ingest.writer.clock import timestamp
from ingest.writer.connection import bounded, connect
from ingest.writer.counts import MINUTE_US
from ingest.writer.failures import classify
from ingest.writer.minute_stream import MINUTE_COLUMNS, STATE_COLUMNS, minute_stream, state_stream
from ingest.writer.minutes import Accumulator, Closed
from ingest.writer.open_minutes import OpenMinutes, Taken
from ingest.writer.rollup_rows import Rows
from schema.queries import load

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_TRY_SECONDS = 30.0  # for a transaction that may succeed when it is tried again
_LEAVE_SECONDS = 3.0
_NAMED = 500  # channels; of more, the hour is made of all


class Closer:
    """Folds what is written into minutes, and closes them when they are over."""

    def __init__(self, dsn: str, time_out: float, minutes: OpenMinutes) -> None:
        self._dsn = dsn
        self._time_out = time_out
        self._minutes = minutes
        self._made = Accumulator()  # only the thread changes it
        self._thread = ThreadPoolExecutor(1, "minutes")
        self._connection: asyncpg.Connection[Any] | None = None
        self._began = time.monotonic()  # nothing was written before
        self._former = True  # minutes that our predecessor held open when it was killed may be waiting

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                await self._leave_former()
                try:
                    while await self._turn():
                        pass  # of a backlog, several are over
                except Exception:
                    log.exception("minutes that are open are left to maintenance")
                    self._forget()
                await self._leave()
        finally:
            self._minutes.leave()
            await self._leave()
            self._disconnect()
            self._thread.shutdown()

    async def _turn(self) -> bool:
        """Fold what is written, and close the oldest minute that is over; whether there was one."""
        loop = asyncio.get_running_loop()
        now = now_us()
        over = self._minutes.over(now)
        if groups := self._minutes.to_fold(now, over):
            await loop.run_in_executor(self._thread, _fold, self._made, groups)
        if over is None or (rows := self._minutes.close(over)) is None:
            return False
        done = not rows
        try:
            closed = await loop.run_in_executor(self._thread, self._made.close, over)
            done = done or await self._write(closed, rows)
        finally:
            self._minutes.left += [] if done else rows
        return True

    def _forget(self) -> None:
        self._made = Accumulator()
        self._minutes.leave()

    async def _write(self, closed: Closed, rows: list[int]) -> bool:
        """Whether the minute is closed."""
        until = time.monotonic() + _TRY_SECONDS
        while True:
            try:
                connection = await self._connected()
                self._made.discrete = await bounded(connection, self._time_out, self._close(connection, closed, rows))
                return True
            except Exception as error:
                self._disconnect()
                if classify(error) != "transient" or time.monotonic() > until:
                    log.info("minute %s: %s: %s", timestamp(closed.begin), type(error).__name__, error)
                    return False
                await asyncio.sleep(_LOOK_SECONDS)

    async def _close(self, connection: asyncpg.Connection[Any], closed: Closed, rows: list[int]) -> Int32s:
        """The one transaction; returns the channels that are discrete."""
        queries = load("write")
        begin = timestamp(closed.begin)
        async with connection.transaction():
            await connection.execute(queries["close_minute"], begin)
            held = _ids(row["id"] for row in await connection.fetch(queries["take_minute"], rows))
            discrete = _ids(row["id"] for row in await connection.fetch(queries["discrete"]))
            fresh = await self._following(connection, closed, discrete, held)
            await _copy(connection, closed, fresh)
            doubtful = np.union1d(closed.doubtful, np.setdiff1d(closed.rows.channel_id, fresh.channel_id))
            silent = np.setdiff1d(held, np.union1d(closed.rows.channel_id, doubtful))
            others = _ids(
                row["id"] for row in await connection.fetch(queries["having_minutes"], silent.tolist(), begin)
            )
            await _dirty(connection, closed.begin, doubtful, many=len(doubtful) > max(_NAMED, len(fresh)))
            await _dirty(connection, closed.begin, np.union1d(np.intersect1d(held, doubtful), others), onward=True)
            made = np.union1d(fresh.channel_id, np.setdiff1d(silent, others))
            if len(made):
                await connection.execute(queries["dirty_hour"], begin, made.tolist() if len(made) <= _NAMED else None)
            await connection.execute(queries["closed"], len(fresh))
        return discrete

    async def _following(
        self, connection: asyncpg.Connection[Any], closed: Closed, discrete: Int32s, held: Int32s
    ) -> Rows:
        """The rows that can be written: what was carried into them is what the database has, and of gaps in the minute
        it has only ``held`` ones, of which we know."""
        rows, queries = closed.rows, load("write")
        is_discrete, was_discrete = np.isin(rows.channel_id, discrete), np.isin(rows.channel_id, closed.discrete)
        gaps = _ids(row["id"] for row in await connection.fetch(queries["gaps_in_minute"], timestamp(closed.begin)))
        rows = rows.part((is_discrete == was_discrete) & ~np.isin(rows.channel_id, np.setdiff1d(gaps, held)))
        values = [
            value if carries else None
            for value, carries in zip(rows.carried.tolist(), rows.carries.tolist(), strict=True)
        ]
        others = await connection.fetch(
            queries["not_following"],
            rows.channel_id.tolist(),
            rows.carried_time.tolist(),
            values,
            timestamp(closed.begin),
        )
        return rows.part(~np.isin(rows.channel_id, _ids(row["id"] for row in others)))

    async def _connected(self) -> asyncpg.Connection[Any]:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._dsn, self._time_out)
            await self._connection.execute("SET application_name = 'plantlog writer: rollups'")
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _leave_former(self) -> None:
        """There is one writer at a time: who held minutes open before we began does not come back to close them."""
        if self._former:
            with suppress(Exception):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    connection = await self._connected()
                    clock = await connection.fetchval(load("write")["clock"])
                    began = clock - timedelta(seconds=time.monotonic() - self._began)  # or a little before
                    await connection.execute(load("write")["leave_former"], began)
                    self._former = False

    async def _leave(self) -> None:
        rows, self._minutes.left = self._minutes.left, []
        if rows:
            with suppress(Exception):
                async with asyncio.timeout(_LEAVE_SECONDS):
                    connection = await self._connected()
                    await connection.execute(load("write")["leave_minutes"], rows)


def _fold(made: Accumulator, groups: list[Taken]) -> None:
    for taken in groups:
        made.fold(taken.columns, taken.minutes, taken.gaps)


def _ids(channels: Iterable[int]) -> Int32s:
    """Each once, ascending."""
    return np.unique(np.fromiter(channels, np.int32))


async def _dirty(
    connection: asyncpg.Connection[Any], begin: int, channels: Int32s, *, many: bool = False, onward: bool = False
) -> None:
    """A minute is to be made of what is stored. ``many``: of any channel."""
    if len(channels):
        named = None if many else channels.tolist()
        await connection.execute(load("write")["dirty"], timestamp(begin), timestamp(begin + MINUTE_US), named, onward)


async def _copy(connection: asyncpg.Connection[Any], closed: Closed, fresh: Rows) -> None:
    if len(fresh):
        stream = cast(Any, minute_stream(fresh, closed.begin))
        await connection.copy_to_table(
            "rollup_1m", schema_name="plant", source=stream, columns=MINUTE_COLUMNS, format="binary"
        )
    states = closed.states.part(np.isin(closed.states.channel_id, fresh.channel_id))
    if len(states.channel_id):
        stream = cast(Any, state_stream(states, closed.begin))
        await connection.copy_to_table(
            "rollup_states_1m", schema_name="plant", source=stream, columns=STATE_COLUMNS, format="binary"
        )
