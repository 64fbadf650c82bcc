"""Servers for backup repositories, on loopback: OpenSSH's sshd with SFTP, and versitygw with S3."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from core.config.model import BackupOptions
from tests.certificates import make, pem
from tests.peer_builds import versitygw
from tests.peers import listens
from tests.ports import free_port
from tests.waiting import until_sync

_SSHD = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
LoginGraceTime 5
LogLevel VERBOSE
"""


@dataclass(slots=True)
class Peer:
    """A server that can be stopped and started again."""

    options: Callable[[Path], BackupOptions]  # of a client, by its passphrase's file
    files: Path  # what it serves
    command: list[str]
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it serves."""
        with (self.files.parent.parent / "server.log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        until_sync(lambda: listens(self.port))

    def stop(self) -> None:
        """SIGKILL, to its connections as well."""
        if self.process is not None:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            self.process.kill()
            self.process.wait()
            self.process = None


def missing() -> str:
    """The programs that the servers need and this machine lacks."""
    return " and ".join(
        text
        for text, there in {
            "root to mount": os.geteuid() == 0,
            "openssh-server": Path("/usr/sbin/sshd").exists(),
            "Go": shutil.which("go") is not None,
        }.items()
        if not there
    )


def sftp(folder: Path, files: Path) -> Peer:
    """sshd; its repository is ``files``."""
    port = free_port()
    folder.mkdir()
    for name in ("host", "key", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    config = folder / "sshd_config"
    config.write_text(_SSHD.format(port=port, folder=folder))
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    Path("/run/sshd").mkdir(exist_ok=True)

    def options(passphrase_file: Path) -> BackupOptions:
        return BackupOptions(
            repository=f"sftp://root@127.0.0.1:{port}{files}",
            passphrase_file=passphrase_file,
            key_file=folder / "key",
            known_hosts_file=folder / "known_hosts",
        )

    return Peer(options, files, ["/usr/sbin/sshd", "-D", "-e", "-f", str(config)], port)


def s3(folder: Path, files: Path) -> Peer:
    """versitygw; its repository is in the bucket ``plantlog`` in ``files``."""
    port = free_port()
    folder.mkdir()
    certificate, key = make(folder / "server")
    certificate = pem(certificate).rename(folder / "server.pem")
    pem(make(folder / "other")[0]).rename(folder / "other.pem")
    (files / "plantlog").mkdir(parents=True)
    (folder / "key").write_text("access-key secret-access-key\n")
    (folder / "key").chmod(0o600)

    def options(passphrase_file: Path) -> BackupOptions:
        return BackupOptions(
            repository="s3://plantlog/repository",
            passphrase_file=passphrase_file,
            key_file=folder / "key",
            s3_endpoint=f"127.0.0.1:{port}",
            ca_file=certificate,
        )

    serve = ["--port", f"127.0.0.1:{port}", "--access", "access-key", "--secret", "secret-access-key"]
    tls = ["--cert", str(certificate), "--key", str(key)]
    store = ["posix", "--sidecar", str(folder / "attributes"), str(files)]
    (folder / "attributes").mkdir()
    return Peer(options, files, [versitygw(), "--quiet", *serve, *tls, *store], port)


@contextmanager
def running(peer: Peer) -> Iterator[Peer]:
    """Inside the block."""
    peer.start()
    try:
        yield peer
    finally:
        peer.stop()
