"""The plant's tables in DuckDB, of database and archive or of the archives of several plants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from core.paths import State
from history.sql.sources.execution import Limits
from history.sql.sources.samples import SampleSource
from history.sql.sources.scan import ScannedTable, Scans

if TYPE_CHECKING:
    from history.sql.sources.plants import PlantArchives

_END_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PlantTables:
    """Tables by name, and what reads their samples."""

    tables: Mapping[str, ScannedTable]
    source: SampleSource
    cancel: Callable[[], None]  # ends what is done for a query, in another thread


@contextmanager
def plant_tables(
    state: State,
    limits: Limits,
    failures: list[BaseException],
    installation: UUID | None,
    once: bool,
    executor: Executor | None,
    archives: PlantArchives | None,
) -> Iterator[PlantTables]:
    """``failures``: gets what ended a scan; ``once``: whether all queries are parts of one; the others: as of
    :func:`history.sql.session.opened`. Raises DatabaseError where the database can't be reached.
    """
    scans = Scans(failures)
    with ExitStack() as stack:
        computing = executor or limits.executor(state.root, None if archives is None else archives.questions)
        executors = computing, ThreadPoolExecutor(limits.threads)
        end_executors = partial(_end, executors)
        stack.callback(end_executors)
        source: SampleSource
        cancels = list[Callable[[], None]]()
        if archives is not None:
            from history.sql.sources import archive_tables, plant_samples  # noqa: PLC0415 (few sessions need them)

            source = plant_samples.PlantSamples(archives, *executors, limits.threads)
            own_tables = archive_tables.tables(archives, scans, source)
        else:
            from history.sql.sources import database, reader, tables  # noqa: PLC0415 (only these need its driver)

            connected = reader.ReaderConnection(state.dsn("reader"), installation, once=once)
            stack.callback(connected.close)
            source = database.DatabaseSamples(connected, state, *executors, limits.threads)
            own_tables = tables.tables(connected, source, scans, once)
            cancels.append(connected.cancel)
        stack.callback(scans.end, _END_SECONDS)
        stack.callback(end_executors)  # what reads does not wait for them
        if (interrupt := getattr(computing, "interrupt", None)) is not None:
            cancels.append(interrupt)
        yield PlantTables(own_tables, source, partial(_call_all, cancels))


def _call_all(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


def _end(executors: Sequence[Executor]) -> None:
    for executor in executors:
        executor.shutdown(wait=False, cancel_futures=True)
