"""Verification of the connection to a database on another host."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from core.addresses import is_loopback
from core.database import addresses
from core.errors import OperationError

VARIABLE = "PLANTLOG_UNVERIFIED_DATABASE"  # names hosts whose certificate nobody verifies


def unverified_hosts(dsn: str) -> list[str]:
    """Hosts of a DSN that another server could pass for: neither this machine nor with ``sslmode=verify-full``."""
    options = parse_qs(urlsplit(dsn).query)
    if options.get("sslmode") == ["verify-full"]:
        return []
    named = [urlsplit(address).hostname for address in addresses(dsn)]
    hosts = [unquote(host) for host in (*named, *options.get("host", ())) if host]
    return [host for host in dict.fromkeys(hosts) if not host.startswith("/") and not is_loopback(host)]


def check(dsn: str, name: str) -> None:
    """Refuse a DSN whose connection is not verified, unless the environment allows it. Raises OperationError.

    ``name``: what it is called in the error. https://www.postgresql.org/docs/17/libpq-ssl.html
    """
    accepted = {host.strip().lower() for host in os.environ.get(VARIABLE, "").split(",")}
    if hosts := [host for host in unverified_hosts(dsn) if host not in accepted]:
        sslmode = "".join(parse_qs(urlsplit(dsn).query).get("sslmode", ["nothing"]))
        raise OperationError(
            f"{name}: sslmode: found {sslmode}; legal for {', '.join(hosts)}, as anybody between could pass for it: "
            "sslmode=verify-full&sslrootcert=/PATH/OF/THE/CA.crt behind a ? at the end of the DSN; "
            f"or, in a network that you trust, set {VARIABLE}={','.join(hosts)} for this command"
        )
    root = "".join(parse_qs(urlsplit(dsn).query).get("sslrootcert", []))
    if root and not (Path(root).is_absolute() and Path(root).is_file()):
        raise OperationError(
            f"{name}: sslrootcert: found {root}; legal: the absolute path of a file of CA certificates"
        )
