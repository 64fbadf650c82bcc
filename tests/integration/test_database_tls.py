"""The connection to a server of PostgreSQL with TLS: which certificates are accepted with ``sslmode=verify-full``."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import pytest

from ingest.database import connect
from ops.postgres.bootstrap import maintenance_dsn
from ops.postgres.cluster import Cluster, provision
from ops.postgres.server import Server
from tests.certificates import Authority, make, pem
from tests.database import connected
from tests.waiting import until

CA, OTHER = Authority("the plant's CA"), Authority("another CA")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A server that is started, without TLS."""
    with TemporaryDirectory(prefix="tls.") as folder:
        made = provision(Path(folder), lambda line: None)
        with Server(Path(folder), ("-cfsync=off", "-cshared_buffers=32MB"), made):
            yield made


async def show(cluster: Cluster, dsn: str, folder: Path, by: Authority, host: str) -> None:
    """Let the server use a certificate from now on."""
    certificate, key = make(folder / by.name, host=host, by=by)
    for source, name in ((pem(certificate), "server.crt"), (key, "server.key")):
        target = cluster.data / name
        target.write_bytes(source.read_bytes())
        target.chmod(0o600)
        cluster.give(target)
    async with connected(dsn) as connection:
        await connection.execute("ALTER SYSTEM SET ssl = on")
        await connection.fetchval("SELECT pg_reload_conf()")

    async def shown() -> bool:
        try:
            session: Any = await asyncpg.connect(dsn, ssl="require")
        except (OSError, asyncpg.PostgresError):
            return False
        found = session._transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        await session.close()
        return bool(found == certificate.read_bytes())

    await until(shown)


async def test_only_the_right_host_of_the_right_ca_is_accepted(cluster: Cluster, tmp_path: Path) -> None:
    dsn = maintenance_dsn(cluster._state.dsn("owner"))
    (tmp_path / "ca.crt").write_bytes(CA.pem)
    verified = f"{dsn}?sslmode=verify-full&sslrootcert={tmp_path / 'ca.crt'}"
    for by, host, fault in (
        (OTHER, "127.0.0.1", "unable to get local issuer certificate"),
        (CA, "192.0.2.1", "IP address mismatch"),
    ):
        await show(cluster, dsn, tmp_path / host, by, host)
        with pytest.raises(ssl.SSLCertVerificationError, match=fault):
            await connect(verified, "test")
        unverified = await connect(f"{dsn}?sslmode=require", "test")  # as everybody else's does
        await unverified.close()
    await show(cluster, dsn, tmp_path / "right", CA, "127.0.0.1")
    connection = await connect(verified, "test")
    assert await connection.fetchval("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    await connection.close()
