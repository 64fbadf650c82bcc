"""OPC UA servers whose certificates a CA has issued."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from asyncua import Server, ua
from cryptography.hazmat.primitives.serialization import Encoding

from core.certificates import validate
from core.config.sources import OpcuaSource
from core.errors import SourceError
from core.opcua.session import close, connect
from ops import certificates as commands
from tests import certificates
from tests.certificates import Authority
from tests.peers import peer
from tests.ports import free_port

ROOT = Authority("root")
ISSUING = Authority("issuing", ROOT, path_length=0)


def source(port: int, **options: Any) -> OpcuaSource:
    address = f"opc.tcp://127.0.0.1:{port}"
    return OpcuaSource.model_validate(
        {"name": "plc", "kind": "opcua", "address": address, "time_out": 60.0, "tags": (), **options}
    )


async def connect_problem(source: OpcuaSource, pki: Path) -> str:
    """Why there is no session; empty: there is one, in which a value was read."""
    try:
        client = await connect(source, pki)
    except SourceError as error:
        return str(error)
    try:
        assert await client.nodes.server_state.read_value() == 0
    finally:
        await close(client, source.time_out)
    return ""


def add(pki: Path, name: str, content: bytes, issuer: bool = False) -> None:
    """Add a certificate like ``plantlog source certificate add``."""
    file = pki.parent / name
    file.write_bytes(content)
    assert list(commands.add(pki, file, issuer))


async def becomes_trusted(port: int, pki: Path, server: bytes, sent: bool = False) -> None:
    """From an empty trust list to a session, and to a revoked certificate, without a restart.

    ``sent``: the server sends its CAs' certificates along.
    """
    plc = source(port)
    reason = await connect_problem(plc, pki)
    assert "is not trusted" in reason
    if sent:
        assert "or `plantlog source certificate add FILE` with the certificate of its CA CN=issuing" in reason
        add(pki, "root.pem", ROOT.pem)
    else:
        assert "or complete its chain: run `plantlog source certificate add FILE`" in reason
        add(pki, "issuing.pem", ISSUING.pem)
        assert (
            "`plantlog source certificate add FILE --issuer` with the certificate of the CA CN=root"
            in await connect_problem(plc, pki)
        )
        add(pki, "root.pem", ROOT.pem, issuer=True)
    reason = await connect_problem(plc, pki)
    assert "revocation-unknown: found no CRL, expected one of CN=issuing" in reason
    assert "revocation-unknown: found no CRL, expected one of CN=root" in reason
    assert await connect_problem(source(port, accept=["revocation-unknown"]), pki) == ""
    add(pki, "root.crl", ROOT.crl())
    expired = pki / "issuers" / "crl" / "expired.crl"
    expired.write_bytes(ISSUING.crl(days=(-9, -2)))
    reason = await connect_problem(plc, pki)
    assert f"expired-crl: found {expired} valid until " in reason
    (pki / "issuers" / "crl" / "new.crl").write_bytes(ISSUING.crl(days=(-1, 30)))
    assert await connect_problem(plc, pki) == ""
    (pki / "issuers" / "crl" / "newer.crl").write_bytes(ISSUING.crl([validate.chain(server)[0]], days=(-0.5, 30)))
    reason = await connect_problem(plc, pki)
    assert "revoked: found CN=test revoked on " in reason


@pytest.mark.slow
@pytest.mark.parametrize("sent", [(), (ISSUING, ROOT)])
async def test_asyncua(sent: tuple[Authority, ...], tmp_path: Path) -> None:
    certificate, key = certificates.make(tmp_path / "server", by=ISSUING)
    server = Server()
    await server.init()
    await server.set_application_uri(certificates.SERVER_URI)
    port = free_port()
    server.set_endpoint(f"opc.tcp://127.0.0.1:{port}")
    server.set_security_policy([ua.SecurityPolicyType.NoSecurity, ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt])
    await server.load_certificate(str(certificate))
    await server.load_private_key(str(key))
    async with server:
        for endpoint in server.iserver.endpoints if sent else ():
            chain = (issuer.certificate.public_bytes(Encoding.DER) for issuer in sent)
            endpoint.ServerCertificate = b"".join((endpoint.ServerCertificate or b"", *chain))
        content = await asyncio.to_thread(certificate.read_bytes)
        await becomes_trusted(port, tmp_path / "pki", content, bool(sent))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["open62541", "milo"])
async def test_foreign_servers(name: str, tmp_path: Path) -> None:
    certificate, _ = certificates.make(tmp_path / "peer" / "pki", by=ISSUING)
    async with peer(name, tmp_path / "peer", 1, "200") as server:
        await becomes_trusted(server.port, tmp_path / "pki", await asyncio.to_thread(certificate.read_bytes))
