"""Sessions with OPC UA servers: whom we trust, what we say of ourselves, and a password that nobody overhears."""

from __future__ import annotations

import asyncio
import shutil
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from asyncua import Server, ua
from asyncua.crypto.security_policies import SecurityPolicyNone
from asyncua.server.user_managers import CertificateUserManager, User, UserRole
from asyncua.ua.ua_binary import struct_to_binary, uatcp_to_binary
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from core.config.sources import OpcuaSource
from core.errors import SourceError
from core.opcua.session import close, connect
from core.opcua.transport import MAX_MESSAGE_BYTES
from tests import certificates
from tests.peers import peer
from tests.ports import free_port


class Users:
    """Lets everybody in whose password is right, and remembers what he said."""

    def __init__(self) -> None:
        self.logins: list[tuple[str | None, str | None]] = []

    def get_user(self, _: Any, username: str | None = None, password: str | None = None, **__: Any) -> User | None:
        self.logins.append((username, password))
        return User(UserRole.User) if password == "drowssap" else None


@asynccontextmanager
async def serving(
    certificate: tuple[Path, Path] | None,
    policy: Any,
    users: Users | CertificateUserManager | None = None,
    *,
    without: bool = True,
) -> AsyncIterator[str]:
    """asyncua's server with that certificate and key, also ``without`` security; gives its address."""
    server = Server(user_manager=users)
    await server.init()
    await server.set_application_uri(certificates.SERVER_URI)
    address = f"opc.tcp://127.0.0.1:{free_port()}"
    server.set_endpoint(address)
    server.set_security_policy([ua.SecurityPolicyType.NoSecurity, policy] if certificate and without else [policy])
    if certificate is not None:
        await server.load_certificate(str(certificate[0]))
        await server.load_private_key(str(certificate[1]))
    async with server:
        yield address


def source(address: str, **options: Any) -> OpcuaSource:
    return OpcuaSource.model_validate(
        {"name": "plc", "kind": "opcua", "address": address, "time_out": 60.0, "tags": (), **options}
    )


async def connect_problem(source: OpcuaSource, pki: Path) -> str:
    """Why there is no session; empty: there is one."""
    try:
        await close(await connect(source, pki), source.time_out)
    except SourceError as error:
        return str(error)
    return ""


SECURE = ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"days": (-400, -2)}, "found valid until "),
    "not-yet-valid": ({"days": (2, 400)}, "found valid from "),
    "key-size": ({"bits": 1024}, "found 1024 bits, expected 2048 to 4096 bits for Basic256Sha256"),
    "wrong-host": ({"host": "plc7.example"}, "found plc7.example, expected 127.0.0.1"),
    "wrong-uri": ({"uri": "urn:another"}, f"found urn:another, expected {certificates.SERVER_URI}"),
    "wrong-usage": ({"encipherment": False}, "found key usage digital_signature, expected digital_signature, key_"),
    "bad-signature": ({"forged": True}, "expected one by itself"),
}


@pytest.mark.parametrize("check", WRONG)
async def test_a_trusted_certificate_must_be_valid(check: str, tmp_path: Path) -> None:
    """Each check by its name, with what was found and what is right; and each can be left out by that name."""
    how, message = WRONG[check]
    certificate = certificates.make(tmp_path / "server", **how)
    async with serving(certificate, SECURE) as address:
        pinned = source(address, server_certificate=certificate[0])
        reason = await connect_problem(pinned, tmp_path / "pki")
        assert "is trusted, but not valid" in reason
        assert f"{check}: " in reason
        assert message in reason
        assert f'accept = ["{check}"]' in reason
        accepted = source(address, server_certificate=certificate[0], accept=[check])
        assert await connect_problem(accepted, tmp_path / "pki") == ""


async def test_valid_certificate_needs_only_trust(tmp_path: Path) -> None:
    certificate = certificates.make(tmp_path / "server")
    async with serving(certificate, SECURE) as address:
        reason = await connect_problem(source(address), tmp_path / "pki")
        assert "is not trusted" in reason
        assert "`plantlog source certificate trust plc`" in reason
        assert "also fails" not in reason
        (rejected,) = (tmp_path / "pki" / "rejected").iterdir()
        shutil.move(rejected, tmp_path / "pki" / "trusted")
        assert (tmp_path / "pki" / "trusted").is_dir(), "the folder is there before somebody moves a file to it"
        assert await connect_problem(source(address), tmp_path / "pki") == ""
        other = certificates.make(tmp_path / "other")
        assert "the configured server_certificate" in await connect_problem(
            source(address, server_certificate=other[0]), tmp_path / "pki"
        )


async def test_certificate_trusted_before_the_folder_existed(tmp_path: Path) -> None:
    certificate = certificates.make(tmp_path / "server")
    (tmp_path / "pki").mkdir()
    shutil.copyfile(certificate[0], tmp_path / "pki" / "trusted")
    async with serving(certificate, SECURE) as address:
        assert await connect_problem(source(address), tmp_path / "pki") == ""


async def test_certificate_is_kept_when_the_host_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = certificates.make(tmp_path / "server")
    own = tmp_path / "pki" / "own.der"
    async with serving(certificate, SECURE) as address:
        pinned = source(address, server_certificate=certificate[0])
        assert await connect_problem(pinned, tmp_path / "pki") == ""
        before = own.read_bytes()
        monkeypatch.setattr(socket, "gethostname", lambda: "renamed")
        assert await connect_problem(pinned, tmp_path / "pki") == ""
        assert own.read_bytes() == before
        uri = x509.load_der_x509_certificate(before).extensions.get_extension_for_class(x509.SubjectAlternativeName)
        assert uri.value.get_values_for_type(x509.UniformResourceIdentifier)[0].startswith("urn:plantlog:")
        own.unlink()
        assert "own.der is missing beside" in await connect_problem(pinned, tmp_path / "pki")
        assert not own.exists()


async def test_certificate_of_an_earlier_version_is_kept(tmp_path: Path) -> None:
    """Even one that has ended: only the server can say whether it still takes it."""
    certificate = certificates.make(tmp_path / "server")
    own = certificates.make(tmp_path / "own", days=(-400, -1), uri="urn:plantlog:collector", host="old-name")
    (tmp_path / "pki").mkdir()
    shutil.copyfile(own[0], tmp_path / "pki" / "own.der")
    shutil.copyfile(own[1], tmp_path / "pki" / "own.pem")
    async with serving(certificate, SECURE) as address:
        await connect_problem(source(address, server_certificate=certificate[0]), tmp_path / "pki")
    assert (tmp_path / "pki" / "own.der").read_bytes() == own[0].read_bytes()


@pytest.mark.slow
async def test_untrusting_server_is_reported(tmp_path: Path) -> None:
    async with peer("node-opcua", tmp_path / "peer", 1, "200", "strict") as server:
        strict = source(f"opc.tcp://127.0.0.1:{server.port}", accept=["wrong-host"])
        assert "is not trusted" in await connect_problem(strict, tmp_path / "pki")
        (rejected,) = (tmp_path / "pki" / "rejected").iterdir()
        shutil.move(rejected, tmp_path / "pki" / "trusted")
        reason = await connect_problem(strict, tmp_path / "pki")
    own = x509.load_der_x509_certificate((tmp_path / "pki" / "own.der").read_bytes())
    assert "the server does not trust plantlog's certificate" in reason
    assert str(tmp_path / "pki" / "own.der") in reason
    assert own.fingerprint(hashes.SHA1()).hex() in reason


async def test_a_wrong_path_lists_the_endpoints(tmp_path: Path) -> None:
    async with serving(None, ua.SecurityPolicyType.NoSecurity) as address:
        target = urlsplit(address)

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            hello = await reader.read(4096)
            if b"/wrong" in hello:
                refusal = ua.ErrorMessage(ua.StatusCode(ua.StatusCodes.BadTcpEndpointUrlInvalid), "no such endpoint")
                writer.write(uatcp_to_binary(ua.MessageType.Error, refusal))
                await writer.drain()
                writer.close()
                return
            there, back = await asyncio.open_connection(target.hostname, target.port)
            back.write(hello)

            async def pass_on(one: asyncio.StreamReader, other: asyncio.StreamWriter) -> None:
                with suppress(OSError):
                    while some := await one.read(65536):
                        other.write(some)
                    other.close()

            await asyncio.gather(pass_on(reader, back), pass_on(there, writer))

        server = await asyncio.start_server(relay, "127.0.0.1", free_port())
        async with server:
            port = server.sockets[0].getsockname()[1]
            reason = await connect_problem(source(f"opc.tcp://127.0.0.1:{port}/wrong", insecure=True), tmp_path / "pki")
    assert reason.startswith(
        f"the server has no endpoint opc.tcp://127.0.0.1:{port}/wrong; it has opc.tcp://127.0.0.1:"
    )


async def test_server_that_requires_security_says_what_it_offers(tmp_path: Path) -> None:
    policy = ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt
    certificate = certificates.make(tmp_path / "server", uri=certificates.SERVER_URI)
    async with serving(certificate, policy, without=False) as address:
        assert await connect_problem(source(address, insecure=True), tmp_path / "pki") == (
            "the server has no endpoint without security; it offers Basic256Sha256 SignAndEncrypt: remove insecure"
        )


def _chunk(kind: bytes, channel: int, security: bytes, sequence: int, request: int, body: bytes) -> bytes:
    """OPC 10000-6, 6.7.2."""
    rest = security + struct.pack("<II", sequence, request) + body
    return kind + struct.pack("<II", 12 + len(rest), channel) + rest


def _endless_chunks() -> Iterator[bytes]:
    """Responses to Hello, OpenSecureChannel and CreateSession, of which the last never ends."""
    yield uatcp_to_binary(ua.MessageType.Acknowledge, ua.Acknowledge(0, 2**31 - 1, 2**31 - 1, 0, 0))
    policy = SecurityPolicyNone.URI.encode()
    opened = ua.OpenSecureChannelResponse()
    opened.Parameters.SecurityToken = ua.ChannelSecurityToken(1, 1, datetime.now(UTC), 600_000)
    opened.Parameters.ServerNonce = b""
    none = struct.pack("<i", len(policy)) + policy + struct.pack("<ii", -1, -1)
    yield _chunk(b"OPNF", 1, none, 1, 1, struct_to_binary(opened))
    for number in count(2):
        yield _chunk(b"MSGC", 1, struct.pack("<I", 1), number, 2, bytes(60_000))


def _endless_chunk() -> Iterator[bytes]:
    """One chunk of 4 GB."""
    yield uatcp_to_binary(ua.MessageType.Acknowledge, ua.Acknowledge(0, 2**31 - 1, 2**31 - 1, 0, 0))
    yield b"OPNF" + struct.pack("<II", 2**32 - 1, 0)
    while True:
        yield bytes(60_000)


@pytest.mark.parametrize("answers", [_endless_chunks, _endless_chunk])
async def test_endless_message_is_refused(answers: Callable[[], Iterator[bytes]], tmp_path: Path) -> None:
    given = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal given
        with suppress(OSError, asyncio.IncompleteReadError):
            for number, piece in enumerate(answers()):
                if number < 3:  # a request each
                    (size,) = struct.unpack("<4xI", await reader.readexactly(8))
                    await reader.readexactly(size - 8)
                writer.write(piece)
                await writer.drain()
                given += len(piece)
                if given > 2 * MAX_MESSAGE_BYTES:
                    break
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", port := free_port()):
        reason = await connect_problem(source(f"opc.tcp://127.0.0.1:{port}", insecure=True), tmp_path / "pki")
    assert reason.startswith("the server sent more than 64 MiB in a message")
    assert given < 1.5 * MAX_MESSAGE_BYTES


async def test_cancelled_while_it_closes(tmp_path: Path) -> None:
    """Wherever the cancellation arrives: asyncua swallows one while it ends its own tasks."""
    async with serving(None, ua.SecurityPolicyType.NoSecurity) as address:
        for steps in range(100):
            client = await connect(source(address, insecure=True), tmp_path / "pki")
            closing = asyncio.create_task(close(client, 60.0))
            for _ in range(steps):
                await asyncio.sleep(0)
            if closing.done():
                break
            closing.cancel()
            await asyncio.wait([closing])
            assert closing.cancelled(), f"after {steps} steps it went on"
            client.disconnect_socket()
        assert steps > 3, "none arrived while it closed"
