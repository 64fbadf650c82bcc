"""``plantlog source certificate``, and certificates that end soon."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from typer.testing import CliRunner

from core.certificates import trust
from core.certificates.expiry import Certificate, certificate_files, measure_certificates
from core.certificates.identity import identity
from core.config.sources import OpcuaSource
from core.errors import OperationError, SourceError
from core.paths import State
from ingest.run.process import watch_certificates
from ops.cli.certificate import app
from tests import certificates
from tests.memory_appender import MemoryAppender


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    monkeypatch.setenv("PLANTLOG_STATE", str(tmp_path / "state"))
    state = State.current()
    state.claim()
    return state


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_an_installation_keeps_its_uri(state: State, tmp_path: Path) -> None:
    shown = run("show")
    first = identity(state.pki)
    assert first.uri in shown
    assert run("show") == shown
    assert state.pki.joinpath("own.pem").stat().st_mode & 0o777 == 0o600
    run("renew", "--days", "400")
    second = identity(state.pki)
    assert second.uri == first.uri
    assert second.certificate != first.certificate
    (replaced,) = (state.pki / "replaced").iterdir()
    assert (replaced / "own.der").exists()
    run("export", str(tmp_path / "whole.pem"), "--with-key")
    assert (tmp_path / "whole.pem").stat().st_mode & 0o777 == 0o600
    run("export", str(tmp_path / "ours.der"))
    assert x509.load_der_x509_certificate((tmp_path / "ours.der").read_bytes()) == second.certificate
    for name in ("own.der", "own.pem"):
        (state.pki / name).unlink()
    run("import", str(tmp_path / "whole.pem"))
    assert identity(state.pki).certificate == second.certificate


def test_foreign_certificate_file_is_refused(state: State, tmp_path: Path) -> None:
    client = {"extended": ExtendedKeyUsageOID.CLIENT_AUTH}
    server = certificates.make(tmp_path / "server")
    with pytest.raises(OperationError, match="lacks clientAuth"):
        run("import", str(server[0]), "--key", str(server[1]))
    small = certificates.make(tmp_path / "small", bits=1024, extended=client["extended"])
    with pytest.raises(OperationError, match="1024 bits"):
        run("import", str(small[0]), "--key", str(small[1]))
    right = certificates.make(tmp_path / "right", extended=client["extended"])
    with pytest.raises(SourceError, match="does not match the certificate"):
        run("import", str(right[0]), "--key", str(server[1]))
    assert not (state.pki / "own.der").exists()
    run("import", str(right[0]), "--key", str(right[1]))
    assert identity(state.pki).uri == certificates.SERVER_URI


def test_trust_by_name_and_by_fingerprint(state: State, tmp_path: Path) -> None:
    servers: list[x509.Certificate] = []
    for name in ("plc", "plc", "other"):
        content = certificates.make(tmp_path / str(len(servers)))[0].read_bytes()
        servers.append(x509.load_der_x509_certificate(content))
        trust.reject(state.pki, name, servers[-1])
    assert all(trust.fingerprint(server) in run("list") for server in servers)
    (state.trusted / "plc.der").write_bytes(b"half a certif")
    assert "plc.der: ignored, not a certificate" in run("list")
    with pytest.raises(
        OperationError, match="2 rejected certificates match plc; give at least 8 digits of a fingerprint"
    ):
        run("trust", "plc")
    run("trust", "other")
    print_ = trust.fingerprint(servers[0]).upper()
    run("trust", ":".join(print_[i : i + 2] for i in range(0, 12, 2)))
    assert [server in trust.read_list(state.pki).trusted for server in servers] == [True, False, True]
    with pytest.raises(OperationError, match="no rejected certificate matches 12"):
        run("trust", "12")


def test_changing_server_certificates_do_not_fill_the_disk(state: State, tmp_path: Path) -> None:
    for i in range(12):
        server = certificates.make(tmp_path / str(i), bits=1024)[0].read_bytes()
        trust.reject(state.pki, "plc", x509.load_der_x509_certificate(server))
    assert len(list((state.pki / "rejected").iterdir())) == 10


def test_days_to_expiry_are_counted() -> None:
    for hours, days in ((25, "1 day"), (47, "2 days"), (1, "0 days")):
        ends = datetime.now(UTC) + timedelta(hours=hours)
        assert str(Certificate("x.der", ends)) == f"the certificate x.der expires in {days} ({ends:%Y-%m-%d %H:%M}Z)"


async def test_certificate_close_to_expiry_is_an_event(state: State, tmp_path: Path) -> None:
    run("renew", "--days", "29")
    for name, days in (("soon.der", 12), ("later.der", 40)):
        (state.trusted / name).write_bytes(certificates.make(tmp_path / name, days=(-1, days))[0].read_bytes())
    spool = MemoryAppender()
    authority = certificates.Authority("ca", days=(-9, 20))
    (state.pki / "issuers" / "certs" / "ca.pem").write_bytes(authority.pem)
    (state.pki / "issuers" / "crl" / "now.crl").write_bytes(authority.crl())
    (state.pki / "issuers" / "crl" / "old.crl").write_bytes(authority.crl(days=(-9, -2)))
    user, key = certificates.make(tmp_path / "user", days=(-1, 5))
    source = OpcuaSource(
        name="plc", kind="opcua", address="opc.tcp://h:4840", tags=(), user_certificate_file=user, user_key_file=key
    )
    shown = {"192.0.2.20:802": datetime.now(UTC) + timedelta(days=7, hours=1)}

    async def measure() -> list[Certificate]:
        return measure_certificates(certificate_files(state.pki, (source,)), shown)

    watching = asyncio.create_task(watch_certificates(measure, {7}, spool))
    await spool.until(lambda: len(spool.events("certificate_expiry")) == 6)
    watching.cancel()
    device, ours, server, issuer, users, crl = spool.events("certificate_expiry")
    assert device.text is not None and "the certificate 192.0.2.20:802 expires in 7 days" in device.text
    assert ours.text is not None and "own.der expires in 29 days" in ours.text and "certificate renew" in ours.text
    assert server.text is not None and "soon.der expires in 12 days" in server.text
    assert issuer.text is not None and "ca.pem expires in 20 days" in issuer.text
    assert crl.text is not None and "the CRL" in crl.text and "old.crl has expired" in crl.text
    assert users.text is not None and f"{user} expires in 5 days" in users.text
