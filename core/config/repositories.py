"""Checks across options that name where backups and the archive are."""

from __future__ import annotations

from collections.abc import Iterator

from core.addresses import reachable
from core.config.explain import FieldFault, shown
from core.config.model import ArchiveOptions, BackupOptions, SealingOptions


def in_backup(options: BackupOptions) -> Iterator[FieldFault]:
    """Faults between options of the table [backup]."""
    if options.repository is None:
        if options.passphrase_file is not None:
            yield "repository", "nothing", "a folder for the backups, as there is a passphrase_file"
        return
    if options.passphrase_file is None:
        yield "passphrase_file", "nothing", "a file with the passphrase of the repository"
    remote = not options.repository.startswith("/")
    if remote and options.key_file is None:
        yield "key_file", "nothing", f"a file with the key for {shown(options.repository)}"
    if options.repository.startswith("sftp:"):
        if options.known_hosts_file is None:
            yield "known_hosts_file", "nothing", "a file with the server's host key, as `ssh-keyscan` prints it"
        if not reachable(options.repository):
            yield "repository", shown(options.repository), "a host, and a port from 1 to 65535"
    yield from _in_s3(options.repository, options.s3_endpoint)


def in_archive(options: ArchiveOptions) -> Iterator[FieldFault]:
    """Faults between options of the table [archive]."""
    if options.location is not None and options.location.startswith("s3:") and options.key_file is None:
        yield "key_file", "nothing", f"a file with the key for {shown(options.location)}"
    yield from _in_s3(options.location or "", options.s3_endpoint)


def between_tables(sealing: SealingOptions | None, archive: ArchiveOptions | None) -> Iterator[FieldFault]:
    """Faults between the options of [archive] and [sealing]. None: a table that is not legal itself."""
    if sealing is not None and not sealing.enabled and archive is not None and archive.location is not None:
        yield (
            "location",
            shown(archive.location),
            "nothing while [sealing] enabled = false: only sealed days are archived",
        )


def _in_s3(location: str, endpoint: str | None) -> Iterator[FieldFault]:
    if location.startswith("s3:") and endpoint is None:
        yield "s3_endpoint", "nothing", "HOST or HOST:PORT, as in s3.eu-central-1.amazonaws.com"
    if endpoint is not None and not reachable(f"https://{endpoint}"):
        yield "s3_endpoint", shown(endpoint), "a host, and a port from 1 to 65535"
