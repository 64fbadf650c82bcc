"""Whether the appliance is stopped, since when, and what starts it."""

from __future__ import annotations

from typing import Any

from core.errors import OperationError
from core.paths import State
from core.timestamps import iso
from ops.appliance import service
from ops.appliance.supervisor import Supervisor
from ops.deployment import Running


def stopped(state: State) -> dict[str, Any] | None:
    """``since`` (s since 1970; None: `down` did not stop it), and the command that ``start``s it; None: it runs, or
    was never started."""
    last = Running.load(state)
    if last is None or Supervisor(state).answers():
        return None
    since = None if last.stopped_at is None else last.stopped_at / 1e6
    installed = service.installed(state)
    return {"since": since, "start": f"systemctl start {installed.name}" if installed else "plantlog up"}


def describe(state: dict[str, Any]) -> str:
    """Describe the result of :func:`stopped` in a sentence."""
    since = state["since"]
    how = "was not stopped by `plantlog down`" if since is None else f"was stopped at {iso(int(since * 1e6))[:19]}Z"
    return f"plantlog does not run: it {how}. `{state['start']}` starts it"


def check_own_database(state: State) -> None:
    """Raise OperationError if the database is plantlog's own, and is stopped with it."""
    if not state.has_external_database and (server := stopped(state)) is not None:
        raise OperationError(describe(server))
