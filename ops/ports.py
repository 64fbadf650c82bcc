"""Are the ports free that the appliance is about to listen on, and who has them if not?"""

from __future__ import annotations

import os
import random
import socket
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from ingest.errors import OperationError
from ops.alone import alone

_LOWEST = 10_000
_EPHEMERAL = 32_768  # Linux' ip_local_port_range begins here


@dataclass(frozen=True, slots=True)
class Wanted:
    """A port that a process needs."""

    host: str
    port: int
    what: str  # who needs it
    option: str  # what to change so that another one is taken


def check(wanted: Iterable[Wanted]) -> None:
    """Raises OperationError that names every port that is taken, by whom, and the option to change."""
    taken = [
        f"port {want.port} on {want.host}, which {want.what} needs, is in use{holder(want.port)}: {want.option}"
        for want in wanted
        if not free(want.host, want.port)
    ]
    if taken:
        raise OperationError("\n".join(taken))


def free(host: str, port: int) -> bool:
    """Whether nobody listens there."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT is not a listener
        try:
            probe.bind(address)
            probe.listen(1)
        except PermissionError as error:
            raise OperationError(f"port {port} on {host} may not be opened: {error}") from error
        except OSError:
            return False
    return True


def free_ports(count: int) -> int:
    """The first of ``count`` ports of 127.0.0.1 in a row that nobody has now.

    Below those that the system gives to outgoing connections, so that a listener that pauses finds its port free again.
    """
    while True:
        first = random.randrange(_LOWEST, _EPHEMERAL - count)
        several = range(first, first + count)
        if not any(_holder_of(_shared() / str(port), port) for port in several) and all(
            free("127.0.0.1", port) for port in several
        ):
            return first


def reserve(kept: Path, port: int | None = None) -> int:
    """A free port of 127.0.0.1, written to the file ``kept`` and this user's other appliances keep off it.

    It stays reserved while ``kept`` names it, whether or not somebody listens: a server that is stopped finds its port
    again, and two that start at once have two. ``port``: this one, which is known to be ours.
    """
    with alone(_shared()):
        chosen = free_ports(1) if port is None else port
        (_shared() / str(chosen)).write_text(str(kept))
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(str(chosen))
        return chosen


def _holder_of(reservation: Path, port: int) -> bool:
    """Whether the file that a reservation names still has that port; one whose state folder is gone counts no more."""
    try:
        return Path(reservation.read_text()).read_text() == str(port)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):  # the last: a reservation half written
        return False


def _shared() -> Path:
    """The folder of this user's reservations, one file a port."""
    folder = Path(tempfile.gettempdir()) / f"plantlog-ports-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise OperationError(f"{folder} belongs to somebody else: remove it, or set TMPDIR to a folder of your own")
    return folder


def holder(port: int) -> str:
    """Who listens on a port, as far as we may see: `` by NAME (process N)``, or nothing."""
    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr[1:2] == (port,)
            if listens and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (process {connection.pid})"
    except psutil.Error:
        return ""
    return ""
