"""``plantlog admin spool replay`` and ``accept-database``: requests to the writer."""

from __future__ import annotations

from datetime import UTC, datetime

from core.errors import OperationError
from core.formatting import count
from core.paths import State
from core.timestamps import iso, microseconds
from history.questions.ask import parse_time
from ingest.journal.replay import ReplayReport
from ingest.journal.replay import replay as write_again
from ingest.writer.restored.commit_mark import FILE
from ingest.writer.restored.restore_check import ACCEPT


def replay(state: State, since: str, until: str) -> ReplayReport:
    """Request it of the writer. Raises OperationError, also if the journal has nothing of the interval."""
    now = datetime.now(UTC)
    begin, end = parse_time("--from", since, now), parse_time("--to", until, now)
    if begin >= end:
        raise OperationError(f"--from {begin.isoformat()} is not before --to {end.isoformat()}")
    if not state.spool.is_dir():
        raise OperationError(f"{state.spool} does not exist: run `plantlog up`")
    try:
        report = write_again(state.spool, microseconds(begin), microseconds(end))
    except OSError as error:
        raise OperationError(f"cannot write to {state.spool}: {error.strerror}") from error
    if not report.batches:
        has = "it is empty" if report.begin is None else f"it begins at {iso(report.begin)}"
        raise OperationError(f"the journal has nothing that was committed in this interval; {has}")
    return report


def describe(report: ReplayReport) -> str:
    """The report as text."""
    assert report.first is not None and report.last is not None
    batches = f"{count(report.batches, 'batch')} with {count(report.rows, 'row')}"
    return (
        f"{batches}, committed from {iso(report.first)} to {iso(report.last)}, will be written again when nothing else "
        "waits; see `plantlog status`"
    )


def accept(state: State) -> None:
    """Tell the writer. Raises OperationError where nothing was written yet."""
    if not (state.spool / FILE).exists():
        raise OperationError(f"the writer of {state.root} has not written to any database yet: it accepts any")
    (state.spool / ACCEPT).touch()
