"""A private database server for a benchmark."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from core.paths import state_folder
from ops.postgres.binaries import provide
from ops.postgres.bootstrap import bootstrap
from ops.postgres.server import Server


@dataclass(frozen=True, slots=True)
class BenchDatabase:
    """Database in which it runs."""

    owner_dsn: str
    ingest_dsn: str
    psql: Sequence[str]  # command line of a psql that is logged in as owner
    psql_environment: dict[str, str]
    folder: Path


@contextmanager
def private(folder: Path) -> Iterator[BenchDatabase]:
    """A migrated database on a server that runs inside the block: empty, or as an earlier one left it in ``folder``."""
    binaries = provide(state_folder(), lambda line: None)
    with Server(folder / "server") as server:
        ingest = server.role("ingest")
        passwords = {role: urlsplit(server.role(role)).password or "" for role in ("ingest", "reader")}
        asyncio.run(bootstrap(server.owner_dsn, passwords))
        parts = urlsplit(server.owner_dsn)
        environment = {
            **os.environ,
            "PGHOST": parts.hostname or "",
            "PGPORT": str(parts.port),
            "PGUSER": parts.username or "",
            "PGPASSWORD": parts.password or "",
            "PGDATABASE": parts.path.removeprefix("/"),
        }
        spool = folder / "spool"
        spool.mkdir(exist_ok=True)
        yield BenchDatabase(server.owner_dsn, ingest, [str(binaries.path("psql"))], environment, spool)
