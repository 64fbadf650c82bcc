"""Membership of a server among several."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlencode, urlsplit

from core.errors import OperationError
from core.files import write_atomically
from core.paths import State
from core.servers.server_tls import ca_file

MONITOR_DATABASE = "pg_auto_failover"
MONITOR_LOGIN = "autoctl_node"
_FORM = f"postgresql://{MONITOR_LOGIN}:SECRET@ADDRESS:PORT/{MONITOR_DATABASE}?sslmode=verify-full"
_SECRET = re.compile(r"[A-Za-z0-9_-]{16,}")


@dataclass(frozen=True, slots=True)
class Membership:
    """Address of a server, and its monitor. Kept in the state folder."""

    address: str
    port: int
    monitor: str  # its DSN, with the secret that all nodes share, and how its certificate is verified here
    is_monitor: bool
    ready: bool = False  # whether the manager knows it

    @property
    def secret(self) -> str:
        """Secret of the monitor's login, and of replication."""
        return secret_of(self.monitor)

    @property
    def options(self) -> str:
        """Options by which a DSN verifies the certificates of the servers."""
        return urlsplit(self.monitor).query

    @property
    def join(self) -> str:
        """The monitor's DSN for other machines."""
        return self.monitor.partition("&")[0]

    @classmethod
    def load(cls, state: State) -> Self | None:
        """The membership of a state folder; None: its server, if it has one, is the appliance's own."""
        path = _file(state)
        if not path.exists():
            return None
        file = monitor_file(state)
        monitor = checked_monitor(str(file), file.read_text().strip(), ca_file(state.pki))
        return cls(**json.loads(path.read_text()), monitor=monitor)

    def save(self, state: State) -> None:
        """The monitor's DSN, which has the secret, in a file for the owner's eyes only."""
        for path in (_file(state), monitor_file(state)):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = asdict(self)
        del options["monitor"]
        write_atomically(monitor_file(state), f"{self.join}\n", 0o600)
        write_atomically(_file(state), json.dumps(options), 0o600)


def check_appliance(state: State) -> None:
    """Raises OperationError where a state folder is a server's."""
    if Membership.load(state) is not None:
        raise OperationError(
            f"{state.root} is a server of a database on several machines: `plantlog admin database status` shows it. "
            "For an appliance, set PLANTLOG_STATE to another folder, and PLANTLOG_DSN to the database"
        )


def monitor_file(state: State) -> Path:
    """The file with the monitor's DSN."""
    return state.dsn_file("monitor")


def _file(state: State) -> Path:
    return state.root / "postgres" / "failover.json"


def secret_of(dsn: str) -> str:
    """The password in a DSN."""
    return urlsplit(dsn).password or ""


def verified_by(ca: Path | str) -> str:
    """The options of a DSN that has a server's certificate verified."""
    return urlencode({"sslmode": "verify-full", "sslrootcert": str(ca)}, safe="/")


def monitor_dsn(secret: str, address: str, port: int, ca: Path) -> str:
    """The DSN of a monitor, whose certificate the CA has issued."""
    return f"postgresql://{MONITOR_LOGIN}:{secret}@{address}:{port}/{MONITOR_DATABASE}?{verified_by(ca)}"


def checked_monitor(option: str, dsn: str, ca: Path) -> str:
    """The DSN of a monitor, which an option gives, as this machine uses it. Raises OperationError."""
    try:
        parts = urlsplit(dsn)
        port = parts.port or 5432
    except ValueError as error:
        raise OperationError(f"{option}: {error}; legal: {_FORM}") from error
    if (
        (parts.scheme not in ("postgres", "postgresql"))
        or (parts.username, parts.path) != (MONITOR_LOGIN, f"/{MONITOR_DATABASE}")
        or not _SECRET.fullmatch(parts.password or "")
        or not parts.hostname
    ):
        raise OperationError(f"{option} is not what `plantlog admin database monitor` printed; legal: {_FORM}")
    return monitor_dsn(parts.password or "", parts.hostname, port, ca)


def check_address(address: str) -> None:
    """Raises OperationError where an address is not this machine's, so that no other one could reach the server."""
    try:
        family, _, _, _, socket_address = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(socket_address)
    except OSError as error:
        raise OperationError(f"--address {address}: {error.strerror}; legal: an address of this machine") from error
