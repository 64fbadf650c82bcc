"""Archive of the write-ahead log and the backups of a cluster: a repository of pgBackRest, and its configuration."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from core.errors import OperationError
from core.files import write_atomically
from ops.postgres.binaries import hidden_above

STANZA = "plantlog"
CONFIG = "pgbackrest.conf"  # in the cluster's folder
_LEAST_FREE = 32 * 1024**2  # bytes: two segments of write-ahead log
_OWN = frozenset({"archive", "backup", "lost+found"})  # what a repository's folder may contain

_CONFIG = """\
# Made at every start; changes here are lost.
[global]
{storage}repo1-cipher-type=aes-256-cbc
repo1-cipher-pass={passphrase}
repo1-retention-full-type=time
repo1-retention-full={keep_days}
repo1-bundle=y
repo1-block=y
compress-type=zst
start-fast=y
archive-async=y
archive-push-queue-max={max_wal}
archive-timeout=120
spool-path={home}/archive
lock-path={home}/archive
log-level-file=off
log-level-console=error
log-level-stderr=warn

[{stanza}]
pg1-path={home}/{data}
pg1-port={port}
pg1-user={user}
pg1-database=postgres
"""

_FOLDER = """\
repo1-path={path}
"""

_SFTP = """\
repo1-type=sftp
repo1-path={path}
repo1-sftp-host={host}
repo1-sftp-host-port={port}
repo1-sftp-host-user={user}
repo1-sftp-host-key-hash-type=sha256
repo1-sftp-private-key-file={home}/repository-key
repo1-sftp-known-host={home}/repository-known-hosts
"""

_S3 = """\
repo1-type=s3
repo1-path={path}
repo1-s3-bucket={bucket}
repo1-s3-endpoint={host}
repo1-storage-port={port}
repo1-s3-region={region}
repo1-s3-uri-style={uri_style}
repo1-s3-key={key}
repo1-s3-key-secret={secret}
repo1-storage-ca-file={home}/repository-ca
"""
_SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")

SERVER = """
# Backups: what is committed is in the repository within a minute.
archive_mode = on
archive_command = '{command} archive-push %p'
archive_timeout = 60s
"""


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """A repository and the rules for it. Kept in the state folder, as the server reads no plant.toml."""

    repository: str
    passphrase: str
    keep_days: int
    max_wal: int  # bytes
    key: str = ""
    known_hosts: str = ""
    ca: str = ""  # empty: the system's
    s3_endpoint: str = ""
    s3_region: str = ""
    s3_uri_style: str = ""
    archiving: bool = False  # whether the server archives: once the repository has its files; a copy only reads
    held: bool = False  # a copy: the appliance that it was made from may still archive

    @property
    def folder(self) -> Path | None:
        """The repository's folder; None: it is on a server."""
        return Path(self.repository) if self.repository.startswith("/") else None

    @classmethod
    def load(cls, path: Path) -> ArchiveSettings | None:
        """The archive of the last configuration; None: no backups."""
        return cls(**json.loads(path.read_text())) if path.exists() else None

    def save(self, path: Path) -> None:
        """Keep it in a file for the owner's eyes only: it has the passphrase."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(asdict(self)), 0o600)

    def config(self, home: Path, data: str, port: int, user: str) -> str:
        """pgBackRest's configuration; ``home``: the cluster's folder, as the server gets to it."""
        options = {**asdict(self), "storage": self._storage(home), "home": home, "data": data}
        return _CONFIG.format(**options, stanza=STANZA, port=port, user=user)

    def _storage(self, home: Path) -> str:
        parts = urlsplit(self.repository)
        if parts.scheme == "sftp":
            user = unquote(parts.username or "")
            return _SFTP.format(path=parts.path, host=parts.hostname, port=parts.port or 22, user=user, home=home)
        if parts.scheme == "s3":
            endpoint = urlsplit(f"https://{self.s3_endpoint}")
            key, secret = self.key.split()
            options = {"bucket": parts.netloc, "region": self.s3_region, "uri_style": self.s3_uri_style, "home": home}
            address = {"host": endpoint.hostname, "port": endpoint.port or 443}
            return _S3.format(path=parts.path, key=key, secret=secret, **address, **options)
        return _FOLDER.format(path=self.repository)

    def files(self) -> dict[str, str]:
        """Files that the server's user needs beside the configuration: content by name. Raises OSError."""
        if self.repository.startswith("sftp:"):
            return {"repository-key": self.key, "repository-known-hosts": self.known_hosts}
        return {"repository-ca": self.ca or _SYSTEM_CA.read_text()} if self.repository.startswith("s3:") else {}


def check_repository(folder: Path) -> None:
    """Raises OperationError where ``folder`` can't be a repository: nothing but one may be given away or written to."""
    try:
        foreign = sorted(path.name for path in folder.iterdir() if path.name not in _OWN)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise OperationError(f"[backup] repository {folder} is not a folder: mount it, or create it") from error
    except OSError as error:
        raise OperationError(f"[backup] repository {folder} can't be read: {error.strerror}") from error
    if foreign:
        raise OperationError(f"[backup] repository {folder} contains {foreign[0]!r}: choose an empty folder")


def check_writable(folder: Path) -> None:
    """Raises OperationError where a backup would fail at once, and not say why."""
    disk = os.statvfs(folder)
    if disk.f_flag & os.ST_RDONLY:
        raise OperationError(f"repository {folder} is mounted read-only: mount it with the option rw")
    if (free := disk.f_bavail * disk.f_frsize) < _LEAST_FREE:
        raise OperationError(
            f"repository {folder} has {free:,} bytes free: free at least {_LEAST_FREE:,}, or lower keep"
        )


def change_owner(folder: Path, uid: int, gid: int, ours: bool) -> None:
    """Give the repository to the server's user, which another machine may have given another id.

    ``ours``: its backups are this plant's; else only an empty folder is given away. Raises OperationError.
    """
    try:
        check_repository(folder)
        if (hidden := hidden_above(folder)) is not None:
            raise OperationError(
                f"[backup] repository {folder} is below {hidden}, which the database's account can't enter: run `chmod "
                f"o+x {hidden}`, or choose another folder"
            )
        if folder.stat().st_uid == uid:
            return
        if not ours and any(folder.glob("*/*")):
            raise OperationError(f"[backup] repository {folder} has another plant's backups: choose an empty folder")
        for parent, names, files in os.walk(folder):
            for name in (*names, *files):
                os.chown(Path(parent, name), uid, gid, follow_symlinks=False)
        os.chown(folder, uid, gid)  # last, so that one that was killed begins again
    except OSError as error:
        raise OperationError(f"[backup] repository {folder} can't be given to user {uid}: {error.strerror}") from error
