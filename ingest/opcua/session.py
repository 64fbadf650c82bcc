"""A session with one OPC UA server, by asyncua: secure channel, trust, user identity, every step with a deadline."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from asyncua import Client, ua
from asyncua.crypto import security_policies, uacrypto
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ingest.config.model import OpcuaSource
from ingest.errors import SourceError

APPLICATION_URI = "urn:plantlog:collector"

_POLICIES = {
    "Basic256Sha256": security_policies.SecurityPolicyBasic256Sha256,
    "Aes128Sha256RsaOaep": security_policies.SecurityPolicyAes128Sha256RsaOaep,
    "Aes256Sha256RsaPss": security_policies.SecurityPolicyAes256Sha256RsaPss,
}


async def connect(source: OpcuaSource, pki: Path) -> Client:
    """A fresh client with an active session. Raises SourceError with the reason, never waits beyond the deadlines."""
    client = Client(source.address, timeout=source.time_out)
    client.application_uri = APPLICATION_URI
    client.name = client.description = "plantlog"
    if source.username is not None:
        client.set_user(source.username)
    if source.password_file is not None:
        client.set_password(source.password_file.read_text().rstrip("\n"))
    try:
        if not source.insecure:
            await _secure(client, source, pki)
        # socket, hello, channel, session, activation: asyncua has a time-out for each, this one is for all
        async with asyncio.timeout(5 * source.time_out):
            await client.connect()
    except (OSError, TimeoutError, ua.UaError) as error:
        await close(client, source.time_out)
        raise SourceError(f"connect: {type(error).__name__}: {error}".rstrip(": ")) from error
    except BaseException:
        await close(client, source.time_out)
        raise
    return client


async def close(client: Client, time_out: float) -> None:
    """Leave, politely if the server still listens; subscriptions stay with it, for whoever comes next."""
    session_close = client.uaclient.close_session
    client.uaclient.close_session = lambda _: session_close(False)  # asyncua's own asks for their deletion
    with suppress(Exception):  # it is over, whatever it says
        async with asyncio.timeout(time_out):
            await client.disconnect()
    with suppress(Exception):
        client.disconnect_socket()


async def _secure(client: Client, source: OpcuaSource, pki: Path) -> None:
    own_key, own_certificate = pki / "own.pem", pki / "own.der"
    async with asyncio.timeout(4 * source.time_out):
        await client.setup_self_signed_certificate(own_key, own_certificate)
        own_key.chmod(0o600)
        endpoints = await client.connect_and_get_server_endpoints()
        server = _certificate(endpoints, _POLICIES[source.security].URI, source)
        _trust(server, source, pki)
        await client.set_security(
            _POLICIES[source.security],
            own_certificate,
            own_key,
            server_certificate=uacrypto.CertProperties(server, "der"),
            mode=ua.MessageSecurityMode.SignAndEncrypt,
        )


def _certificate(endpoints: list[Any], policy: str, source: OpcuaSource) -> bytes:
    """The server's certificate (DER) at the endpoint that speaks ``policy`` with SignAndEncrypt."""
    for endpoint in endpoints:
        if endpoint.SecurityPolicyUri == policy and endpoint.SecurityMode == ua.MessageSecurityMode.SignAndEncrypt:
            # Only the first of a chain: its length stands in its own header (DER, long form of two bytes).
            der: bytes = endpoint.ServerCertificate
            return der[: int.from_bytes(der[2:4]) + 4]
    offered = sorted({f"{e.SecurityPolicyUri.rpartition('#')[2]} {e.SecurityMode.name}" for e in endpoints})
    raise SourceError(
        f"the server has no endpoint with {source.security} SignAndEncrypt; it offers {', '.join(offered)}"
    )


def _trust(server: bytes, source: OpcuaSource, pki: Path) -> None:
    """Accept only a certificate that somebody put on our list."""
    if source.server_certificate is not None:
        trusted = [source.server_certificate]
    else:
        trusted = sorted((pki / "trusted").glob("*.der")) + sorted((pki / "trusted").glob("*.pem"))
    if any(_der(path) == server for path in trusted):
        return
    fingerprint = hashlib.sha256(server).hexdigest()
    rejected = pki / "rejected" / f"{fingerprint[:16]}.der"
    rejected.parent.mkdir(parents=True, exist_ok=True)
    rejected.write_bytes(server)
    raise SourceError(
        f"the server's certificate (SHA-256 {fingerprint}) is not trusted: if it is the right one, "
        f"move {rejected} to {pki / 'trusted'}"
    )


def _der(path: Path) -> bytes:
    content = path.read_bytes()
    if content.startswith(b"-----BEGIN"):
        return x509.load_pem_x509_certificate(content).public_bytes(Encoding.DER)
    return content
