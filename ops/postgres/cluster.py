"""The database cluster of a state folder: created once, configured at every start, run as an unprivileged user."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import pwd
import secrets
import shlex
import shutil
import string
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil

from core.errors import OperationError, SourceError
from core.files import atomic_path, write_atomically
from core.paths import State
from ops import ports
from ops.postgres import archive, listening
from ops.postgres.archive import ArchiveSettings
from ops.postgres.binaries import PGBACKREST, Binaries, provide
from ops.postgres.listening import Listening

OWNER = "plantlog_owner"
DATABASE = "plantlog"
ROLES = ("owner", "ingest", "reader", "maintenance")
ARCHIVE_FILE = "archive.json"  # beside the cluster's folder
# Of a container, in both versions of control groups.
_MEMORY_LIMITS = tuple(Path("/sys/fs/cgroup", name) for name in ("memory.max", "memory/memory.limit_in_bytes"))
_TEMPLATE = Path(__file__).with_name("postgresql.conf.template")
_COMMON = Path(__file__).with_name("common.conf")  # also of the server in containers

# The server's account may not enter folders above the cluster's, as a home: it gets to it by a descriptor. pgBackRest
# closes all below this one. The program takes the place of this process, so that the supervisor's child is PostgreSQL
# itself and its signals reach it.
_DESCRIPTOR = 1024
_FOLDER = Path(f"/proc/self/fd/{_DESCRIPTOR}")
_ENTER = f"""
import os, resource, sys
open_files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_files, min(4096, most)), most))
folder, uid, gid, *command = sys.argv[1:]
os.dup2(os.open(folder, os.O_RDONLY | os.O_DIRECTORY), {_DESCRIPTOR})
os.setgroups([])
os.setgid(int(gid))
os.setuid(int(uid))
os.execv(command[0], command)
"""


class Cluster:
    """The cluster of a state folder."""

    def __init__(self, state: Path, binaries: Binaries) -> None:
        self._state = State(state)
        self.binaries = binaries
        self._home = state / "postgres"
        self.folder = self._home / "cluster"
        self.data = self.folder / "data"

    @property
    def port(self) -> int:
        """The port on 127.0.0.1: chosen once, and reserved even while the server is stopped.

        The DSNs keep it where only the database was lost.
        """
        if self._port_file.exists():
            return int(self._port_file.read_text())
        port_of_dsn = self._state.dsn_file("owner").exists() and urlsplit(self._state.dsn("owner")).port
        return ports.reserve(self._port_file, port_of_dsn or None)

    @property
    def _port_file(self) -> Path:
        return self._home / "port"

    def move(self) -> None:
        """Choose another port and update the DSNs: another program took it, or the server is restored elsewhere."""
        ports.reserve(self._port_file)
        for role in ROLES:
            path = self._state.dsn_file(role)
            if path.exists():
                parts = urlsplit(self._state.dsn(role))
                netloc = f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self.port}"
                # without options: where the backup was made, they may demand TLS
                write_atomically(path, f"{urlunsplit(parts._replace(netloc=netloc, query=''))}\n", 0o600)

    def make(self, progress: Callable[[str], None]) -> None:
        """Secrets and an initialised data directory, where they are missing."""
        self._make_secrets()
        if self.data.exists():
            return
        progress("initializing the database cluster")
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / "data.partial"
        shutil.rmtree(partial, ignore_errors=True)
        password_file = self.folder / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(_scram_verifier(urlsplit(self._state.dsn("owner")).password or ""))
        self.change_owner(self.folder, password_file)
        try:
            run = subprocess.run(
                self.enter(
                    "initdb",
                    *("--pgdata", self.path_of_server(partial), "--username", OWNER),
                    *("--pwfile", self.path_of_server(password_file)),
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
            raise OperationError(f"initdb exited with {run.returncode}:\n{run.stdout}{run.stderr}")
        partial.rename(self.data)

    def command(self) -> list[str]:
        """The server, in the foreground; its configuration is written anew."""
        ports.reserve(self._port_file, self.port)  # one that an earlier plantlog chose is not reserved yet
        self.chown_cluster()
        self.configure()
        with suppress(OperationError):  # the database runs without backups, too: `up` and the job say what is wrong
            self.configure_archive()
        # What a session may take of memory: work_mem is its own to set.
        address_space_limit = (self._shared_mb() + self._memory_mb() // 4 + 1024) * 1024**2
        return [
            "prlimit",
            f"--as={address_space_limit}",
            *self.enter(*self._server()),
        ]

    def _server(self) -> list[str]:
        return ["postgres", "-D", self.path_of_server(self.data)]

    @property
    def archive(self) -> ArchiveSettings | None:
        """Archive that the write-ahead log and backups go to."""
        return ArchiveSettings.load(self._archive_file)

    @archive.setter
    def archive(self, archive: ArchiveSettings | None) -> None:
        """Takes effect with the next start of the server."""
        if archive is None:
            self._archive_file.unlink(missing_ok=True)
        elif archive != self.archive:
            archive.save(self._archive_file)

    @property
    def listening(self) -> Listening | None:
        """Addresses besides loopback. Not without a certificate: what is on this machine goes on."""
        return Listening.load(self._home / listening.FILE) if self._pem.exists() else None

    @listening.setter
    def listening(self, new: Listening | None) -> None:
        """Takes effect with the next start of the server."""
        if new is None:
            (self._home / listening.FILE).unlink(missing_ok=True)
        elif new != Listening.load(self._home / listening.FILE):
            new.save(self._home / listening.FILE)

    def renew_certificate(self) -> None:
        """Give the server the present certificate, which it uses when it reads its settings. Raises SourceError."""
        present = Listening.load(self._home / listening.FILE)
        if present is not None:
            self._write(self._pem.name, present.pem())

    @property
    def certificate_changed_at(self) -> datetime | None:
        """Time of the last change of the certificate; None: the server has none."""
        return datetime.fromtimestamp(self._pem.stat().st_mtime, UTC) if self._pem.exists() else None

    @property
    def _pem(self) -> Path:
        return self.folder / "tls.pem"

    @property
    def _archive_file(self) -> Path:
        return self._home / ARCHIVE_FILE

    def pgbackrest(self, *arguments: str, data: Path | None = None) -> list[str]:
        """pgBackRest with arguments, as the server's user; ``data``: another data directory than the server's."""
        paths = [] if data is None else [f"--pg1-path={self.path_of_server(data)}"]
        return self.enter(PGBACKREST, *self._stanza, *paths, *arguments)

    @property
    def archive_command(self) -> str:
        """pgBackRest as the server calls it, in a shell."""
        return shlex.join([str(self.binaries.path(PGBACKREST)), *self._stanza]).replace("%", "%%")

    @property
    def _stanza(self) -> tuple[str, str]:
        return f"--config={self.path_of_server(self.folder / archive.CONFIG)}", f"--stanza={archive.STANZA}"

    def configure_archive(self) -> None:
        """Write pgBackRest's configuration, and give the repository to the server's user."""
        if (repository := self.archive) is None:
            return
        text = repository.config(Path(self.path_of_server(self.folder)), self.data.name, self.port, OWNER)
        try:
            files = repository.files() | {archive.CONFIG: text}
        except OSError as error:
            raise OperationError(f"[backup] the system's CA certificates: {error}: set ca_file") from error
        for name, content in files.items():
            self._write(name, content)
        if os.geteuid() == 0 and repository.folder is not None:
            archive.change_owner(repository.folder, *self._server_ids(), ours=repository.archiving or repository.held)

    def _write(self, name: str, content: str) -> None:
        """A file of the server's user. It is replaced only if it changes, and whole: others may just read it."""
        path = self.folder / name
        if path.exists() and path.read_text() == content:
            return
        with atomic_path(path, 0o600) as partial:
            partial.write_text(content)
            self.change_owner(partial)

    def _make_secrets(self) -> None:
        self._state.dsn_file("owner").parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        for role in ROLES:
            path = self._state.dsn_file(role)
            if not path.exists():
                password = secrets.token_urlsafe(24)
                dsn = f"postgresql://plantlog_{role}:{password}@127.0.0.1:{self.port}/{DATABASE}"
                write_atomically(path, f"{dsn}\n", 0o600)

    @staticmethod
    def _memory_mb() -> int:
        limits = list[str]()
        for path in _MEMORY_LIMITS:
            with suppress(OSError):  # there is none, or this account may not know it
                limits.append(path.read_text().strip())
        return min((psutil.virtual_memory().total, *(int(limit) for limit in limits if limit.isdigit()))) // 1024**2

    def _shared_mb(self) -> int:
        """Size of ``shared_buffers``."""
        return max(128, min(self._memory_mb() // 6, 16_384))

    def configure(self) -> None:
        """Write the server's configuration."""
        with suppress(SourceError):  # the previous certificate is still there; the job says what is wrong
            self.renew_certificate()
        (self.data / "postgresql.conf").write_text(self._settings())
        (self.data / "pg_hba.conf").write_text(self._logins())

    def _settings(self) -> str:
        """``postgresql.conf``."""
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
        server = archive.SERVER.format(command=self.archive_command.replace("'", "''"))
        text += _COMMON.read_text() + server * self._archives
        listens = self.listening
        return text if listens is None else text + listens.settings(self.path_of_server(self._pem))

    def _logins(self) -> str:
        """``pg_hba.conf``: loopback and a password, also for the superuser, also on this machine."""
        loopback = "host all all 127.0.0.1/32 scram-sha-256\n"
        return loopback if self.listening is None else loopback + listening.READERS

    @property
    def _archives(self) -> bool:
        return self.archive is not None and self.archive.archiving

    def enter(self, program: str, *arguments: str) -> list[str]:
        """One of the programs as the server's user."""
        settings = [f"{name}={value}" for name, value in self._environment.items()]
        command = ["/usr/bin/env", *settings, str(self.binaries.path(program)), *arguments]
        if os.geteuid() != 0:
            return command
        enter = [sys.executable, "-I", "-S", "-c", _ENTER, str(self.folder), *map(str, self._server_ids())]
        return [*enter, *command]

    @property
    def _environment(self) -> dict[str, str]:
        """Variables of the programs: their locale comes with them."""
        return {"LOCPATH": f"{self.binaries.root}/usr/lib/locale"} if self.binaries.private else {}

    def path_of_server(self, path: Path) -> str:
        """``path``, in the cluster's folder, as the server gets to it."""
        return str(path if os.geteuid() != 0 else _FOLDER / path.relative_to(self.folder))

    def _server_ids(self) -> tuple[int, int]:
        """uid and gid of the server. Raises OperationError where its account is missing."""
        try:
            user = pwd.getpwnam(self.binaries.account)
        except KeyError:
            raise OperationError(f"there is no account {self.binaries.account}: run `plantlog up`") from None
        return user.pw_uid, user.pw_gid

    def chown_cluster(self) -> None:
        """Give a cluster that ran under another id, as on another machine, to the server's; its folder goes last."""
        if os.geteuid() != 0 or self.folder.stat().st_uid == self._server_ids()[0]:
            return
        for folder, names, files in os.walk(self.folder):
            for name in (*names, *files):
                os.chown(Path(folder, name), *self._server_ids(), follow_symlinks=False)
        self.change_owner(self.folder)

    def change_owner(self, *paths: Path) -> None:
        """Give files to the server's user."""
        if os.geteuid() == 0:
            for path in paths:
                os.chown(path, *self._server_ids())


def _scram_verifier(password: str) -> str:
    """Verifier of a password, which PostgreSQL stores: whoever reads it can't log in (RFC 5802)."""
    salt, iterations = secrets.token_bytes(16), 4096
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client, server = (hmac.digest(salted, key, "sha256") for key in (b"Client Key", b"Server Key"))
    texts = (base64.b64encode(part).decode() for part in (salt, hashlib.sha256(client).digest(), server))
    return "SCRAM-SHA-256${}:{}${}:{}".format(iterations, *texts)


def provision(state: Path, progress: Callable[[str], None]) -> Cluster:
    """Provide a server's programs, data and configuration in ``state``; what is there already stays as it is."""
    cluster = Cluster(state, provide(state, progress))
    cluster.make(progress)
    return cluster
