"""Are the ports free that the appliance is about to listen on, and who has them if not?"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from ingest.errors import OperationError


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
    """The first of ``count`` ports of 127.0.0.1 in a row that nobody has now."""
    while True:
        probes = [socket.socket() for _ in range(count)]
        try:
            probes[0].bind(("127.0.0.1", 0))
            first: int = probes[0].getsockname()[1]
            for i, probe in enumerate(probes[1:], 1):
                probe.bind(("127.0.0.1", first + i))
        except (OSError, OverflowError):
            continue
        else:
            return first
        finally:
            for probe in probes:
                probe.close()


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
