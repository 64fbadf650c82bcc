"""PostgreSQL's CPU and WAL for a row, against rows a group and with other settings.

Each way has a server of its own with the same rows in it. Groups go to the servers in turn, as the machine's own speed
drifts. Every group is of other channels than the one before, as it is where channels have a sample a second each.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from ingest.batch import SampleBatch
from ingest.spool.format import SpooledBatch
from ingest.writer.connection import connect
from ingest.writer.copy_stream import COLUMNS, copy_stream
from ingest.writer.group import TimeLimits, assemble, part
from ingest.writer.repeating import Repeating
from ingest.writer.transaction import write
from ops.bench.copy_speed import Bench, prepare
from ops.bench.rows import Load
from ops.bench.server import private
from schema.queries import load as queries

_BATCH = 500  # samples, as collectors send them
_FILLED_AT_ONCE = 30  # seconds of all channels
_ANY_TIME = TimeLimits(1e12, 1e12)
_TIME_OUT = 60.0  # s


@dataclass(frozen=True, slots=True)
class Cost:
    """What a row cost, as the median of the rounds."""

    settings: str  # NAME=VALUE of PostgreSQL; empty: those that plantlog gives its server
    group: int  # rows
    after_checkpoint: bool  # the first seconds after one, in which pages are logged as a whole
    cpu_us: float  # of the connection's backend
    wal_bytes: float
    full_pages: float


@dataclass(slots=True)
class _Way:
    settings: str
    load: Load
    ingest: asyncpg.Connection[Any]
    owner: asyncpg.Connection[Any]
    second: int = 0  # that comes next
    batches: int = 0
    repeating: Repeating = field(default_factory=Repeating)

    async def fill(self, seconds: int) -> None:
        """So many seconds of all channels, fast."""
        while self.second < seconds:
            several = range(self.second, min(seconds, self.second + _FILLED_AT_ONCE))
            made = [self.load.batch(second) for second in several]
            order = np.lexsort((np.concatenate([b.time for b in made]), np.concatenate([b.channel_id for b in made])))
            columns = ([getattr(b, name) for b in made] for name in ("channel_id", "time", "value", "status"))
            stream: Any = copy_stream(*(np.concatenate(column)[order] for column in columns))
            await self.ingest.copy_to_table(
                "samples_raw", schema_name="plant", source=stream, columns=COLUMNS, format="binary"
            )
            self.second = several[-1] + 1

    async def write(self, group: int, seconds: int) -> tuple[float, float, float]:
        """So many seconds in groups of some ``group`` rows: µs, bytes of WAL and full pages a row."""
        batches = [b for _ in range(seconds) for b in self._batches()]
        wal, cpu = await self._wal(), _cpu_us(self.ingest)
        together = max(1, group // len(batches[0].batch))
        for first in range(0, len(batches), together):
            some = batches[first : first + together]
            await write(self.ingest, assemble([(Path("bench"), some)], _ANY_TIME), some, self.repeating)
        cpu = _cpu_us(self.ingest) - cpu
        rows = sum(len(b.batch) for b in batches)
        after = await self._wal()
        return cpu / rows, (after[0] - wal[0]) / rows, (after[1] - wal[1]) / rows

    def _batches(self) -> list[SpooledBatch]:
        second: SampleBatch = self.load.batch(self.second)
        self.second += 1
        made = []
        for first in range(0, len(second), _BATCH):
            batch = part(second, slice(first, first + _BATCH))
            self.batches += 1
            made.append(SpooledBatch(self.batches, int(batch.time.min()), int(batch.time.max()), batch))
        return made

    async def _wal(self) -> tuple[float, float]:
        await self.ingest.execute(queries("bench")["flush"])  # the backend counts by itself until then
        row = await self.owner.fetchrow(queries("bench")["wal"])
        return (row["bytes"], row["full_pages"]) if row else (0.0, 0.0)


def measure(
    ways: Sequence[str],
    sizes: Sequence[int],
    channels: int,
    seconds: int,
    rounds: int,
    folder: Path,
    say: Callable[[str], None],
) -> list[Cost]:
    """``ways``: settings of PostgreSQL, NAME=VALUE, several with commas; the default ones come first.

    ``seconds`` of all ``channels`` are there before anything is measured: with some hundreds each channel has a leaf of
    the key to itself, as after some minutes of a plant.
    """
    with ExitStack() as servers:
        where = []
        for number, settings in enumerate(("", *ways)):
            options = [word for one in settings.split(",") if one for word in ("-c", one)]
            (at := folder / f"way-{number}").mkdir()
            where.append((settings, servers.enter_context(private(at, options))))
        return asyncio.run(compare(where, sizes, channels, seconds, rounds, say))


async def compare(
    where: Sequence[tuple[str, Bench]],
    sizes: Sequence[int],
    channels: int,
    seconds: int,
    rounds: int,
    say: Callable[[str], None],
) -> list[Cost]:
    """As :func:`measure`, of settings and the databases that have them."""
    async with AsyncExitStack() as connections:
        ways = []
        for settings, bench in where:
            load = await prepare(bench, channels, seconds + rounds * (len(sizes) + 1) * 2)
            ingest, owner = await connect(bench.ingest_dsn, _TIME_OUT), await asyncpg.connect(bench.owner_dsn)
            connections.push_async_callback(ingest.close)
            connections.push_async_callback(owner.close)
            way = _Way(settings, load, ingest, owner)
            await way.fill(seconds)
            say(f"{settings or 'as it is'}: {seconds * channels:,} rows are there")
            ways.append(way)
        # The first is not counted: a new connection has much to look up.
        cells = [(sizes[0], True), *((size, False) for size in sizes)]
        costs: dict[tuple[str, int, bool], list[tuple[float, float, float]]] = {}
        for done in range(rounds + 1):
            for way in ways:
                await way.owner.execute("CHECKPOINT")
                for size, after in cells if done else cells[:1]:
                    cost = await way.write(size, 2)
                    costs.setdefault((way.settings, size, after), []).extend([cost] if done else [])
            say(f"round {done} of {rounds}")
    return [Cost(*cell, *map(statistics.median, zip(*each, strict=True))) for cell, each in sorted(costs.items())]


def _cpu_us(connection: asyncpg.Connection[Any]) -> float:
    """That its backend has used."""
    return int(Path(f"/proc/{connection.get_server_pid()}/schedstat").read_text().split()[0]) / 1e3
