"""Increments per second through spool and writer, beside two methods that do not aggregate first, in one run.

Each round measures all three ways in turn, for the same time and with as many connections, into emptied tables that are
equal; afterwards each type's sum in the table is compared with what was sent. Figures are medians of the rounds, as the
machine's own speed drifts.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import asyncpg
import numpy as np

from core.batch import Int32s
from core.config.model import WriterOptions
from core.errors import OperationError
from ingest.writer.writer import Writer
from lab.bench.copy_speed import BenchDatabase
from lab.bench.increments import BATCH, Increments
from schema.queries import load as queries

Method: TypeAlias = Literal["spool + writer", "sorted multi-row upserts", "one upsert per increment"]

_IN_FLIGHT = 800_000  # increments that are durable and not yet written: two transactions of the writer
_UPSERTS_PER_TRANSACTION = 1_000  # upserts a transaction
_POLL_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class CounterSpeed:
    """One way to count."""

    way: Method
    increments_per_second: float  # the median
    rounds: list[float]
    increments: int  # in all rounds
    ratio: float  # to one upsert per increment


async def measure(
    bench: BenchDatabase, types: int, connections: int, seconds: float, rounds: int, progress: Callable[[str], None]
) -> list[CounterSpeed]:
    """All three ways. Raises OperationError where a table does not hold what was sent."""
    owner = await asyncpg.connect(bench.owner_dsn)
    try:
        await owner.execute(queries("bench")["insert_channels"], 0)
        await owner.execute(queries("bench")["create_reference_counts"])
        run = _Run(
            bench, await owner.fetchval(queries("bench")["select_source_id"]), Increments(types), connections, seconds
        )
        found: dict[Method, list[tuple[int, float]]] = {way: [] for way in get_args(Method)}
        for _ in range(rounds):
            for way, measured in found.items():
                await owner.execute(queries("bench")["truncate_counts"])
                await owner.execute("CHECKPOINT")
                batches, elapsed = await run.methods[way]()
                await _check(owner, way, run.increments.expected(batches))
                measured.append((batches * BATCH, elapsed))
                progress(f"{way}: {batches * BATCH / elapsed:,.0f} increments/s")
    finally:
        await owner.close()
    rates = {way: [n / elapsed for n, elapsed in measured] for way, measured in found.items()}
    least = statistics.median(rates["one upsert per increment"])
    return [
        CounterSpeed(way, statistics.median(of), of, sum(n for n, _ in found[way]), statistics.median(of) / least)
        for way, of in rates.items()
    ]


async def _check(owner: asyncpg.Connection[Any], way: Method, expected: dict[str, int]) -> None:
    column = "written" if way == "spool + writer" else "reference"
    rows = await owner.fetch(queries("bench")["compare_counts"])
    if {row["type"]: row[column] for row in rows} != expected:
        held = sum(row[column] for row in rows)
        raise OperationError(f"{way}: {sum(expected.values())} increments were sent, the table holds {held}")


class _Run:
    """The ways, each of which gives how many batches it counted, and in how many seconds."""

    def __init__(
        self, bench: BenchDatabase, source: int, increments: Increments, connections: int, seconds: float
    ) -> None:
        self.increments = increments
        self.methods: dict[Method, Callable[[], Awaitable[tuple[int, float]]]] = {
            "spool + writer": self._spool_and_writer,
            "sorted multi-row upserts": lambda: self._upserts(_upsert_many),
            "one upsert per increment": lambda: self._upserts(_upsert_each),
        }
        self._bench = bench
        self._source = source
        self._connections = connections
        self._seconds = seconds

    async def _spool_and_writer(self) -> tuple[int, float]:
        """Measure from the first append to the commit of the last increment."""
        folder = self._bench.folder / "counts"
        folder.mkdir()
        spool = folder / "bench.sqlite"
        writer = Writer(folder, self._bench.ingest_dsn, WriterOptions(connections=self._connections, max_delay=0.0))
        running = asyncio.create_task(writer.run())
        while writer.database != "connected":
            await asyncio.sleep(_POLL_SECONDS)
        arguments = (spool, self._source, len(self.increments.types), self._seconds, _IN_FLIGHT)
        feeder = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lab.bench.count_feeder", *map(str, arguments)), stdout=asyncio.subprocess.PIPE
        )
        while not spool.exists() and feeder.returncode is None:  # Python's own start is not part of it
            await asyncio.sleep(_POLL_SECONDS)
        started = time.perf_counter()
        output, _ = await feeder.communicate()
        if feeder.returncode:
            raise OperationError(f"the process that feeds the spool exited with {feeder.returncode}")
        while writer.increments < int(output) * BATCH and not running.done():
            await asyncio.sleep(_POLL_SECONDS)
        elapsed = time.perf_counter() - started
        writer.drain()
        await running
        shutil.rmtree(folder)
        return int(output), elapsed

    async def _upserts(
        self, upsert: Callable[[asyncpg.Connection[Any], tuple[str, ...], Int32s], Awaitable[None]]
    ) -> tuple[int, float]:
        """Batches in turn, on all connections, until the time is over."""
        numbers = itertools.count()
        connections = [await asyncpg.connect(self._bench.owner_dsn) for _ in range(self._connections)]
        started = time.perf_counter()

        async def work(connection: asyncpg.Connection[Any]) -> int:
            done = 0
            while time.perf_counter() - started < self._seconds:
                await upsert(connection, self.increments.types, self.increments.kinds(next(numbers)))
                done += 1
            return done

        done = await asyncio.gather(*(work(connection) for connection in connections))
        elapsed = time.perf_counter() - started
        for connection in connections:
            await connection.close()
        return sum(done), elapsed


async def _upsert_each(connection: asyncpg.Connection[Any], types: tuple[str, ...], kinds: Int32s) -> None:
    """Sorted within a transaction, else connections would deadlock."""
    for at in range(0, len(kinds), _UPSERTS_PER_TRANSACTION):
        names = sorted(types[kind] for kind in kinds[at : at + _UPSERTS_PER_TRANSACTION].tolist())
        await connection.executemany(queries("bench")["upsert_count"], [(name,) for name in names])


async def _upsert_many(connection: asyncpg.Connection[Any], types: tuple[str, ...], kinds: Int32s) -> None:
    """As few statements as can be: none may touch a row twice, so the first has each type's first increment, and on."""
    async with connection.transaction():
        for distinct in _distinct_layers(kinds):
            await connection.execute(
                queries("bench")["upsert_counts"], sorted(types[kind] for kind in distinct.tolist())
            )


def _distinct_layers(kinds: Int32s) -> Iterator[Int32s]:
    """Types that stand there at least once, at least twice, ..."""
    times = np.bincount(kinds)
    for least in range(1, int(times.max()) + 1):
        yield np.flatnonzero(times >= least).astype(np.int32)
