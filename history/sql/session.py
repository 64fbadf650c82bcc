"""A session of DuckDB over archive and database, as the reader and within limits."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from itertools import chain, count
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

import duckdb

from core.errors import OperationError, PlantlogError
from core.files import folder_lock
from core.imports import uncollected
from core.paths import State, temporary_folder
from history.sql.sources.execution import Limits
from history.sql.statements import named
from schema.queries import load

if TYPE_CHECKING:
    from history.sql.sources.plants import PlantArchives
    from schema.question_files import Question

_FETCHED = 10_000  # rows
_WRITTEN = 100_000  # rows of a batch
_END_SECONDS = 5.0
_TEMPORARY = "8GiB"  # of files beside the memory
_VIEW = re.compile(r"^CREATE VIEW (\w+)", re.MULTILINE)
_LISTS = re.compile(r"\bSHOW\b|duckdb_|information_schema|pg_|pragma_|sqlite_", re.IGNORECASE)  # perhaps tables
_PREFIX = "session-"  # of their folders


class OutOfMemoryError(OperationError):
    """A query needs more than it may take."""


class Session:
    """Queries, one at a time."""

    def __init__(
        self,
        connection: Any,
        cancel: Callable[[], object],
        failures: list[BaseException],
        limits: Limits,
        later: Sequence[Callable[[], None]],
    ) -> None:
        """``cancel``: ends what is done elsewhere for a query; ``later``: make the plant's tables and then functions,
        once a query needs some: they are half of a start's CPU."""
        self._connection = connection
        self._cancel = cancel
        self._failures = failures
        self._limits = limits
        self._later = list(later)
        self.names: Sequence[str] = ()  # of plantlog's tables and views, once they are made
        self.notes: list[str] = []  # about files that became tables
        self._ends_at = 0.0

    @contextmanager
    def rows(
        self, query: str | Any, parameters: Sequence[Any] = ()
    ) -> Iterator[tuple[tuple[str, ...], Iterator[tuple[Any, ...]]]]:
        """Columns and rows of a query that is one statement, or of one of :meth:`statements`.

        Raises OperationError or DatabaseError.
        """
        with self._cursor(query, parameters) as cursor:
            yield _distinct([column[0] for column in cursor.description or ()]), self._fetched(cursor)

    def table(self, query: str, parameters: Sequence[Any] = ()) -> Any:
        """Rows of a query as a table of Arrow, times in UTC, intervals as durations, both in µs. Errors as of rows."""

        import pyarrow as pa  # noqa: PLC0415 (a start is quicker without it)

        def fetch() -> Any:
            return self._connection.sql(query, params=list(parameters) or None).to_arrow_table()

        with self._limited():
            table = self._work(fetch)
        for index, field in enumerate(table.schema):
            if pa.types.is_interval(field.type):
                table = table.set_column(index, field.name, _durations(table.column(index)))
        return table

    def statements(self, query: str) -> list[Any]:
        """The statements of a query, for :meth:`rows`. Raises OperationError if one of them is none."""
        with self._limited():
            statements: list[Any] = self._connection.extract_statements(query)
        return statements

    def execute(self, query: str, parameters: Sequence[Any], ends_at: float) -> None:
        """Run a query without rows. ``ends_at``: when time is up, by time.monotonic, for several that share it."""
        with self._cursor(query, parameters, ends_at):
            pass

    def write_arrow(self, query: str, path: Path) -> int:
        """Write the rows of a query to a file of Arrow. Returns their number. Errors as of rows."""

        import pyarrow as pa  # noqa: PLC0415 (as above)

        def write() -> int:
            reader, n = self._connection.sql(query).to_arrow_reader(_WRITTEN), 0
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
                    n += batch.num_rows
            return n

        with self._limited():
            if _LISTS.search(query):
                self._work(self._make_all)
            written: int = self._work(write)
        return written

    def set_zone(self, time_zone: str) -> None:
        """Set the zone of times without an offset, and of those that are shown. Raises OperationError."""
        try:
            self._connection.execute("SET TimeZone = $1", [time_zone])
        except duckdb.Error as error:
            legal = "a name of the IANA, such as Europe/Berlin or UTC"
            raise OperationError(f"--time-zone: found {time_zone!r}; legal: {legal}") from error

    def add(self, tables: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        """Add tables of Arrow and files. Raises OperationError."""
        if not tables and not files:
            return
        from history.sql.own_tables import create, require_free  # noqa: PLC0415 (few sessions need it)

        with self._limited():
            self._work(self._make_all)
            require_free((*tables, *files), self.names)
            for name, table in tables.items():
                self._connection.register(name, table)
            for name, file in files.items():
                self.notes += self._work(create, self._connection, name, file)

    def _require_own_name(self, statement: str) -> None:
        """Raise OperationError for a table or view that would hide one of plantlog's."""
        if name := named(statement):
            from history.sql.own_tables import require_free  # noqa: PLC0415 (few sessions need it)

            require_free([name], self.names)

    @contextmanager
    def _cursor(self, query: str | Any, parameters: Sequence[Any], ends_at: float | None = None) -> Iterator[Any]:
        with self._limited(ends_at):
            if not isinstance(query, str) and query.type != duckdb.StatementType.SELECT:
                self._work(self._make_all)  # else a transaction ends by an error, and a macro takes a name
                self._require_own_name(query.query)
            elif not isinstance(query, str) and _LISTS.search(query.query):
                self._work(self._make_all)
            yield self._work(self._connection.execute, query, parameters)

    @contextmanager
    def _limited(self, ends_at: float | None = None) -> Iterator[None]:
        """Time that work may take, and its errors. ``ends_at``: as of :meth:`execute`."""
        self._failures.clear()
        self._ends_at = time.monotonic() + self._limits.seconds if ends_at is None else ends_at
        with _errors(self._limits, self._failures):
            yield

    def _fetched(self, cursor: Any) -> Iterator[tuple[Any, ...]]:
        while rows := self._work(cursor.fetchmany, _FETCHED):
            yield from rows

    def _work(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Result of a call in another thread: this one notices Ctrl-C, and that time is up."""
        done: Future[Any] = Future()

        def work() -> None:
            try:
                done.set_result(self._call(call, *arguments))
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=work, name="plantlog sql query", daemon=True).start()
        try:
            wait([done, self._limits.stop], max(0.0, self._ends_at - time.monotonic()), FIRST_COMPLETED)
        except KeyboardInterrupt:
            self._end(done)
            raise
        if not done.done():
            self._end(done)
            raise self._limits.overdue()
        return done.result()

    def _call(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Result of a call. It may lack what is made later: then it has done nothing yet."""
        while True:
            try:
                return call(*arguments)
            except duckdb.CatalogException:
                if not self._later:
                    raise
                self._make_next()

    def _make_all(self) -> None:
        while self._later:
            self._make_next()

    def _make_next(self) -> None:
        self._later[0]()
        del self._later[0]  # not where it fails: the next query tries again

    def _end(self, done: Future[Any]) -> None:
        self._connection.interrupt()
        self._cancel()
        wait([done], _END_SECONDS)


@contextmanager
def _errors(limits: Limits, failures: Sequence[BaseException]) -> Iterator[None]:
    """Errors of DuckDB as ours. ``failures``: of what it called meanwhile; they say more."""
    try:
        yield
    except duckdb.Error as error:
        for failure in failures:
            if isinstance(failure, PlantlogError):
                raise failure from error
        if isinstance(error, duckdb.OutOfMemoryException):
            text = f"the query needs more than {limits.memory} of memory: {limits.advice('--memory')}"
            raise OutOfMemoryError(text) from error
        if any(isinstance(failure, MemoryError) for failure in failures):
            raise OutOfMemoryError(f"the query needs more memory than there is: {limits.narrow}") from error
        raise OperationError(str(error)) from error


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Names of columns, of which later ones of the same name have a number behind it, as DuckDB has them in files."""
    distinct = dict[str, str]()  # by small letters
    for name in names:
        numbered = chain([name], (f"{name}_{number}" for number in count(1)))
        free = next(one for one in numbered if one.lower() not in distinct)
        distinct[free.lower()] = free
    return tuple(distinct.values())


def _durations(intervals: Any) -> Any:
    """Intervals, in which a month has 30 days, as durations."""
    import pyarrow as pa  # noqa: PLC0415 (as above)

    durations = [
        None
        if interval is None
        else timedelta(days=30 * interval.months + interval.days, microseconds=interval.nanoseconds // 1000)
        for interval in intervals.to_pylist()
    ]
    return pa.array(durations, pa.duration("us"))


@contextmanager
def opened(
    state: State,
    limits: Limits,
    installation: UUID | None = None,
    question: Question | None = None,
    executor: Executor | None = None,
    others: Mapping[str, Any] = MappingProxyType({}),
    files: Mapping[str, Path] = MappingProxyType({}),
    writable: Path | None = None,
    time_zone: str = "UTC",
    archives: PlantArchives | None = None,
) -> Iterator[Session]:
    """``installation``: the one whose channels questions are about (None: all); ``question``: the one that all queries
    are parts of, so that what is not samples is read once, and joins stay as they are written. ``executor``: computes
    kernels, and ends with the session; None: the one of the limits. ``others``: further tables, of Arrow; ``files``:
    of CSV or Parquet, which are read now, as no query can. ``writable``: the only file that a query may write.
    ``time_zone``: of times without an offset, and of those that are shown. ``archives``: of several plants, which are
    read in place of archive and database.

    Raises OperationError for limits that are none, files that can't be read and names that are taken, DatabaseError
    where the database can't be reached.
    """
    queries = load("duckdb")
    failures = list[BaseException]()  # what ended a query
    plants, functions = list[Any](), list[Any]()  # the plant's tables, and functions, once they are made
    with _errors(limits, failures), ExitStack() as stack:
        sources = stack.enter_context(ExitStack())  # ends when DuckDB reads no more
        if executor is not None:
            sources.callback(executor.shutdown, wait=False, cancel_futures=True)
        folder = stack.enter_context(_temporary_files())
        connection = duckdb.connect(
            config={
                "memory_limit": limits.memory,
                "threads": limits.threads,
                "temp_directory": str(folder),
                "max_temp_directory_size": _TEMPORARY,
            }
        )
        stack.callback(_close, connection)

        def read() -> None:
            with uncollected():
                from history.sql.plant_tables import plant_tables  # noqa: PLC0415 (it imports Arrow)

            with ExitStack() as opening:
                plant = opening.enter_context(
                    plant_tables(state, limits, failures, installation, question is not None, executor, archives)
                )
                for name, table in plant.tables.items():
                    connection.register(name, table)
                connection.execute(queries["views"])
                session.names = [*plant.tables, *_VIEW.findall(queries["views"])]
                sources.push(opening.pop_all())
            plants.append(plant)

        def make(text: str | None = None) -> None:
            from history.sql.functions import Functions  # noqa: PLC0415 (all kernels: few queries need them)

            if not functions:
                functions.append(Functions(plants[0].source, failures))
            functions[0].make(connection, text)

        later = (make,) if question else (read, make)
        session = Session(connection, lambda: [plant.cancel() for plant in plants], failures, limits, later)
        with suppress(duckdb.InvalidInputException):  # a notebook that can't show it says so
            connection.execute("SET enable_progress_bar = false")  # else it is printed at a prompt of Python
        connection.execute(queries["settings"])
        if question is not None:
            read()
            make(f"{question.portion} {question.finish} {queries['select_judged']} usual_intervals")
            connection.execute(queries["ask"])
            connection.execute(question.macro)
        session.add(others, files)
        session.set_zone(time_zone)
        connection.execute("SET allowed_paths = $1", [[str(writable)] if writable else []])
        connection.execute(queries["lock"])
        yield session


def _close(connection: Any) -> None:
    """Close it, unless a query waits for storage that does not answer: why the session ends says more."""
    with suppress(duckdb.Error):
        connection.close()


@contextmanager
def _temporary_files() -> Iterator[Path]:
    """A folder for what does not fit into memory. Those of sessions that were killed are removed."""
    folders = temporary_folder("plantlog-sql")
    with ExitStack() as stack:
        with folder_lock(folders):  # no other session removes this one's folder before it is locked
            for left in folders.glob(f"{_PREFIX}*"):
                with suppress(OSError), folder_lock(left, _leave):
                    rmtree(left, ignore_errors=True)
            temporary = TemporaryDirectory(prefix=_PREFIX, dir=folders, ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(temporary))
            stack.enter_context(folder_lock(folder))
        yield folder


def _leave() -> None:
    raise BlockingIOError
