"""TCP ports: which are free, who listens on them, and which are reserved for a state folder."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import psutil

from core.addresses import FIRST_EPHEMERAL_PORT, WILDCARDS, port_advice
from core.errors import OperationError
from core.files import folder_lock
from core.paths import temporary_folder

FREE_RANGE = range(10_000, FIRST_EPHEMERAL_PORT)  # where free ports are looked for


@dataclass(frozen=True, slots=True)
class PortRequirement:
    """A port that a process needs."""

    host: str
    port: int
    process: str  # that needs it
    option: str  # how to choose another port


def check(requirements: Iterable[PortRequirement], ours: Collection[int] = ()) -> None:
    """Raise OperationError with every port in use, its owner, and the option to change.

    ``ours``: processes that may listen there, because they give way.
    """
    conflicts = [
        f"{w.process}: port {w.port} on {w.host} is in use{holder(w.port, ours)}: {w.option}{port_advice(w.port)}"
        for w in requirements
        if not is_free(w.host, w.port) and not _give_way(w, ours)
    ]
    if conflicts:
        raise OperationError("\n".join(conflicts))


def _give_way(requirement: PortRequirement, ours: Collection[int]) -> bool:
    """Return whether all listeners there are ours. Where there is none, it may be an outgoing connection's port."""
    listeners = _listeners(requirement.port, requirement.host)
    return listeners <= {*ours} if listeners else is_free(requirement.host, requirement.port)


def check_distinct(requirements: Iterable[PortRequirement]) -> None:
    """Raise OperationError if two processes are to listen on one port."""
    conflicts = [
        f"{requirement.process}: port {requirement.port} is that of {other.process}, too: {requirement.option}"
        for other, requirement in combinations(requirements, 2)
        if requirement.port == other.port
        and (requirement.host == other.host or not {requirement.host, other.host}.isdisjoint(WILDCARDS))
    ]
    if conflicts:
        raise OperationError("\n".join(conflicts))


def is_free(host: str, port: int) -> bool:
    """Return whether nobody listens there."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT is not a listener
        try:
            probe.bind(address)
            probe.listen(1)
        except PermissionError as error:
            raise OperationError(f"cannot listen on port {port} of {host}: {error}") from error
        except OSError:
            return False
    return True


def free_ports(count: int) -> int:
    """The first of ``count`` consecutive free ports on 127.0.0.1.

    They are below the ephemeral range, so that a listener can be stopped and started again.
    """
    while True:
        first = random.randrange(FREE_RANGE.start, FREE_RANGE.stop - count + 1)
        if are_free(range(first, first + count)):
            return first


def are_free(ports: range) -> bool:
    """Return whether nobody listens on any of these ports of 127.0.0.1, and none is reserved."""
    reserved = any(_is_reserved(_reservations() / str(port), port) for port in ports)
    return not reserved and all(is_free("127.0.0.1", port) for port in ports)


def reserve(port_file: Path, port: int | None = None) -> int:
    """A free port on 127.0.0.1, written to the file ``port_file`` and reserved among this user's appliances.

    It stays reserved while ``port_file`` names it, whether or not somebody listens: a stopped server finds its port
    again, and two that start at once have two. ``port``: this one, which is known to be ours.
    """
    with folder_lock(_reservations()):
        for reservation in _reservations().glob("[0-9]*"):
            if not _is_reserved(reservation, int(reservation.name)):
                reservation.unlink()
        reserved = free_ports(1) if port is None else port
        (_reservations() / str(reserved)).write_text(str(port_file))
        port_file.parent.mkdir(parents=True, exist_ok=True)
        port_file.write_text(str(reserved))
        return reserved


def _is_reserved(reservation: Path, port: int) -> bool:
    """Return whether the file that a reservation names still has that port, and its state folder is there."""
    try:
        return Path(reservation.read_text()).read_text() == str(port)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):  # the last: a reservation half written
        return False


def _reservations() -> Path:
    """The folder of this user's reservations, one file a port."""
    return temporary_folder("plantlog-ports")


def holder(port: int, ours: Collection[int] = ()) -> str:
    """The listener of a port: `` by NAME (process N)``, or an empty text if it is not visible. Not one of ``ours``."""
    try:
        for pid in _listeners(port) - {None, *ours}:
            return f" by {psutil.Process(pid).name()} (process {pid})"
    except psutil.Error:
        return ""
    return ""


def _listeners(port: int, host: str | None = None) -> set[int | None]:
    """Processes that listen on a port, at addresses that ``host`` conflicts with; None: one that is not visible."""
    address = host and socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0]
    wildcards = ("0.0.0.0", "::")
    return {
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and (local := connection.laddr) and local.port == port
        if address is None or {address, local.ip} & {*wildcards} or address == local.ip
    }
