"""Answers of ``plantlog sql`` and ``ask`` as files: Parquet, Arrow or CSV, by the ending of the name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from duckdb import ExpectedResultType, StatementType
from rich.console import Console
from rich.filesize import decimal
from rich.progress import Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from core.errors import OperationError
from core.files import atomic_path, file_errors
from history.sql.session import Session
from history.sql.statements import body

_FORMATS = {".parquet": "FORMAT parquet, COMPRESSION zstd", ".csv": "FORMAT csv, HEADER", ".arrow": ""}


@contextmanager
def begun(file: Path) -> Iterator[Path]:
    """The path to write to in the block, which becomes ``file`` when it ends. Raises OperationError."""
    if file.suffix not in _FORMATS:
        raise OperationError(f"--output: found {str(file)!r}; legal: a name that ends with {', '.join(_FORMATS)}")
    if file.is_dir():
        raise OperationError(f"--output: found a folder, {file}; legal: a file")
    with file_errors(file), atomic_path(file) as partial:
        yield partial


def write(session: Session, query: str, file: Path, partial: Path, console: Console) -> int:
    """Run statements and write the rows of the last one to ``partial``. Returns their number.

    Raises OperationError or DatabaseError. ``console``: shows how much is written if it is a terminal.
    """
    statements = session.statements(query)
    if not statements:
        raise OperationError("--output: found no statement; legal: a SELECT")
    for number, statement in enumerate(statements, 1):
        is_last = number == len(statements)
        if is_last != (statement.expected_result_type == [ExpectedResultType.QUERY_RESULT]):
            found = "no rows" if is_last else "rows"
            raise OperationError(f"--output: statement {number} has {found}; legal: rows of the last statement alone")
        if is_last and statement.type != StatementType.SELECT:
            raise OperationError(f"--output: statement {number} is no SELECT; legal: a SELECT at the end")
    *before, last = statements
    for statement in before:
        with session.rows(statement):
            pass
    with _progress(file, partial, console):
        text = body(last.query)
        if copy := _copy(text, file, partial):
            with session.rows(copy) as (_, rows):
                [(n,)] = rows
            return int(n)
        return session.write_arrow(text, partial)


def write_table(table: Any, file: Path, partial: Path) -> None:
    """Write a table of Arrow to ``partial``, times in UTC."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("answer", table)
        if copy := _copy("FROM answer", file, partial):
            connection.execute(copy)
            return
    import pyarrow as pa  # noqa: PLC0415 (a start is quicker without it)

    with pa.OSFile(str(partial), "wb") as stream, pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)


def _copy(query: str, file: Path, partial: Path) -> str | None:
    """SQL that writes the rows of a query; None: DuckDB has no such format."""
    options = _FORMATS[file.suffix]
    return f"COPY (\n{query}\n) TO '{partial}' ({options}, USE_TMP_FILE false)" if options else None


@contextmanager
def _progress(file: Path, partial: Path, console: Console) -> Iterator[None]:
    columns = TextColumn("{task.description}"), _Size(partial), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task(f"write {file.name}", total=None)
        yield


class _Size(ProgressColumn):
    """Size of a file that grows."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def render(self, task: Task) -> Text:
        """The size, as of now."""
        return Text(decimal(self._path.stat().st_size))
