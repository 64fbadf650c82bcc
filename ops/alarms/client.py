"""Client of the collectors' alarm sockets in the state folder."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ingest.alarms.limits import PRIORITIES
from ingest.errors import OperationError
from ops.paths import State

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
    found = []
    for status, payload in _request(state, "GET"):
        if status != 200:
            raise OperationError(payload["error"])
        found += payload
    if include_all:
        return sorted(found, key=lambda alarm: alarm["channel"])
    shown = [alarm for alarm in found if alarm["state"] in _STATES_SHOWN]
    return sorted(
        shown,
        key=lambda a: (_STATES_SHOWN.index(a["state"]), PRIORITIES.index(a["priority"]), -a["since"], a["channel"]),
    )


def execute(state: State, command: Mapping[str, Any]) -> list[str]:
    """Send a command to the collector of the channel. Raises OperationError where none has it or it is refused."""
    answers = _request(state, "POST", command)
    done = [line for status, payload in answers if status == 200 for line in payload["done"]]
    if not done:
        errors = [payload["error"] for status, payload in answers if status != 200]
        # A collector that has the channel says more than one that does not know it.
        raise OperationError(next((reason for reason in errors if not reason.startswith("no channel")), errors[0]))
    return done


def _request(state: State, method: str, command: Mapping[str, Any] | None = None) -> list[tuple[int, Any]]:
    """Status and payload of each collector that listens; status 0 for one that does not answer.

    Raises OperationError where none listens.
    """
    from ingest.alarms.command_socket import request  # noqa: PLC0415  (takes longer than any other command needs)

    answers = asyncio.run(request(state.run, method, "/alarms", command))
    if not answers:
        raise OperationError(
            f"no collector is running in {state.root}: run `plantlog up` (stored alarm states are in plant.alarm)"
        )
    return answers
