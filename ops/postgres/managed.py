"""A cluster whose server pg_auto_failover starts, promotes, demotes and rewinds.

https://pg-auto-failover.readthedocs.io: `pg_autoctl run` takes the place of `postgres`. Of the two managers that Debian
has, this one has fewer parts: one monitor and nothing that PostgreSQL is not; Patroni requires three members of etcd.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from core.errors import OperationError
from core.paths import State
from core.servers.server_tls import ca_file
from ops.postgres.binaries import PG_AUTOCTL, Binaries, find, hidden_above
from ops.postgres.cluster import Cluster
from ops.postgres.membership import Membership, verified_by
from ops.postgres.mounted import existing

SUPERUSER = "postgres"  # of pg_autoctl, on each machine, whatever its account there
REPLICATOR = "pgautofailover_replicator"
_HEALTH_CHECKER = "pgautofailover_monitor"  # its password is its name: it may see an empty database and nothing else

_FORMER = Path("var/lib/postgresql")  # /…, where 1.0 mounted the cluster's folder
_SERVICE = "server"  # whose user is that of connections without one
# A primary that reaches neither the monitor nor a standby stops before the standby takes its place.
NETWORK_PARTITION_SECONDS = 6
_MONITOR = """
shared_preload_libraries = 'pgautofailover'
shared_buffers = 32MB
max_wal_size = 256MB
min_wal_size = 64MB
pgautofailover.health_check_period = 2s
pgautofailover.health_check_timeout = 3s
pgautofailover.health_check_max_retries = 2
pgautofailover.health_check_retry_delay = 1s
pgautofailover.node_considered_unhealthy_timeout = 10s
pgautofailover.primary_demote_timeout = 20s
"""
_NODE = """
hot_standby = on
wal_keep_size = {keep_mb}MB  # from which a former primary is rewound
# What a standby that is away may hold back; one that misses more is copied again.
max_slot_wal_keep_size = {slot_mb}MB
"""
_INCLUDED = ("postgresql-auto-failover-standby.conf", "postgresql-auto-failover.conf")


class ManagedCluster(Cluster):
    """The cluster of a state folder with a :class:`Membership`."""

    def __init__(self, state: Path, binaries: Binaries, membership: Membership) -> None:
        super().__init__(state, binaries)
        self._membership = membership

    def autoctl(self, *arguments: str) -> list[str]:
        """pg_autoctl with arguments, as the server's user."""
        return self.enter(PG_AUTOCTL, *arguments)

    @property
    def _environment(self) -> dict[str, str]:
        home = str(self.folder)
        return {
            **super()._environment,
            "HOME": home,
            "LC_ALL": "C.UTF-8",
            "PATH": f"{self.binaries.path('postgres').parent}:/usr/bin:/bin",
            "PGDATA": str(self.data),
            "PGHOST": self._common_folder,
            "PGSERVICE": _SERVICE,
            "XDG_CONFIG_HOME": f"{home}/config",
            "XDG_DATA_HOME": f"{home}/share",
            "USER": SUPERUSER,
            "XDG_RUNTIME_DIR": f"{home}/run",
        }

    def path_of_server(self, path: Path) -> str:
        """The path itself: pg_autoctl resolves paths."""
        return str(path)

    @property
    def _common_folder(self) -> str:
        """The cluster's folder by a path that is the same on all machines: a standby copies settings."""
        return super().path_of_server(self.folder)

    def create(self) -> list[str]:
        """Make the server known to the manager; a standby's data are copied from the primary."""
        ours = self._membership
        role = ["monitor"]
        if not ours.is_monitor:
            role = ["postgres", "--monitor", self.manager_dsn(ours.monitor), "--name", f"{ours.address}:{ours.port}"]
            role += ["--username", SUPERUSER, "--pghost", self._common_folder, "--listen", self.listen]
            role += ["--replication-quorum", "false"]  # asynchronous: the journal has what a standby lacks
        tls = ["--ssl-mode", "verify-full", "--ssl-ca-file", str(self._ca)]
        tls += ["--server-cert", str(self._pem), "--server-key", str(self._pem)]
        return self.autoctl(
            *("create", *role, "--hostname", ours.address, "--pgport", str(ours.port), "--skip-pg-hba"),
            *(*tls, "--pgctl", str(self.binaries.path("pg_ctl"))),
        )

    def manager_dsn(self, monitor: str) -> str:
        """The DSN of a monitor with a CA's file that the manager can read."""
        return monitor.replace(verified_by(ca_file(self._state.pki)), verified_by(self._ca))

    @property
    def _ca(self) -> Path:
        return self.folder / "ca.crt"

    def renew_certificate(self) -> None:
        """Issue one by the CA of all servers, valid as long as the CA, whose key is on this machine in any case."""
        from core.servers import own_certificate  # noqa: PLC0415  (its library is slow to load)

        pki, address = self._state.pki, self._membership.address
        own_certificate.derive(pki, self._membership.secret)
        own_certificate.ensure(pki, {address}, {"127.0.0.1"}, self._pem, own_certificate.CA_DAYS)
        self.change_owner(self._pem)
        self._write(self._ca.name, ca_file(self._state.pki).read_text())

    def make(self, progress: Callable[[str], None]) -> None:
        """Secrets and data, as of one server, in a folder that its account may enter."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._let_account_enter()
        super().make(progress)

    def _let_account_enter(self) -> None:
        """Raises OperationError where it can't get to the folder."""
        for above in (self._state.root, self.folder.parent):
            above.chmod(0o711)
        check_enterable(self.folder)

    def prepare(self) -> None:
        """Folders of the manager; what a run that was killed left there goes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._let_account_enter()
        self.chown_cluster()
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        (self.folder / "run").mkdir(mode=0o700)
        self.change_owner(self.folder / "run")
        self._write(".pg_service.conf", f"[{_SERVICE}]\nuser={SUPERUSER}\n")
        self._write(".pgpass", f"*:*:*:{REPLICATOR}:{self._membership.secret}\n")  # of replication
        self._follow_paths()
        if self.data.exists():
            self.configure()

    def _follow_paths(self) -> None:
        """Let the manager's files, which lie below a path of the data, name those of now: 1.0 had mounted them."""
        place = self.data.relative_to("/")
        for kind in ("config", "share"):
            former, present = (self.folder / kind / "pg_autoctl" / path for path in (_FORMER / "data", place))
            if former.exists() and not present.exists():
                present.parent.mkdir(parents=True)
                former.rename(present)
                self.change_owner(*(above for above in present.parents if above.is_relative_to(self.folder / kind)))
        for path in (self.folder / "config" / "pg_autoctl" / place / "pg_autoctl.cfg", self.data / _INCLUDED[0]):
            if path.exists():
                text = path.read_text().replace(f"/{_FORMER}/", f"{self.folder}/")
                for name, value in (("host", self._common_folder), ("pg_ctl", self.binaries.path("pg_ctl"))):
                    text = re.sub(f"(?m)^{name} = .*", f"{name} = {value}", text)
                self._write(str(path.relative_to(self.folder)), text)

    def command(self) -> list[str]:
        """pg_autoctl, in the foreground."""
        self.prepare()
        return super().command()

    def _server(self) -> list[str]:
        return [PG_AUTOCTL, "run"]

    @property
    def listen(self) -> str:
        """The addresses."""
        return ",".join(dict.fromkeys(("127.0.0.1", self._membership.address)))

    def _settings(self) -> str:
        # pg_autoctl's own settings come first, so that ours count.
        included = [f"include '{name}'\n" for name in _INCLUDED if (self.data / name).exists()]
        free_mb = shutil.disk_usage(self.data).free // 1024**2
        keep_mb, slot_mb = (max(1024, min(most, free_mb // 8)) for most in (8192, 65_536))
        ours = _MONITOR if self._membership.is_monitor else _NODE.format(keep_mb=keep_mb, slot_mb=slot_mb)
        return (
            f"{''.join(included)}{super()._settings()}{ours}listen_addresses = '{self.listen}'\n"
            f"unix_socket_directories = '{self._common_folder}'\n"
            f"ssl_cert_file = '{self._common_folder}/{self._pem.name}'\n"
            f"ssl_key_file = '{self._common_folder}/{self._pem.name}'\n"
            f"ssl_ca_file = '{self._common_folder}/{self._ca.name}'\n"
        )

    def _logins(self) -> str:
        """TLS and a password for every other machine; pg_autoctl comes by the socket, in a folder of its account."""
        if self._membership.is_monitor:
            others = "hostssl pg_auto_failover autoctl_node all scram-sha-256\n"
            return f"local all all trust\n{super()._logins()}{others}"
        return (
            f"local all {SUPERUSER} trust\n"
            f"hostssl postgres {_HEALTH_CHECKER} all scram-sha-256\n"
            f"host all {_HEALTH_CHECKER} all reject\n"
            f"{super()._logins()}"
            f"hostssl replication {REPLICATOR} all scram-sha-256\n"
            "hostssl all all all scram-sha-256\n"
        )


def server(state: Path) -> Cluster:
    """The cluster of a state folder, which may be one of several. Raises OperationError where there is none."""
    membership = Membership.load(State(state))
    binaries = find(state)
    if membership is None or binaries is None:
        return existing(state)
    return ManagedCluster(state, binaries, membership)


def check_enterable(folder: Path) -> None:
    """Raises OperationError where the servers' account can't get to a folder by its path, as pg_autoctl does."""
    if (hidden := hidden_above(folder)) is not None:
        raise OperationError(
            f"the servers' account can't enter {hidden}: run `chmod o+x {hidden}`, or set PLANTLOG_STATE to a folder "
            "elsewhere, as /var/lib/plantlog-server"
        )


def is_root() -> bool:
    """Return whether servers can have a user of their own."""
    return os.geteuid() == 0
