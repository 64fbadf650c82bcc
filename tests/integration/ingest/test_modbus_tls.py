"""Modbus/TCP Security: pymodbus' server, libmodbus behind socat's TLS, and all that can be wrong with certificates."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from pymodbus.datastore import ModbusDeviceContext, ModbusSequentialDataBlock, ModbusServerContext
from pymodbus.server import ModbusTlsServer

from core.certificates.identity import identity
from ingest.modbus.failures import BAD_SECURITY_CHECKS_FAILED
from ingest.modbus.transport import Connections
from tests import certificates
from tests.integration.ingest.test_modbus_collector import collecting, gaps, lies_between_samples, tag, times, values
from tests.modbus_wire import CLOSE, good_response, misbehaving_device
from tests.peers import FIRST_REGISTER, Peer, peer
from tests.ports import free_port
from tests.tls_devices import Pki, tls_terminator
from tests.waiting import until

TAGS = [tag(f"c{i}", f"holding:{FIRST_REGISTER + 2 * i}", "float32") for i in range(3)]
TLS_1_3 = "openssl-min-proto-version=TLS1.3"
VERSIONS = ("openssl-max-proto-version=TLS1.2", TLS_1_3)


def address(port: int, host: str = "127.0.0.1") -> str:
    return f"tls://{host}:{port}"


def published(device: Peer, unit: int, channel: int) -> list[float]:
    name = f"unit{unit}/c{channel}"
    return [float(str(value)) for (of, _), (value, _) in sorted(device.published().items()) if of == name]


def names_refusal(reason: str, certificate: Path, version: str, why: str = "") -> bool:
    """With TLS 1.3, a device closes the connection after the handshake, which may overtake its word on it."""
    closed = f"the device closed the connection; it may not accept the client certificate {certificate}"
    told = f"the device refuses the client certificate {certificate}: trust it there ("
    return (told in reason and why in reason) or (version == TLS_1_3 and closed in reason)


@asynccontextmanager
async def refused(port: int, options: dict[str, Any], **more: Any) -> AsyncIterator[str]:
    """Why a source is away that nothing was read of."""
    options = {"address": address(port), **options, **more}
    async with collecting(port, TAGS, **options) as (spool, status):
        await until(lambda: status.state == "disconnected" and status.reason and gaps(spool, None))
        reason = status.reason
        assert not values(spool, 0) and len(gaps(spool, None)) == 1
        yield reason


@pytest.mark.parametrize("version", VERSIONS)
async def test_foreign_device_with_two_units_is_read_exactly(tmp_path: Path, version: str) -> None:
    """Both share a connection; a request for each channel."""
    pki, connections = Pki(tmp_path / "pki"), Connections()
    async with AsyncExitStack() as stack:
        device = await stack.enter_async_context(peer("libmodbus", tmp_path, 3, "units=2", "single=1"))
        port = await stack.enter_async_context(tls_terminator(pki, device.port, version))
        options = {"address": address(port), "connections": connections, "max_registers": 2, **pki.options}
        had = [await stack.enter_async_context(collecting(port, TAGS, **options, unit_id=unit)) for unit in (1, 2)]
        for spool, _ in had:
            await spool.until(lambda spool=spool: len(values(spool, 2)) >= 10)  # type: ignore[misc]
    for unit, (spool, status) in enumerate(had, 1):
        for i in range(3):
            truth = published(device, unit, i)
            assert values(spool, i) == [value for value in truth if value in set(values(spool, i))]
            assert len(truth) - len(values(spool, i)) <= 1, "each answer is stored, but the one at the end"
        assert not gaps(spool, None) and status.reconnects == 0 and status.decode_errors == 0


async def test_server_sees_the_role_in_the_client_certificate(tmp_path: Path) -> None:
    pki, port = Pki(tmp_path), free_port()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pki.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(*pki.server)
    registers = ModbusDeviceContext(hr=ModbusSequentialDataBlock(1, [7, 8, 9]))
    server = ModbusTlsServer(ModbusServerContext(registers), address=("127.0.0.1", port), sslctx=context)
    await server.serve_forever(background=True)
    try:
        tags = [tag(f"r{i}", f"holding:{i}") for i in range(3)]
        async with collecting(port, tags, address=address(port), **pki.options) as (spool, status):
            await spool.until(lambda: len(values(spool, 2)) >= 3)
            assert [set(values(spool, i)) for i in range(3)] == [{7.0}, {8.0}, {9.0}]
            assert status.state == "connected"
            (connection,) = server.active_connections.values()
            shown = connection.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            role = x509.load_der_x509_certificate(shown).extensions.get_extension_for_oid(certificates.ROLE).value
            assert isinstance(role, x509.UnrecognizedExtension) and role.value.endswith(b"reader")
    finally:
        await server.shutdown()


@pytest.mark.parametrize("version", VERSIONS)
async def test_own_certificate_is_shown_by_default(tmp_path: Path, version: str) -> None:
    """The server's is pinned: nobody else issued it."""
    pki = Pki(tmp_path / "pki")
    pki.server = certificates.make(tmp_path / "alone", name="alone")
    own = identity(tmp_path / "own").path
    pki.authority, pinned = certificates.pem(own), pki.server[0]
    pki.server = certificates.pem(pinned), pki.server[1]
    async with peer("libmodbus", tmp_path, 3) as device, tls_terminator(pki, device.port, version) as port:
        connections, options = Connections(tmp_path / "own"), {"server_certificate": pinned}
        async with collecting(0, TAGS, address=address(port), connections=connections, **options) as (spool, status):  # type: ignore[arg-type]
            await spool.until(lambda: len(values(spool, 2)) >= 3)
        assert status.reconnects == 0 and not gaps(spool, None)
        (ends,) = connections.certificates().values()
        assert ends == x509.load_der_x509_certificate(pinned.read_bytes()).not_valid_after_utc
        stranger = Connections(tmp_path / "stranger")
        async with refused(port, options, connections=stranger) as reason:
            assert names_refusal(reason, tmp_path / "stranger" / "own.der", version)


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({"days": (-9, -1)}, 'is not valid: certificate has expired. Renew it, or set accept = ["expired"]'),
        ({"days": (1, 9)}, "is not valid: certificate is not yet valid, if our clock is right"),
        ({"host": "192.0.2.9"}, "is for another host: IP address mismatch, certificate is not valid for '127.0.0.1'"),
        ({"extended": ExtendedKeyUsageOID.CLIENT_AUTH}, "is not valid: un"),  # unsupported or unsuitable purpose
    ],
    ids=["expired", "not-yet-valid", "wrong-host", "wrong-usage"],
)
async def test_server_certificate_that_is_not_valid_is_named(
    tmp_path: Path, server: dict[str, Any], message: str
) -> None:
    pki = Pki(tmp_path / "pki", **server)
    async with peer("libmodbus", tmp_path, 3) as device, tls_terminator(pki, device.port) as port:
        async with refused(port, pki.options) as reason:
            assert reason.startswith(f"TLS handshake: the server's certificate {message}")
        assert not published(device, 1, 0), "nothing was asked"


@pytest.mark.parametrize(
    ("server", "fault"), [({"days": (-9, -1)}, "expired"), ({"host": "another.example"}, "wrong-host")]
)
async def test_accepted_fault_of_the_server_certificate(tmp_path: Path, server: dict[str, Any], fault: str) -> None:
    """Another authority's certificate is none of them."""
    pki = Pki(tmp_path / "pki", **server)
    others = Pki(tmp_path / "other", "another").authority, Pki(tmp_path / "namesake").authority
    async with peer("libmodbus", tmp_path, 3) as device, tls_terminator(pki, device.port) as port:
        async with collecting(port, TAGS, address=address(port), accept=(fault,), **pki.options) as (spool, _):
            await spool.until(lambda: len(values(spool, 2)) >= 3)
        for other in others:
            async with refused(port, {**pki.options, "server_certificate": other, "accept": (fault,)}) as reason:
                assert f"certificate is neither {other}, the server_certificate, nor issued by it" in reason


@pytest.mark.parametrize("version", VERSIONS)
async def test_client_certificate_that_the_device_refuses_is_named(tmp_path: Path, version: str) -> None:
    pki, other, namesake = Pki(tmp_path / "pki"), Pki(tmp_path / "other", "another"), Pki(tmp_path / "namesake")
    late = pki.issue("late", extended=ExtendedKeyUsageOID.CLIENT_AUTH, days=(-9, -1))
    async with peer("libmodbus", tmp_path, 3) as device, tls_terminator(pki, device.port, version) as port:
        for certificate, key, why in (
            (*other.client, "unknown ca"),
            (*namesake.client, "decrypt error"),
            (*late, "certificate expired"),
        ):
            options = {**pki.options, "client_certificate_file": certificate, "client_key_file": key}
            async with refused(port, options) as reason:
                assert names_refusal(reason, certificate, version, why)
        assert not published(device, 1, 0)


async def test_device_with_old_tls_is_refused(tmp_path: Path) -> None:
    pki, old = Pki(tmp_path), ("openssl-max-proto-version=TLS1.1", "cipher=DEFAULT:@SECLEVEL=0")
    async with (
        misbehaving_device(lambda frame, number: [(0, good_response(frame, number))]) as device,
        tls_terminator(pki, device, *old) as port,
        refused(port, pki.options) as reason,
    ):
        assert reason.startswith("TLS handshake: the device has no TLS version from 1.2 up")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the device answers, but not with TLS (wrong version number)"),
        (CLOSE, "the device closed the connection: it expects no TLS here, or no client with the certificate"),
        (None, "no response within 0.5 s; the device may expect no TLS here"),
    ],
    ids=["other", "closes", "silent"],
)
async def test_device_without_tls_gets_no_request(tmp_path: Path, answer: bytes | None, message: str) -> None:
    pki, received = Pki(tmp_path), bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while part := await reader.read(1000):
            received.extend(part)
            if answer is not None:
                writer.write(answer)
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, refused(port, pki.options, time_out=0.5) as reason:
        assert reason.startswith(f"TLS handshake: {message}")
    assert received.startswith(b"\x16\x03"), "a handshake (RFC 8446, 5.1)"


async def test_refusal_is_the_status_of_the_channels(tmp_path: Path) -> None:
    pki = Pki(tmp_path, days=(-9, -1))
    async with (
        tls_terminator(pki, free_port()) as port,
        collecting(port, TAGS, address=address(port), **pki.options) as (spool, _),
    ):
        await spool.until(lambda: bool(spool.samples(2)))
        assert [status for _, _, status in spool.samples(0)] == [BAD_SECURITY_CHECKS_FAILED]


async def test_files_that_vanish_are_named(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    certificate, key = pki.client
    for path in (key, certificate, pki.authority):
        path.unlink()
        async with refused(free_port(), pki.options) as reason:
            assert reason.startswith(f"{path} can't be read (No such file or directory); legal: ")


async def test_cut_is_a_gap_and_renewed_certificates_are_used_behind_it(tmp_path: Path) -> None:
    """The device is read with certificates of one authority, and after the cut with those of another."""
    pki = Pki(tmp_path / "pki")
    options = pki.options
    async with peer("libmodbus", tmp_path, 3) as device, AsyncExitStack() as stack:
        async with tls_terminator(pki, device.port) as port:
            started = collecting(port, TAGS, address=address(port), **options)
            spool, status = await stack.enter_async_context(started)
            await spool.until(lambda: len(values(spool, 2)) >= 5)
        await spool.until(lambda: bool(gaps(spool, None)))
        again = Pki(tmp_path / "again")
        for old, new in (
            (pki.authority, again.authority),
            *zip(pki.client, again.client, strict=True),
        ):
            new.replace(old)
        again.authority = pki.authority
        seen = len(values(spool, 2))
        async with tls_terminator(again, device.port, port=port):
            await spool.until(lambda: len(values(spool, 2)) >= seen + 5)
            assert status.state == "connected"
        await stack.aclose()
    gap = gaps(spool, None)[0]
    assert lies_between_samples(gap, spool, 0) and status.reconnects >= 1
    for i in range(3):
        assert times(spool, i) == sorted(set(times(spool, i))), "none doubled"
        assert values(spool, i) == [v for v in published(device, 1, i) if v in set(values(spool, i))]
        assert len(values(spool, i)) == len(set(values(spool, i)))


async def test_answer_in_several_records_is_read(tmp_path: Path) -> None:
    """Also if one segment of TCP has all of them."""
    pki, port = Pki(tmp_path), free_port()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pki.server)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = 0
        while len(frame := await reader.read(12)) == 12:
            number += 1
            answer = good_response(frame, number)
            writer.transport.writelines([answer[i : i + 3] for i in range(0, len(answer), 3)])
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=context)
    async with server, collecting(port, TAGS, address=address(port), **pki.options, time_out=2.0) as (spool, status):
        await spool.until(lambda: len(times(spool, 2)) >= 5)
        assert status.reconnects == 0 and status.decode_errors == 0 and not gaps(spool, None)


@pytest.mark.parametrize("standby", ["idle", "poll"])
async def test_members_of_a_pair(tmp_path: Path, standby: str) -> None:
    """Each has a process of its own: here, connections of its own."""
    pki, polls = Pki(tmp_path / "pki"), 1
    async with peer("libmodbus", tmp_path, 3) as device, tls_terminator(pki, device.port) as port:
        options = {"address": address(port), "standby": standby, **pki.options}
        async with (
            collecting(port, TAGS, **options, stands_by=lambda: standby == "idle" and polls != 1) as (one, first),
            collecting(port, TAGS, **options, stands_by=lambda: standby == "idle" and polls != 2) as (two, second),
        ):
            await one.until(lambda: len(values(one, 0)) >= 3)
            if standby == "poll":
                await two.until(lambda: len(values(two, 0)) >= 3)
                return
            assert second.state == "standby" and not values(two, 0)
            polls = 2
            await two.until(lambda: len(values(two, 0)) >= 3)
            await until(lambda: first.state == "standby")
