"""The connection to a server of PostgreSQL with TLS: which certificates are accepted with ``sslmode=verify-full``."""

from __future__ import annotations

import asyncio
import ssl
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from cryptography import x509

from core.config.https import TlsSettings
from core.database import connect
from core.paths import CHECKOUT, State
from core.servers import own_certificate
from core.servers.server_tls import ca_file, server_file
from ops.backup.state_files import pack
from ops.maintenance.certificate import Certificate
from ops.maintenance.job import JobContext, JobResult
from ops.migration.migrate import DatabaseLogin
from ops.postgres import mounted
from ops.postgres.bootstrap import bootstrap, maintenance_dsn
from ops.postgres.cluster import Cluster, provision
from ops.postgres.listening import Listening
from ops.postgres.server import Server
from tests.certificates import Authority, make, pem
from tests.config_in_force import activate
from tests.database import connected
from tests.waiting import until

LOGINS = ("ingest", "reader", "maintenance")
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
        cluster.change_owner(target)
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


@asynccontextmanager
async def from_elsewhere(port: int) -> AsyncIterator[int]:
    """A port behind which the server sees a client that is not 127.0.0.1."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.3", 0))
        await asyncio.gather(copy(reader, inner[1]), copy(inner[0], writer))

    listening = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


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


def plant(folder: Path, table: str) -> Path:
    """A plant.toml with one more table."""
    file = folder / "plant.toml"
    source = '[[source]]\nname = "s"\nkind = "modbus"\naddress = "tcp://h:1"\ntags = "t.csv"\n'
    file.write_text(f'[plant]\nname = "p"\n{table}{source}')
    (folder / "t.csv").write_text("name,address\na,holding:0\n")
    return file


async def certificate(dsn: str, ca: Path) -> bytes:
    """The server's certificate, verified."""
    session: Any = await connect(f"{dsn}?sslmode=verify-full&sslrootcert={ca}", "test")
    try:
        assert await session.fetchval("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
        return bytes(session._transport.get_extra_info("ssl_object").getpeercert(binary_form=True))
    finally:
        await session.close()


async def until_another(dsn: str, ca: Path, before: bytes) -> bytes:
    """The certificate that the server shows instead."""
    found = before

    async def is_new() -> bool:
        nonlocal found
        found = await certificate(dsn, ca)
        return found != before

    await until(is_new)
    return found


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[State]:
    """A state folder whose own server listens for other machines, too."""
    with TemporaryDirectory(prefix="tls.") as folder:
        state = State(Path(folder))
        current = activate(state.root, plant(tmp_path, '[database]\nhost = "0.0.0.0"\n'))
        TlsSettings.of(current.plant).ensure(state.root)
        cluster = provision(state.root, lambda line: None)
        cluster.listening = Listening.of_plant(current.plant, state.root)
        with Server(state.root, ("-cfsync=off", "-cshared_buffers=32MB"), cluster) as server:
            asyncio.run(
                bootstrap(server.owner_dsn, {role: DatabaseLogin.of_dsn(server.role(role)).password for role in LOGINS})
            )
            yield state


async def test_other_machines_reach_the_reader_with_tls_only(shared: State) -> None:
    ca = ca_file(shared.pki)
    context = JobContext(shared.dsn("maintenance"), shared.dsn("owner"), shared)

    async with from_elsewhere(urlsplit(shared.dsn("owner")).port or 0) as port:
        reader, owner = (urlsplit(shared.dsn(role)) for role in ("reader", "owner"))
        remote, other = (
            urlunsplit(one._replace(netloc=f"{one.netloc.rpartition('@')[0]}@127.0.0.1:{port}"))
            for one in (reader, owner)
        )
        first = await certificate(remote, ca)
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError, match="no encryption"):
            await connect(f"{remote}?sslmode=disable", "test")
        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError, match=r"no pg_hba\.conf entry.*owner"):
            await certificate(other, ca)

        async with connected(shared.dsn("owner")) as owned:  # without TLS: it is this machine
            renew = Certificate().renew
            assert await renew(context, owned) == JobResult()
            kept = await connect(f"{remote}?sslmode=require", "test")
            server_file(shared.pki).unlink()
            assert await renew(context, owned) == JobResult(detail="new certificate")
            await until_another(remote, ca, first)
            assert await kept.fetchval("SELECT 1") == 1
            await kept.close()
            assert await renew(context, owned) == JobResult()


@pytest.fixture
def contained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[State]:
    """The server of docker-compose.yml, and what maintenance sees of it."""
    with TemporaryDirectory(prefix="tls.") as folder:
        state = State(Path(folder))
        cluster = provision(state.root, lambda line: None)
        pem, logins = cluster.folder / "server.pem", cluster.folder / "logins"
        authority = tmp_path / "tls_ca", tmp_path / "tls_ca_key"
        own_certificate.make_authority(*authority)
        monkeypatch.setenv("PLANTLOG_DATABASE", str(cluster.data))
        monkeypatch.setattr(mounted, "_PEM", pem)
        monkeypatch.setattr(mounted, "_CA", authority)
        seen = mounted.existing(state.root)
        monkeypatch.setattr(
            type(seen), "change_owner", lambda self, *paths: cluster.change_owner(*paths)
        )  # in containers, one user
        seen.renew_certificate()
        logins.write_bytes((CHECKOUT / "ops" / "containers" / "pg_hba.conf").read_bytes())
        cluster.change_owner(logins)
        files = {"ssl_cert_file": pem, "ssl_key_file": pem, "hba_file": logins}
        settings = [f"-c{name}={cluster.path_of_server(path)}" for name, path in files.items()]
        with Server(state.root, ("-cfsync=off", "-cshared_buffers=32MB", "-cssl=on", *settings), cluster) as server:
            asyncio.run(
                bootstrap(server.owner_dsn, {role: DatabaseLogin.of_dsn(server.role(role)).password for role in LOGINS})
            )
            yield state


@pytest.mark.slow
async def test_database_of_containers_has_a_certificate_that_maintenance_renews(
    contained: State, tmp_path: Path
) -> None:
    ca, owner = tmp_path / "tls_ca", contained.dsn("owner")
    context = JobContext(contained.dsn("maintenance"), owner, contained)
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError, match="no encryption"):
        await connect(f"{owner}?sslmode=disable", "test")
    first = await certificate(owner, ca)
    assert await certificate(owner.replace("127.0.0.1", "localhost"), ca) == first
    async with connected(owner) as connection:
        renew = Certificate().renew
        assert await renew(context, connection) == JobResult()
        # It ends soon, or is lost.
        mounted._PEM.unlink()
        assert await renew(context, connection) == JobResult(detail="new certificate")
        second = await until_another(owner, ca, first)
        # What the container `certificate` issues is used, too.
        mounted._PEM.unlink()
        mounted.existing(contained.root).renew_certificate()
        assert await renew(context, connection) == JobResult(detail="new certificate")
        third = await until_another(owner, ca, second)
        # Clients have another name for it.
        options = '[tls]\nnames = ["historian.example"]\n[viewer]\nhost = "0.0.0.0"\n'
        activate(contained.root, plant(tmp_path, options))
        assert await renew(context, connection) == JobResult(detail="new certificate")
        fourth = await until_another(owner, ca, third)
        names = own_certificate.names_of(x509.load_der_x509_certificate(fourth))
        assert sorted(names) == ["127.0.0.1", "historian.example", "localhost"]
        # Push endpoint and viewer have one for that name as well, and nothing to issue another with.
        served = x509.load_pem_x509_certificate(server_file(contained.pki).read_bytes())
        assert "historian.example" in own_certificate.names_of(served)
        served.verify_directly_issued_by(x509.load_pem_x509_certificate(ca.read_bytes()))
        assert (contained.pki / "tls" / "ca.key").readlink() == tmp_path / "tls_ca_key"
        pack(contained, tmp_path / "packed.tar.gz")
        with tarfile.open(tmp_path / "packed.tar.gz") as archive:
            packed = {file for file in archive.getnames() if "/tls/" in file}
        assert packed == {"state/pki/tls/ca.crt", "state/pki/tls/server.pem"}
        # `init` makes another CA.
        own_certificate.make_authority(ca, tmp_path / "tls_ca_key")
        assert await renew(context, connection) == JobResult(detail="new certificate")

        async def is_trusted() -> bool:
            try:
                return bool(await certificate(owner, ca))
            except ssl.SSLCertVerificationError:
                return False

        await until(is_trusted)
        assert await renew(context, connection) == JobResult()
