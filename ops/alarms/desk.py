"""Speaks to the collectors' alarms, over their sockets in the state folder."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingest.alarms.limits import PRIORITIES
from ingest.errors import OperationError
from ops.paths import State

_SECONDS = 30.0
_LOOKED_AT = (
    "unacknowledged_active",
    "latched_unacknowledged",
    "return_to_normal_unacknowledged",
    "acknowledged_active",
)


def alarms(state: State, every: bool) -> list[dict[str, Any]]:
    """Those that somebody should look at, the most urgent first; with ``every`` each limit of each channel.

    Raises OperationError where no collector answers.
    """
    found = [alarm for connection in _collectors(state) for alarm in _ask(connection, "GET")]
    if every:
        return sorted(found, key=lambda alarm: alarm["channel"])
    shown = [alarm for alarm in found if alarm["state"] in _LOOKED_AT]
    return sorted(
        shown, key=lambda a: (_LOOKED_AT.index(a["state"]), PRIORITIES.index(a["priority"]), -a["since"], a["channel"])
    )


def do(state: State, asked: Mapping[str, Any]) -> list[str]:
    """Have it done by the collector that has the channel. Raises OperationError where none has, or it can't be done."""
    done: list[str] = []
    refused: list[str] = []
    for connection in _collectors(state):
        try:
            done += _ask(connection, "POST", asked)["done"]
        except OperationError as error:
            refused.append(str(error))
    if not done:
        # What one says of a channel that it has tells more than the others' not knowing it.
        raise OperationError(next((said for said in refused if not said.startswith("no channel")), refused[0]))
    return done


def _collectors(state: State) -> list[_UnixConnection]:
    """A connection to each collector that listens."""
    found = []
    for path in sorted(state.run.glob("*.alarms")):
        connection = _UnixConnection(path)
        try:
            connection.connect()
        except (FileNotFoundError, ConnectionRefusedError):  # it does not run; the second: it was killed
            continue
        except OSError as error:
            raise OperationError(f"the collector {path.stem} does not answer: {error}") from error
        found.append(connection)
    if not found:
        raise OperationError(
            f"no collector runs in {state.root}: run `plantlog up`; what the database has of alarms is in plant.alarm"
        )
    return found


def _ask(connection: _UnixConnection, method: str, content: Mapping[str, Any] | None = None) -> Any:
    try:
        connection.request(method, "/alarms", None if content is None else json.dumps(content).encode())
        answer = connection.getresponse()
        said = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise OperationError(f"a collector does not answer: {error}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise OperationError(said["error"])
    return said


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("plantlog", timeout=_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            self.sock.connect(str(self._path))
        except OSError:
            self.sock.close()
            raise
