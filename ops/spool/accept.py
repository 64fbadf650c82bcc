"""``plantlog spool accept-database``: the next database that the writer reaches is the right one."""

from __future__ import annotations

from ingest.errors import OperationError
from ingest.writer.commit_mark import FILE
from ingest.writer.restored import ACCEPT
from ops.paths import State


def accept(state: State) -> None:
    """Tell the writer. Raises OperationError where nothing was written yet."""
    if not (state.spool / FILE).exists():
        raise OperationError(f"the writer of {state.root} has not written to any database yet: it accepts any")
    (state.spool / ACCEPT).touch()
