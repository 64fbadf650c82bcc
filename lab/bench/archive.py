"""An archived day beside the same day in the database, in one run: CPU of archiving, bytes, and queries.

PostgreSQL is asked while the samples are in the database, DuckDB (``plantlog sql``) after retention has dropped them.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import psutil

from core.batch import Int32s, Int64s
from core.database import connected
from core.errors import OperationError
from core.paths import State
from core.samples import Samples
from core.timestamps import microseconds
from history.archive.location import Location
from history.archive.manifest import Manifest, claim
from history.archive_days.day import archive_day, own_installation
from history.imports.whole_hours import copy_packed, packed_days
from history.seals.seal import seal_days
from history.sql.session import opened
from history.sql.sources.execution import Limits
from lab.bench.data import SECOND, values
from lab.bench.usage import used_seconds
from ops.registration.installation import installation_id
from schema.queries import load

SERIES = ("transmitter", "noisy")
_START = datetime(2026, 9, 22, tzinfo=UTC)
_DAY = timedelta(days=1)
_DAY_SECONDS = 86_400
_LIMITS = Limits("4GiB", 2, 3600.0)  # for one query
_CHANNELS = 50  # of a unit of the plant; as many are filled at a time
QUERIES = ("all_by_minute", "all_by_channel", "hour_by_minute", "unit_by_minute", "one_by_minute", "runs")
_SETTINGS = {"jit": "off", "timezone": "UTC", "search_path": "plant, public", "max_parallel_workers_per_gather": "0"}
ProgressCallback = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ArchivedSeries:
    """A day of one series. CPU is that of this process and of its session's server process."""

    series: str
    samples: int
    archive_cpu_us: float  # a sample: reading, writing, and verifying
    archive_bytes: float  # a sample: all files
    packed_bytes: float  # a sample: in the database, with indexes


@dataclass(frozen=True, slots=True)
class QueryCost:
    """Cost of a query in both."""

    query: str
    samples: int  # that it reads
    database_seconds: float
    database_cpu_ns: float  # a sample
    archive_seconds: float
    archive_cpu_ns: float  # a sample

    @property
    def ratio(self) -> float:
        """CPU of the database's answer over that of the archive's."""
        return self.database_cpu_ns / self.archive_cpu_ns


@dataclass(frozen=True, slots=True)
class ArchiveFigures:
    """The results."""

    series: list[ArchivedSeries]
    queries: list[QueryCost]


async def measure(dsn: str, state: State, folder: Path, channels: int, progress: ProgressCallback) -> ArchiveFigures:
    """Measure all cells.

    ``dsn``: the owner of a migrated, empty database; ``state``: its folder; ``folder``: the archive's.
    """
    async with connected(dsn, "plantlog bench", _SETTINGS) as connection:
        ids = await _register(connection, state, channels)
        closed = _START + len(SERIES) * _DAY
        for number, series in enumerate(SERIES):
            await _fill(connection, series, _START + number * _DAY, ids)
            progress(f"{series} is stored")
        await connection.execute(load("bench")["vacuum_samples"])
        await seal_days(dsn, state, closed)
        progress("the days are sealed")
        location = Location.at(str(folder))
        claim(location, has_days=False)
        installation = await own_installation(connection, state)
        archived = []
        for number, series in enumerate(SERIES):
            day = _START + number * _DAY
            packed = await connection.fetchval(load("bench")["select_packed_bytes"], day)
            with _cpu(connection) as seconds:
                manifest = await archive_day(connection, installation, location, day.date(), state)
            archived.append(_series(series, manifest, seconds[0], packed))
            progress(f"{series} is archived")
        answers = [await _ask_database(connection, name, ids) for name in QUERIES]
        await connection.execute(load("bench")["drop_samples"], _START, closed)
        costs = await asyncio.to_thread(_ask_archive, state, ids, answers, progress)
        return ArchiveFigures(archived, costs)


def _series(series: str, manifest: Manifest, seconds: float, packed: int) -> ArchivedSeries:
    n = manifest.samples
    return ArchivedSeries(series, n, seconds / n * 1e6, manifest.bytes / n, packed / n)


async def _register(connection: asyncpg.Connection[Any], state: State, channels: int) -> list[int]:
    """An installation that seals and archives, and its channels; their ids."""
    await connection.execute(load("bench")["insert_channels"], channels)
    await connection.execute(load("bench")["insert_installation"], installation_id(state))
    return [row["id"] for row in await connection.fetch(load("bench")["select_channels"])]


async def _fill(connection: asyncpg.Connection[Any], series: str, day: datetime, ids: Sequence[int]) -> None:
    """A day at 1 Hz, packed."""
    random = np.random.default_rng(6)
    for first in range(0, len(ids), _CHANNELS):
        part: Int32s = np.array(ids[first : first + _CHANNELS], np.int32)
        value = np.concatenate([values(series, _DAY_SECONDS, random) for _ in part])
        time_us: Int64s = np.tile(microseconds(day) + np.arange(_DAY_SECONDS) * SECOND, len(part))
        days = await packed_days(connection, time_us)
        if not days:
            raise OperationError(
                f"{day:%Y-%m-%d} can't be packed: the benchmark requires packed hours, and a closed day"
            )
        samples = Samples(np.repeat(part, _DAY_SECONDS), time_us, value, np.zeros(len(value), np.uint32))
        async with connection.transaction():
            await copy_packed(days, connection, samples)


_DATABASE_ALL = "samples_between('{first}', '{last}')"
_DATABASE_SOME = "samples_between(ARRAY[{ids}], '{first}', '{last}')"
_ARCHIVE_ALL = "(FROM samples WHERE time >= TIMESTAMPTZ '{first}' AND time < TIMESTAMPTZ '{last}')"
_ARCHIVE_SOME = f"(FROM {_ARCHIVE_ALL} WHERE channel_id IN ({{ids}}))"


def query(name: str, ids: Sequence[int], *, archive: bool) -> tuple[str, int]:
    """A query in one of the dialects, and the number of samples that it reads."""
    channel_ids = {"one_by_minute": ids[:1], "unit_by_minute": ids[:_CHANNELS]}.get(name, ids)
    length = timedelta(hours=1) if name == "hour_by_minute" else _DAY
    text = load("bench")[{"all_by_channel": "query_deviations", "runs": "query_runs"}.get(name, "query_minutes")]
    forms = (_ARCHIVE_ALL, _ARCHIVE_SOME) if archive else (_DATABASE_ALL, _DATABASE_SOME)
    samples = forms[channel_ids is not ids].format(
        first=_START.isoformat(), last=(_START + length).isoformat(), ids=", ".join(map(str, channel_ids))
    )
    return text.format(samples=samples), len(channel_ids) * int(length.total_seconds())


@dataclass(frozen=True, slots=True)
class _Answer:
    """The database's answer to a query."""

    name: str
    samples: int  # that are read
    row: tuple[float, ...]
    seconds: float
    cpu_seconds: float


async def _ask_database(connection: asyncpg.Connection[Any], name: str, ids: Sequence[int]) -> _Answer:
    text, samples = query(name, ids, archive=False)
    started = time.perf_counter()
    with _cpu(connection) as used:
        [row] = await connection.fetch(text)
    return _Answer(name, samples, tuple(map(float, row)), time.perf_counter() - started, used[0])


def _ask_archive(
    state: State, ids: Sequence[int], answers: Sequence[_Answer], progress: ProgressCallback
) -> list[QueryCost]:
    """Ask the queries of the archive. Raises OperationError for another answer."""
    with opened(state, _LIMITS) as session:

        def row_of(text: str) -> tuple[Any, ...]:
            with session.rows(text) as (_, rows):
                [row] = rows
            return row

        texts = [query(answer.name, ids, archive=True)[0] for answer in answers]
        return [_cost(answer, partial(row_of, text), progress) for answer, text in zip(answers, texts, strict=True)]


def _cost(answer: _Answer, ask: Callable[[], tuple[Any, ...]], progress: ProgressCallback) -> QueryCost:
    """Cost of the archive's answer, which has to be the database's."""
    started, cpu = time.perf_counter(), _cpu_seconds()
    row = ask()
    seconds, cpu = time.perf_counter() - started, _cpu_seconds() - cpu
    if not np.allclose(np.array(row, float), answer.row, rtol=1e-9, atol=0):
        raise OperationError(f"{answer.name}: found {row} in the archive, {answer.row} in the database")
    progress(f"{answer.name} was asked of both")
    per_sample = 1e9 / answer.samples  # ns a second
    return QueryCost(
        answer.name, answer.samples, answer.seconds, answer.cpu_seconds * per_sample, seconds, cpu * per_sample
    )


def _cpu_seconds() -> float:
    """CPU so far of this process, and of the questions' processes, which have ended."""
    return used_seconds(resource.RUSAGE_SELF) + used_seconds(resource.RUSAGE_CHILDREN)


@contextmanager
def _cpu(connection: asyncpg.Connection[Any]) -> Iterator[list[float]]:
    """Measure the block: afterwards the list holds the CPU (s) of this process and of the session's server process."""
    server = psutil.Process(connection.get_server_pid())

    def now() -> float:
        return time.process_time() + server.cpu_times().user + server.cpu_times().system

    used: list[float] = []
    started = now()
    yield used
    used.append(now() - started)
