"""Client of the collectors' alarm sockets in the state folder."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from core.config.sources import PRIORITIES
from core.errors import OperationError
from core.paths import State

_STATES_SHOWN = (
    "unacknowledged_active",
    "latched_unacknowledged",
    "return_to_normal_unacknowledged",
    "acknowledged_active",
)


def list_alarms(state: State, include_all: bool) -> list[dict[str, Any]]:
    """Alarms that need an operator, most urgent first; with ``include_all`` each limit of each channel.

    Raises OperationError where no collector runs, or one does not answer.
    """
    from ingest.alarms import command_socket  # noqa: PLC0415  (takes longer than any other command needs)

    answers = asyncio.run(command_socket.request(state.run, "GET", "/alarms"))
    if not answers:
        raise command_socket.no_collector(state.run)
    alarms = []
    for status, payload in answers:
        if status != 200:
            raise OperationError(payload["error"])
        alarms += payload
    if include_all:
        return sorted(alarms, key=lambda alarm: alarm["channel"])
    shown = [alarm for alarm in alarms if alarm["state"] in _STATES_SHOWN]
    return sorted(
        shown,
        key=lambda a: (_STATES_SHOWN.index(a["state"]), PRIORITIES.index(a["priority"]), -a["since"], a["channel"]),
    )


def execute(state: State, command: Mapping[str, Any]) -> list[str]:
    """Send a command to the collectors; return what was done. Raises as ``command_socket.send``."""
    from ingest.alarms import command_socket  # noqa: PLC0415  (as above)

    return asyncio.run(command_socket.send(state.run, command))
