"""``plantlog admin spool accept-database``: the next database that the writer reaches is the right one."""

from __future__ import annotations

from core.errors import OperationError
from core.paths import State
from ingest.writer.restored.commit_mark import FILE
from ingest.writer.restored.restore_check import ACCEPT


def accept(state: State) -> None:
    """Tell the writer. Raises OperationError where nothing was written yet."""
    if not (state.spool / FILE).exists():
        raise OperationError(f"the writer of {state.root} has not written to any database yet: it accepts any")
    (state.spool / ACCEPT).touch()
