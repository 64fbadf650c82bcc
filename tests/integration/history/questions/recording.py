"""A plant written by SQL, before a question is asked: setup of tests without a collector."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
from numpy.typing import NDArray

from core.copy_stream import copy_stream
from core.paths import State
from core.samples import Samples
from core.timestamps import microseconds
from history.notebook import ask
from history.questions.ask import TimeRange, answer
from schema.question_files import questions
from simulator.tags import SimTag
from tests.database import Database
from tests.states import store_dsns

T0 = datetime(2026, 3, 9, 10, tzinfo=UTC)
BAD = 0x80050000
_SOURCE = "INSERT INTO plant.source (name, kind, address) VALUES ($1, 'modbus', '') RETURNING id"
_CHANNEL = """
INSERT INTO plant.channel (name, source_id, address, kind, unit, range_lo, range_hi, attributes, configured_at)
VALUES ($1, $2, '', $3, $4, $5, $6, $7, $8) RETURNING id
"""
_GAP = """
INSERT INTO plant.gap (source_id, channel_id, from_time, to_time, reason, backfilled_at)
VALUES ($1, $2, $3, $4, 'disconnected', CASE WHEN $5 THEN now() END)
"""
_QUARANTINED = """
INSERT INTO plant.quarantine (id, reason, source_id, received_at, channel_id, time_us, value, status)
VALUES ($1, 'future', $2, $3, $4, 4102444800000000, 1, 0)
"""
_EVENT = (
    "INSERT INTO plant.event (time, id, type, source_id, channel_id, text, detail) VALUES ($1, $2, $3, $4, $5, $6, $7)"
)


def at(seconds: float) -> datetime:
    """Time so many seconds after T0."""
    return T0 + timedelta(seconds=seconds)


def reading(database: Database, folder: Path) -> State:
    """A state folder whose questions are about a database."""
    state = State(folder)
    store_dsns(state, reader=database.reader_dsn)
    return state


class Recording:
    """One database under test: its owner writes, its reader asks."""

    def __init__(self, database: Database, folder: Path) -> None:
        """``folder``: a state folder; made here."""
        self._database = database
        self.state = reading(database, folder)
        self.ids: dict[str, int] = {}
        self._events = 0

    async def __aenter__(self) -> Recording:
        self._owner = await asyncpg.connect(self._database.owner_dsn)
        self._reader = await asyncpg.connect(self._database.reader_dsn, server_settings={"jit": "off"})
        self.source = await self._owner.fetchval(_SOURCE, "plc")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._owner.close()
        await self._reader.close()

    async def channel(
        self,
        name: str,
        kind: str = "analog",
        unit: str = "",
        lo: float | None = 0.0,
        hi: float | None = 100.0,
        interval: float | None = None,
        configured: float | None = None,
        wraps_at: float | None = None,
    ) -> None:
        """A channel without samples; ``configured`` is when it was (s; None: always)."""
        known = None if configured is None else at(configured)
        columns = {"expected_interval": interval, "wraps_at": wraps_at}
        attributes = json.dumps({name: value for name, value in columns.items() if value is not None})
        self.ids[name] = await self._owner.fetchval(_CHANNEL, name, self.source, kind, unit, lo, hi, attributes, known)

    async def pushed(self) -> None:
        """The source is a gateway, or an import."""
        await self._owner.execute("UPDATE plant.source SET kind = 'push' WHERE id = $1", self.source)

    async def new_unit(self, name: str, unit: str, seconds: float) -> None:
        """The channel's values are in this unit from then on."""
        versions = "UPDATE plant.channel_version SET {} = $1 WHERE channel_id = $2 AND {} = '{}'"
        await self._owner.execute("UPDATE plant.channel SET unit = $1 WHERE id = $2", unit, self.ids[name])
        await self._owner.execute(versions.format("valid_from", "valid_to", "infinity"), at(seconds), self.ids[name])
        await self._owner.execute(versions.format("valid_to", "valid_from", "-infinity"), at(seconds), self.ids[name])

    async def samples(
        self,
        name: str,
        seconds: Sequence[float] | NDArray[Any],
        values: Sequence[float] | NDArray[Any],
        status: int = 0,
    ) -> None:
        """Samples at so many seconds after T0; a channel that is not there yet is an analog one of 0 to 100."""
        if name not in self.ids:
            await self.channel(name)
        time = np.round(np.asarray(seconds, np.float64) * 1e6).astype(np.int64) + microseconds(T0)
        n = len(time)
        stream = copy_stream(
            Samples(
                np.full(n, self.ids[name], np.int32),
                time,
                np.asarray(values, np.float64),
                np.full(n, status, np.uint32),
            )
        )
        await self._owner.copy_to_table(
            "samples_raw",
            schema_name="plant",
            columns=["time", "value", "channel_id", "status"],
            source=io.BytesIO(stream),
            format="binary",
        )

    async def retired(self, name: str, seconds: float) -> None:
        """The configuration names the channel no longer."""
        await self._owner.execute("UPDATE plant.channel SET retired_at = $1 WHERE id = $2", at(seconds), self.ids[name])

    async def returned(self, name: str, retired: float, back: float) -> None:
        """The configuration named the channel no longer, and then again."""
        retirements = "UPDATE plant.channel SET retirements = tstzmultirange(tstzrange($1, $2)) WHERE id = $3"
        await self._owner.execute(retirements, at(retired), at(back), self.ids[name])

    async def standing(
        self, name: str, stands: float, refusals: Sequence[tuple[float, int]], kept: float = 5.0
    ) -> None:
        """Its source timestamp stands still: so many other values had been refused at so many seconds."""
        for seconds, refused in refusals:
            detail = {"at": at(stands).isoformat(), "kept_value": repr(kept), "kept_status": "0x00000000"}
            more = {"refused_value": repr(kept + refused), "refused_status": "0x00000000", "refused": refused}
            await self.event(seconds, "conflict", "time stands still", name, json.dumps({**detail, **more}))

    async def gap(self, name: str | None, begins: float, ends: float | None, backfilled: bool = False) -> None:
        """A gap of a channel, or of the whole source."""
        to_time = None if ends is None else at(ends)
        channel = None if name is None else self.ids[name]
        await self._owner.execute(_GAP, self.source, channel, at(begins), to_time, backfilled)

    async def quarantined(self, name: str, seconds: Sequence[float]) -> None:
        """Samples that came then, and were kept out."""
        for second in seconds:
            self._events += 1
            await self._owner.execute(_QUARANTINED, self._events, self.source, at(second), self.ids[name])

    async def event(self, seconds: float, kind: str, text: str, name: str | None = None, detail: str = "{}") -> None:
        """An event of a channel, or of the source."""
        self._events += 1
        channel = None if name is None else self.ids[name]
        await self._owner.execute(_EVENT, at(seconds), self._events, kind, self.source, channel, text, detail)

    async def plant(self, tags: Sequence[SimTag], seconds: NDArray[np.float64], rows: NDArray[np.float64]) -> None:
        """Store rows (n, tags) like collectors: of OPC UA tags the changes, of Modbus ones each poll."""
        for i, tag in enumerate(tags):
            if tag.kind == "text":
                continue
            interval = None if tag.register is None else 1.0
            await self.channel(tag.name, tag.kind, tag.unit, tag.lo, tag.hi, interval)
            column = rows[:, i]
            news = np.r_[True, column[1:] != column[:-1]] if tag.register is None else np.ones(len(column), np.bool_)
            await self.samples(tag.name, seconds[news], column[news])
        await self._owner.execute("ANALYZE plant.samples_raw")

    async def fetch(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        """The rows of a query of the database's reader."""
        return await self._reader.fetch(query, *arguments)

    async def ask(self, question: str, since: datetime, until: datetime, **options: Any) -> list[dict[str, Any]]:
        """The rows of an answer. ``options``: as those of ask()."""
        table = await asyncio.to_thread(ask, question, since=since, until=until, state=self.state, **options)
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    async def answer(
        self, question: str, since: datetime, until: datetime, channels: Sequence[str] = (), **options: str
    ) -> tuple[Any, str]:
        """The table of an answer, and the lines about it. ``options``: as texts."""
        interval = TimeRange(since.isoformat(), until.isoformat())
        return await asyncio.to_thread(answer, self.state, questions()[question], interval, channels, options)
