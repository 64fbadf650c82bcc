"""One database cluster in a state folder: made once, configured at every start, run as an unprivileged user."""

from __future__ import annotations

import grp
import os
import pwd
import secrets
import shutil
import string
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil

from ingest.errors import OperationError
from ops import ports
from ops.postgres.binaries import Binaries, find, provide

OWNER = "plantlog_owner"
DATABASE = "plantlog"
ROLES = ("owner", "ingest", "reader", "maintenance")
_IDS = range(
    60_706, 61_184
)  # that neither distributions nor systemd give away (systemd's "Users, Groups, UIDs and GIDs")
_HOME = "/var/lib/postgresql"  # as the server sees it; the cluster's folder is mounted there
_TEMPLATE = Path(__file__).with_name("postgresql.conf.template")

# The mounts are in a name space of the server's own: they end with it, however it ends. All are execs, so the
# supervisor's child is PostgreSQL itself and its signals reach it.
_ENTER = """
set -e
root=$1 cluster=$2 owner=$3 accounts=$4; shift 4
mount --bind "$cluster" "$root/var/lib/postgresql"
if [ "$root" != / ]; then
    mount --bind "$accounts" "$root/etc/passwd"
    mount --rbind /dev "$root/dev"
    mount -t proc proc "$root/proc"
fi
exec chroot --userspec="$owner" "$root" "$@"
"""


class Cluster:
    """The cluster of a state folder."""

    def __init__(self, state: Path, binaries: Binaries) -> None:
        self._state = state
        self._binaries = binaries
        self._folder = state / "postgres" / "cluster"
        self.data = self._folder / "data"

    @property
    def port(self) -> int:
        """The port on 127.0.0.1: chosen free once, then reserved, also while the server is stopped."""
        return int(self._kept.read_text()) if self._kept.exists() else ports.reserve(self._kept)

    @property
    def _kept(self) -> Path:
        return self._folder.parent / "port"

    @property
    def _kept_id(self) -> Path:
        return self._folder.parent / "id"

    def move(self) -> None:
        """Take another port, and write it into the DSNs: somebody who reserves none has ours."""
        ports.reserve(self._kept)
        for role in ROLES:
            path = self._state / "secrets" / f"{role}.dsn"
            if path.exists():
                parts = urlsplit(self.dsn(role))
                moved = f"{parts.netloc.rpartition(':')[0]}:{self.port}"
                self._write_secret(path, urlunsplit(parts._replace(netloc=moved)))

    def dsn(self, role: str) -> str:
        """The DSN of a role, from the secrets."""
        return (self._state / "secrets" / f"{role}.dsn").read_text().strip()

    def make(self, say: Callable[[str], None]) -> None:
        """Secrets and an initialised data directory, where they are missing."""
        self._make_secrets()
        if self.data.exists():
            return
        say("initialising the database cluster")
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._folder / "data.partial"
        shutil.rmtree(partial, ignore_errors=True)
        password_file = self._folder / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(urlsplit(self.dsn("owner")).password or "")
        self._own(self._folder, password_file)
        try:
            run = subprocess.run(
                self._enter(
                    "initdb",
                    *("--pgdata", self._seen(partial), "--username", OWNER, "--pwfile", self._seen(password_file)),
                    *("--auth", "scram-sha-256", "--encoding", "UTF8", "--data-checksums"),
                    *("--locale-provider", "builtin", "--locale", "C.UTF-8"),
                ),
                capture_output=True,
                text=True,
                check=False,
                cwd="/",
            )
        finally:
            password_file.unlink()
        if run.returncode:
            raise OperationError(f"initdb ended with {run.returncode}:\n{run.stdout}{run.stderr}")
        partial.rename(self.data)

    def command(self) -> list[str]:
        """The server, in the foreground; its configuration is written anew."""
        ports.reserve(self._kept, self.port)  # one that an earlier plantlog chose is not reserved yet
        self._hand_over()
        self._configure()
        # What a session may take of memory: work_mem is its own to set.
        most = (self._shared_mb() + self._memory_mb() // 4 + 1024) * 1024**2
        return ["prlimit", f"--as={most}", *self._enter("postgres", "-D", self._seen(self.data))]

    def _make_secrets(self) -> None:
        folder = self._state / "secrets"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for role in ROLES:
            path = folder / f"{role}.dsn"
            if not path.exists():
                password = secrets.token_urlsafe(24)
                self._write_secret(path, f"postgresql://plantlog_{role}:{password}@127.0.0.1:{self.port}/{DATABASE}")

    @staticmethod
    def _write_secret(path: Path, text: str) -> None:
        partial = path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        partial.touch(mode=0o600)
        partial.write_text(text + "\n")
        partial.replace(path)

    @staticmethod
    def _memory_mb() -> int:
        return int(psutil.virtual_memory().total // 1024**2)

    def _shared_mb(self) -> int:
        """Of ``shared_buffers``."""
        return max(128, min(self._memory_mb() // 6, 16_384))

    def _configure(self) -> None:
        memory = self._memory_mb()
        cores = os.cpu_count() or 1
        text = string.Template(_TEMPLATE.read_text()).substitute(
            port=self.port,
            memory_mb=memory,
            cores=cores,
            shared_buffers_mb=self._shared_mb(),
            effective_cache_mb=max(256, memory // 2),
            work_mem_mb=max(4, memory // 600),
            maintenance_mb=max(64, min(memory // 24, 2048)),
            max_wal_mb=max(1024, min(memory // 3, 8192, shutil.disk_usage(self.data).free // 1024**2 // 8)),
            parallel=max(1, cores // 2),
        )
        (self.data / "postgresql.conf").write_text(text)
        # Loopback and a password: also for the superuser, also on this machine.
        (self.data / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")

    def _enter(self, program: str, *arguments: str) -> list[str]:
        command = [self._binaries.inside(program), *arguments]
        if os.geteuid() != 0:
            return command
        (self._binaries.root / "var/lib/postgresql").mkdir(parents=True, exist_ok=True)
        root, owner = str(self._binaries.root), ":".join(map(str, self._owner()))
        enter = ["/bin/sh", "-c", _ENTER, "sh", root, str(self._folder), owner, str(self._accounts())]
        return ["unshare", "--mount", "--propagation", "private", *enter, *command]

    def _seen(self, path: Path) -> str:
        """``path`` as the server sees it."""
        return str(path) if os.geteuid() != 0 else f"{_HOME}/{path.relative_to(self._folder)}"

    def _owner(self) -> tuple[int, int]:
        """uid and gid of the server: the system's user ``postgres``; where the binaries are in a root file system of
        their own, whose ``postgres`` may be anybody here, an id that no account of this machine has, chosen once."""
        if self._binaries.private:
            if not self._kept_id.exists():
                taken = {user.pw_uid for user in pwd.getpwall()} | {group.gr_gid for group in grp.getgrall()}
                free = [number for number in _IDS if number not in taken]
                self._write_secret(self._kept_id, str(secrets.choice(free)))
            number = int(self._kept_id.read_text())
            return number, number
        user = pwd.getpwnam("postgres")
        return user.pw_uid, user.pw_gid

    def _accounts(self) -> Path:
        """``/etc/passwd`` as the server sees it: initdb asks for its own name."""
        uid, gid = self._owner()
        path = self._folder.parent / "passwd"
        path.write_text(f"postgres:x:{uid}:{gid}:PostgreSQL of plantlog:{_HOME}:/bin/sh\n")
        path.chmod(0o644)
        return path

    def _hand_over(self) -> None:
        """Give a cluster that an earlier plantlog ran under another id to the server's; its folder goes last."""
        if os.geteuid() != 0 or self._folder.stat().st_uid == self._owner()[0]:
            return
        for folder, names, files in os.walk(self._folder):
            for name in (*names, *files):
                os.chown(Path(folder, name), *self._owner(), follow_symlinks=False)
        self._own(self._folder)

    def _own(self, *paths: Path) -> None:
        if os.geteuid() == 0:
            for path in paths:
                os.chown(path, *self._owner())


def provision(state: Path, say: Callable[[str], None]) -> Cluster:
    """All that a server needs in ``state``; what is there already stays as it is."""
    cluster = Cluster(state, provide(state, say))
    cluster.make(say)
    return cluster


def existing(state: Path) -> Cluster:
    """The cluster that :func:`provision` made. Raises OperationError where there is none."""
    binaries = find(state)
    if binaries is None or not (cluster := Cluster(state, binaries)).data.exists():
        raise OperationError(f"{state} has no database yet: run `plantlog up`")
    return cluster
