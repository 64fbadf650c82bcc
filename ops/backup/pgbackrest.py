"""pgBackRest as a process, and what its errors mean."""

from __future__ import annotations

import asyncio
import html
import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from core.errors import OperationError
from core.paths import State
from ops.postgres.cluster import Cluster

_NOT_ARCHIVED = 82
# What pgBackRest's error codes mean for an operator (src/build/error/error.yaml).
_MEANINGS = {
    28: "the repository belongs to another plant: choose an empty folder",
    50: "another backup is running",
    55: "files are missing: is the right disk mounted?",
    56: "the database does not respond",
    75: "it has no backup, or none of that time",
    _NOT_ARCHIVED: "it does not take the write-ahead log: see `plantlog logs postgres`",
}
# What its texts mean, the first one that is there.
_CAUSES = {
    "known hosts failure: .*": "the server's host key is not that in known_hosts_file",
    "public key authentication failed": "the server refuses the user, or the key of key_file",
    "unable to verify certificate .*": "the certificate of the service is not signed by one of ca_file",
    "unable to set user-defined CA .*": "ca_file has no certificate",
    "HTTP request failed with 403": "the service refuses the key of key_file",
    "HTTP request failed with 400": "the service refuses the request: is s3_region that of the bucket?",
    "unable to (?:connect to|get address for) .*": "the server can't be reached",
    "FormatError|CryptoError": "the passphrase is not that of the repository, or its files are damaged",
}
_S3_ERROR = re.compile("<Code>(.*?)</Code><Message>(.*?)</Message>")
_ERROR = re.compile(r"ERROR: \[(\d+)\]: (.*(?:\n {2,}.*)*)")


async def call(state: State, cluster: Cluster, *arguments: str, data: Path | None = None, nice: bool = False) -> str:
    """The output of pgBackRest. Ends it when cancelled. Raises OperationError with its message.

    ``data``: another data directory than the server's; ``nice``: ingest goes first.
    """
    process = await asyncio.create_subprocess_exec(
        *(("nice", "-n", "19") if nice else ()),
        *cluster.pgbackrest(*arguments, data=data),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",
        env=environment(state),
    )
    try:
        output, errors = (text.decode(errors="replace") for text in await process.communicate())
    except BaseException:
        process.terminate()
        await process.wait()
        raise
    if process.returncode:
        if process.returncode < 0:  # so it does where SFTP can't create a folder
            errors += (
                f"it was ended by signal {-process.returncode}: does the path exist, and may the user write there?"
            )
        raise OperationError(explain(arguments[0], output + errors, cluster))
    return output


def environment(state: State) -> dict[str, str]:
    """Environment for libpq: pgBackRest has options for a socket, but none for a host and a password."""
    owner = urlsplit(state.dsn("owner") if state.dsn_file("owner").exists() else "")
    verified = {f"PG{name.upper()}": value for name, value in parse_qsl(owner.query) if name.startswith("ssl")}
    return {**os.environ, **verified, "PGHOST": owner.hostname or "", "PGPASSWORD": owner.password or ""}


def explain(command: str, text: str, cluster: Cluster) -> str:
    """Explain its output to an operator."""
    repository = "" if cluster.archive is None else cluster.archive.repository
    if (answer := _S3_ERROR.search(text)) is not None:
        return f"repository {repository}: {html.unescape(answer[2])} ({answer[1]})"
    error = _ERROR.search(text)
    if error is None:
        return f"pgbackrest {command}, repository {repository}: {text.strip()[-500:]}"
    meaning, message = _MEANINGS.get(int(error[1])), f"[{error[1]}] {error[2].splitlines()[0]}"
    if (archive_error := _archive_error(cluster)) and int(error[1]) == _NOT_ARCHIVED:
        text = message = archive_error
    for pattern, cause in _CAUSES.items():
        if (line := re.search(pattern, text)) is not None:
            meaning, message = cause, message if "Error" in line[0] else line[0]
            break
    message = f"pgbackrest {command}: {message}"
    return f"repository {repository}: {meaning} ({message})" if meaning else f"repository {repository}: {message}"


def _archive_error(cluster: Cluster) -> str:
    """Reason why the server can't archive, in pgBackRest's words; empty: nothing is known."""
    texts = [path.read_text(errors="replace") for path in sorted((cluster.data.parent / "archive").rglob("*.error"))]
    return next((line for text in texts for line in text.splitlines() if line.startswith("repo1: ")), "")
