"""A cluster whose server is another container's: its data are mounted here, too (docker-compose.yml)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from core.config.https import TlsSettings
from core.config.snapshot import in_force
from core.errors import OperationError
from ops.postgres.binaries import Binaries, find
from ops.postgres.cluster import OWNER, Cluster

_DATA = "PLANTLOG_DATABASE"  # the data directory; the folder above it is the volume
REPOSITORY = Path("/mnt/backup")  # where PLANTLOG_BACKUP is mounted
ARCHIVE = Path("/mnt/archive")  # where PLANTLOG_ARCHIVE is mounted
_CA = (Path("/run/secrets/tls_ca"), Path("/run/secrets/tls_ca_key"))  # that `init` made
_PEM = Path("/var/lib/postgresql/tls/server.pem")  # in a volume that the server's container has, too
_PORT = 5432


class MountedCluster(Cluster):
    """Cluster whose container brings settings and logins; a file beside the data says whether it archives."""

    def __init__(self, state: Path, binaries: Binaries, data: Path) -> None:
        super().__init__(state, binaries)
        self.folder, self.data = data.parent, data
        self._home = self.folder  # the passphrase is not for collectors, which see the state folder
        self.archiving = self.folder / "archiving"  # the server archives if there is this file

    @property
    def port(self) -> int:
        """Port of the DSN."""
        return urlsplit(self._state.dsn("owner")).port or _PORT

    def move(self) -> None:
        """The port is the only one in its container."""

    def configure(self) -> None:
        """Say whether the server archives."""
        if self._archives:
            self.archiving.touch()
        else:
            self.archiving.unlink(missing_ok=True)

    def renew_certificate(self) -> None:
        """Issue one if there is none, or if it ends soon or lacks a name that clients use. Raises SourceError, OSError.

        So for push endpoint and viewer, whose containers lack the CA's key. It does not need the data.
        """
        from core.servers import own_certificate  # noqa: PLC0415  (its library is slow to load)

        if _CA[0].exists():
            own_certificate.adopt(self._state.pki, *_CA)
        named = {"localhost", "127.0.0.1", urlsplit(self._state.dsn("owner")).hostname or ""}
        with suppress(OperationError):  # of another version, which `migrate` replaces
            current = in_force(self._state.root, ())
            if current is not None:
                TlsSettings.of(current.plant).ensure(self._state.root)
                named.update(current.plant.tls.names)
        own_certificate.ensure(self._state.pki, named, file=self._pem)
        self.change_owner(self._pem)

    @property
    def _pem(self) -> Path:
        return _PEM

    def command(self) -> list[str]:
        """The server, to recover in this container: it accepts whoever is in it."""
        self.configure()
        self.renew_certificate()
        self._write("pg_hba.conf", f"hostssl all {OWNER} samehost trust\n")
        settings = {
            "archive_command": f"{self.archive_command} archive-push %p",
            "archive_mode": "on" if self._archives else "off",
            "hba_file": str(self.folder / "pg_hba.conf"),
            "hot_standby": "off",
            "listen_addresses": "*",
            "port": str(self.port),
            "shared_preload_libraries": "timescaledb",
            "ssl": "on",
            "ssl_cert_file": str(self._pem),
            "ssl_key_file": str(self._pem),
            "unix_socket_directories": "",
        }
        return [*self._server(), *(f"-c{name}={value}" for name, value in settings.items())]


def is_mounted() -> bool:
    """Return whether the appliance's server is another container's."""
    return _DATA in os.environ


def cluster_of(state: Path, binaries: Binaries) -> Cluster:
    """The cluster of an appliance, which may not exist yet."""
    if is_mounted():
        return MountedCluster(state, binaries, Path(os.environ[_DATA]))
    return Cluster(state, binaries)


def existing(state: Path) -> Cluster:
    """The cluster of an appliance. Raises OperationError where there is none."""
    binaries = find(state)
    if binaries is None or not (cluster := cluster_of(state, binaries)).data.exists():
        raise OperationError(f"{state} has no database yet: run `plantlog up`")
    return cluster
