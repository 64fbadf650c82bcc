"""HTTPS of plantlog's own servers, by foreign clients: whose certificate they see, when, and who keeps them out."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509

from core.addresses import machine_addresses
from core.config import processes, token_file
from core.config.https import TlsSettings
from core.config.load import load
from core.config.model import HealthOptions, Plant, ServerOptions, TlsOptions, ViewerOptions
from core.config.options import FOLDER, path_of
from core.config.settings import MaintenanceSettings
from core.errors import SourceError
from core.paths import CHECKOUT
from core.servers import http, own_certificate, server_tls
from core.servers.server_tls import ServerTls, ca_file, server_file
from dashboards.viewer.library import Library
from dashboards.viewer.reader import ReaderPool
from dashboards.viewer.server import serve
from ops.appliance.status import StatusMonitor
from ops.deployment import Running
from ops.maintenance.process import certificate_faults, run_maintenance
from tests.certificates import make, pem
from tests.command import run
from tests.ports import free_ports
from tests.states import claimed
from tests.users import add_users
from tests.waiting import PATIENCE, until

_SOMEWHERE = ServerOptions(host="0.0.0.0")


def plant(**tls: Any) -> Plant:
    """A plant whose viewer listens beyond loopback."""
    return Plant(name="p", sources=(), viewer=ViewerOptions(host="0.0.0.0"), tls=TlsOptions(**tls))


def own(state: Path) -> ServerTls:
    found = TlsSettings.of(plant()).server(_SOMEWHERE, state)
    assert found is not None
    return found


def yours(folder: Path, name: str, days: tuple[float, float] = (-1, 365)) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key, PEM."""
    certificate, key = make(folder / name, days, name=name)
    return pem(certificate), key


@asynccontextmanager
async def serving(tls: ServerTls | None) -> AsyncIterator[int]:
    """Answers GET with the scheme, and POST with the length of the body."""

    async def scheme(request: web.Request) -> web.Response:
        return web.Response(text=request.scheme)

    async def length(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    app = web.Application(client_max_size=10_000_000)
    app.add_routes([web.get("/", scheme), web.post("/", length)])
    async with http.serve(app, "0.0.0.0", free_ports(1), tls) as port:
        yield port


async def command(*words: str) -> tuple[int, str]:
    """Exit code and output."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace")


async def shown(port: int) -> str:
    """The common name of the certificate that a new connection gets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        found = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        return found.subject.rfc4514_string()
    finally:
        writer.close()


async def test_clients_that_trust_the_ca_verify_host_names_and_addresses(tmp_path: Path) -> None:
    tls = own(tmp_path)
    ca = str(ca_file(tmp_path / "pki"))
    async with serving(tls) as port:
        for host in ("localhost", "127.0.0.1", *sorted(a for a in machine_addresses() if ":" not in a)):
            assert await command("curl", "-sS", "--cacert", ca, f"https://{host}:{port}/") == (0, "https")
        big = "x" * 300_000
        (tmp_path / "body").write_text(big)
        body = ("--data-binary", f"@{tmp_path / 'body'}")
        assert await command("curl", "-sS", "--cacert", ca, *body, f"https://localhost:{port}/") == (0, "300000")
        to = ("openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-verify_return_error")
        status, output = await command(*to, "-CAfile", ca, "-verify_ip", "127.0.0.1", "-x509_strict")
        assert "Verify return code: 0 (ok)" in output, output
        assert status == 0
        for refused in (("-verify_hostname", "other.example.org", "-CAfile", ca), ("-tls1_1", "-CAfile", ca), ()):
            status, output = await command(*to, *refused)
            assert status != 0, output
        status, _ = await command("curl", "-sS", f"http://127.0.0.1:{port}/")
        assert status != 0


async def test_servers_on_loopback_and_those_that_are_told_speak_http(tmp_path: Path) -> None:
    for options in (ServerOptions(), ServerOptions(host="::1"), ServerOptions(host="0.0.0.0", plain_http=True)):
        assert TlsSettings.of(Plant(name="p", sources=())).server(options, tmp_path) is None
    assert not (tmp_path / "pki").exists()
    async with serving(None) as port:
        assert await command("curl", "-sS", f"http://127.0.0.1:{port}/") == (0, "http")


async def test_new_certificate_is_shown_while_open_connections_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http, "_CHECK_SECONDS", 0.02)
    first, second = yours(tmp_path, "first"), yours(tmp_path, "second")
    used = tmp_path / "server.crt", tmp_path / "server.key"
    for source, target in zip(first, used, strict=True):
        shutil.copyfile(source, target)
    tls = TlsSettings.of(plant(certificate_file=used[0], key_file=used[1])).server(_SOMEWHERE, tmp_path)
    trusting = ssl.create_default_context(cafile=str(first[0]))

    def put(source: Path, target: Path) -> None:
        """Replace a certificate like a program that renews certificates."""
        shutil.copyfile(source, target.with_suffix(".new"))
        target.with_suffix(".new").replace(target)

    async with serving(tls) as port, aiohttp.ClientSession(f"https://127.0.0.1:{port}") as session:
        # Before anything changes: this connection stays.
        async with session.get("/", ssl=trusting) as response:
            assert await response.text() == "https"
            opened = response.connection and response.connection.transport
        assert await shown(port) == "CN=first"
        put(second[0], used[0])
        await until(lambda: "is not the key of" in caplog.text)
        assert await shown(port) == "CN=first"
        put(second[1], used[1])

        async def is_second() -> bool:
            return await shown(port) == "CN=second"

        await until(is_second)
        put(second[1], used[0])  # no certificate at all
        await until(lambda: "the previous certificate stays in use" in caplog.text.rpartition("new certificate")[2])
        used[1].unlink()
        assert await is_second()
        async with session.get("/", ssl=trusting) as response:
            assert response.connection is None or response.connection.transport is opened
            assert await response.text() == "https"


async def test_own_certificate_is_renewed_by_the_same_ca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pki = tmp_path / "pki"
    monkeypatch.setattr(http, "_CHECK_SECONDS", 0.02)
    monkeypatch.setattr(server_tls, "_RENEW_SECONDS", 0.1)
    with monkeypatch.context() as short:
        short.setattr(own_certificate, "_DAYS", 50)
        own_certificate.ensure(pki, ["localhost"])
    ca, file = ca_file(pki), server_file(pki)
    before = file.read_bytes()
    assert file.stat().st_mode & 0o077 == 0
    assert (pki / "tls" / "ca.key").stat().st_mode & 0o077 == 0
    async with serving(own(tmp_path)) as port:
        assert file.read_bytes() == before
        monkeypatch.setattr(own_certificate, "_RENEW_DAYS", 60.0)
        await until(lambda: file.read_bytes() != before)
        new = x509.load_pem_x509_certificate(file.read_bytes())
        assert new.not_valid_after_utc - datetime.now(UTC) > timedelta(days=300)

        async def shows_the_new_one() -> bool:
            text = ssl.get_server_certificate
            found = await asyncio.to_thread(text, ("127.0.0.1", port))
            return x509.load_pem_x509_certificate(found.encode()) == new

        await until(shows_the_new_one)
        assert await command("curl", "-sS", "--cacert", str(ca), f"https://localhost:{port}/") == (0, "https")


def test_own_certificate_gets_names_that_it_lacks(tmp_path: Path) -> None:
    def names() -> set[str]:
        found = x509.load_pem_x509_certificate(server_file(tmp_path / "pki").read_bytes())
        return set(own_certificate.names_of(found))

    TlsSettings.of(plant()).ensure(tmp_path)
    assert {"localhost", "127.0.0.1", socket.gethostname().lower()} <= names()
    assert "0.0.0.0" not in names()
    before = server_file(tmp_path / "pki").read_bytes()
    TlsSettings.of(plant()).ensure(tmp_path, all_names=True)
    assert server_file(tmp_path / "pki").read_bytes() == before
    TlsSettings.of(plant(names=("Historian.example.org", "2001:DB8::5"))).ensure(tmp_path)
    assert {"historian.example.org", "2001:db8::5", "localhost"} <= names()
    ca = ca_file(tmp_path / "pki").read_bytes()
    (tmp_path / "pki" / "tls" / "ca.key").unlink()
    TlsSettings.of(plant()).ensure(tmp_path)  # nothing to do
    with pytest.raises(SourceError, match=r"ca\.key can't be read .*restore it, or remove"):
        TlsSettings.of(plant(names=("other",))).ensure(tmp_path)
    other = TlsSettings.of(plant(names=("other",)))
    assert other.server(_SOMEWHERE, tmp_path) is not None, "it starts with what there is"
    assert ca_file(tmp_path / "pki").read_bytes() == ca


def test_machines_with_one_secret_have_one_ca(tmp_path: Path) -> None:
    """A certificate of one is trusted by the others, and by nobody with another secret."""
    for name, secret in (("first", "s" * 32), ("second", "s" * 32), ("other", "t" * 32)):
        own_certificate.derive(tmp_path / name, secret)
    own_certificate.ensure(tmp_path / "first", ["localhost"], days=own_certificate.CA_DAYS)
    content = server_file(tmp_path / "first").read_bytes()
    certificate = x509.load_pem_x509_certificate(content)
    assert certificate.not_valid_after_utc - datetime.now(UTC) > timedelta(days=7000)

    def trusts(name: str) -> bool:
        file = ca_file(tmp_path / name)
        certificate_file = server_file(tmp_path / "first")
        run = subprocess.run(["openssl", "verify", "-CAfile", file, certificate_file], capture_output=True, check=False)
        return run.returncode == 0

    assert [trusts(name) for name in ("first", "second", "other")] == [True, True, False]
    before = ca_file(tmp_path / "first").read_bytes()
    own_certificate.derive(tmp_path / "first", "s" * 32)
    assert ca_file(tmp_path / "first").read_bytes() == before
    # Somebody mistyped the secret; or a file is damaged.
    own_certificate.derive(tmp_path / "other", "s" * 32)
    assert trusts("other")
    ca_file(tmp_path / "other").write_text("")
    own_certificate.derive(tmp_path / "other", "s" * 32)
    assert trusts("other")


async def test_unusable_certificate_does_not_keep_a_process_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_CHECK_SECONDS", 0.02)
    certificate, key = yours(tmp_path, "yours")
    content = key.read_bytes()
    key.write_bytes(b"")
    configured = plant(certificate_file=certificate, key_file=key)
    tls = TlsSettings.of(configured).server(_SOMEWHERE, tmp_path)
    assert f"{key} can't be used with" in caplog.text
    assert f"'{key}', which can't be used with" in (TlsSettings.of(configured).problem() or "")
    async with serving(tls) as port:
        assert await shown(port) == "CN=plantlog"
        key.write_bytes(content)

        async def is_yours() -> bool:
            return await shown(port) == "CN=yours"

        await until(is_yours)
    assert TlsSettings.of(configured).problem() is None


async def test_status_tells_of_a_certificate_that_ends_soon_or_was_destroyed(tmp_path: Path) -> None:
    certificate, key = yours(tmp_path, "yours", (-1, 20))
    dsns = dict.fromkeys(("maintenance", "owner", "reader"), "postgresql://nobody@127.0.0.1:1/none")
    state = claimed(tmp_path / "state", **dsns)
    configured = plant(certificate_file=certificate, key_file=key)
    configured = configured.model_copy(update={"health": HealthOptions(port=free_ports(8))})
    Running("p", configured.health, ("maintenance",)).save(state)
    stop = asyncio.Event()
    process = asyncio.create_task(run_maintenance(MaintenanceSettings.of(configured), state.root, stop))
    reported: list[str] = []

    async def is_reported(*texts: str) -> bool:
        assert not process.done()
        reported[:] = (await asyncio.to_thread(StatusMonitor(state).snapshot))["certificates"]
        return len(reported) == len(texts) and all(map(str.__contains__, reported, texts))

    await until(lambda: is_reported(f"the certificate {certificate} expires in 20 days"))
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{processes.port('maintenance', configured.health)}/metrics"
        async with session.get(url) as response:
            sample = f'plantlog_certificate_expiry_timestamp_seconds{{certificate="{certificate.name}"}}'
            assert sample in await response.text()
    certificate.write_text("junk\n")
    await until(lambda: is_reported(f"{certificate}', which is no certificate"))
    stop.set()
    await asyncio.wait_for(process, PATIENCE)


def test_certificate_of_the_cluster_that_ends_soon_is_told(tmp_path: Path) -> None:
    certificate, key = yours(tmp_path, "member", (-1, 20))
    files = {"ca_file": tmp_path / "none.crt", "certificate_file": certificate, "key_file": key}
    questions = {"cluster": "tls://scheduler:8786", **{name: str(file) for name, file in files.items()}}
    snapshot = path_of(tmp_path / FOLDER, 1)
    snapshot.parent.mkdir()
    snapshot.write_text("{}\n" + json.dumps({"plant": {"questions": questions}}))
    [told] = certificate_faults(TlsSettings.of(plant()), tmp_path)
    assert told.startswith(f"the certificate {certificate} expires in 20 days")


@pytest.mark.parametrize(
    ("certificate", "key", "fault"),
    [
        ("a.crt", "b.key", "tls.key_file: found '{0}/b.key', which is not the key of {0}/a.crt; legal: the key of "),
        ("a.crt", "locked.key", "tls.key_file: found '{0}/locked.key', which has a password; legal: the key of "),
        ("a.key", "b.key", "tls.certificate_file: found '{0}/a.key', which is no certificate; legal: a certificate"),
        ("a.der", "a.key", "tls.certificate_file: found '{0}/a.der', which is not PEM; legal: a certificate, PEM"),
        ("expired/cert.crt", "expired/key.pem", "tls.certificate_file: found one that is valid from "),
    ],
)
def test_check_refuses_what_does_not_keep_up_from_starting(
    certificate: str, key: str, fault: str, tmp_path: Path
) -> None:
    shutil.copytree(CHECKOUT / "tests" / "unit" / "golden" / "config" / "modbus-tls", folder := tmp_path / "p")
    yours(folder, "expired", (-30, -1))
    (folder / key).chmod(0o600)
    token_file.write(folder / "token", "token-of-edge-gateway")
    (folder / "plant.toml").write_text(
        '[plant]\nname = "p"\n[viewer]\nhost = "0.0.0.0"\n'
        f'[tls]\ncertificate_file = "{certificate}"\nkey_file = "{key}"\n'
        '[[source]]\nname = "edge"\nkind = "push"\ntoken_file = "token"\nunknown = "create"\n'
    )
    result = run(tmp_path / "state", "check", folder / "plant.toml")
    assert result.code == 1
    assert f"{folder}/plant.toml: {fault.format(folder)}" in result.err
    loaded = load(folder / "plant.toml")
    assert TlsSettings.of(loaded).server(loaded.viewer, tmp_path / "state") is not None


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01"], ids=["nothing", "a beginning"])
async def test_silent_handshake_is_given_up(said: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(http, "_MAX_SECONDS", dict.fromkeys(http._MAX_SECONDS, 0.3))
    async with serving(own(tmp_path)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        with pytest.raises(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
            raise ConnectionResetError
        writer.close()


async def test_wrong_client_is_logged_once_and_costs_nothing_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with serving(own(tmp_path)) as port:
        assert (await command("curl", "-sS", f"http://127.0.0.1:{port}/"))[0] != 0
        await until(lambda: "TLS with 127.0.0.1 failed: http request" in caplog.text)
        assert (await command("curl", "-sS", f"https://127.0.0.1:{port}/"))[0] == 60  # the CA is not known
        await until(lambda: "unknown ca" in caplog.text)


@pytest.mark.parametrize("mine", [False, True], ids=["plantlog's own", "yours"])
async def test_viewer_requires_https_of_browsers_with_a_certificate_of_yours(mine: bool, tmp_path: Path) -> None:
    files = yours(tmp_path, "yours")
    configured = plant(certificate_file=files[0], key_file=files[1]) if mine else plant()
    add_users(tmp_path, anna="engineer")
    options = ViewerOptions(host="0.0.0.0", port=free_ports(1))
    reader = ReaderPool(tmp_path)
    async with serve(
        options, tmp_path, reader, Library(), TlsSettings.of(configured).server(configured.viewer, tmp_path)
    ) as port:
        status, output = await command("curl", "-sSkI", "-X", "GET", f"https://127.0.0.1:{port}/login")
        assert status == 0
        assert "200 OK" in output
        assert ("Strict-Transport-Security: max-age=" in output) == mine
    await reader.close()
