"""Servers whose certificates a CA has issued: which are trusted, and what is said of the others."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from typer.testing import CliRunner

from core.certificates import validate
from core.config.sources import OpcuaSource
from core.errors import OperationError, SourceError
from core.files import make_trust_folders
from ops import certificates as commands
from ops.cli.certificate import app
from tests import certificates
from tests.certificates import SERVER_URI, Authority

LEVELS = [(depth, level) for depth in (1, 2, 3) for level in range(depth)]
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"days": (-400, -2)}, "CA CN=X: valid until "),
    "not-yet-valid": ({"days": (2, 400)}, "CA CN=X: valid from "),
    "key-size": ({"bits": 1024}, "CA CN=X: 1024 bits"),
    "wrong-issuer": ({"ca": False}, "CN=X, which is none by its basic constraints"),
    "wrong-issuer ": ({"ca": None}, "CN=X, which is none by its basic constraints"),
    "wrong-issuer  ": ({"cert_sign": False}, "CN=X without key_cert_sign"),
    "wrong-issuer   ": ({"uri": "urn:a:server"}, "CN=X, which has an application URI"),
    "critical-extension": (
        {"critical": x509.NameConstraints([x509.DNSName("plc.example")], None)},
        "CN=X with nameConstraints",
    ),
    "revocation-unknown": ({"crl_sign": False}, "a CA whose key usage lacks crl_sign"),
}


def authorities(depth: int, wrong: int = -1, **how: Any) -> list[Authority]:
    """A chain of ``depth`` CAs, the root first; ``how``: what is wrong with number ``wrong``."""
    chain: list[Authority] = []
    for i in range(depth):
        name = "X" if i == wrong else f"ca{i}"
        chain.append(Authority(name, chain[-1] if chain else None, **(how if i == wrong else {})))
    return chain


class Plant:
    """A trust list, and a server."""

    def __init__(self, folder: Path, chain: Sequence[Authority], **server: Any) -> None:
        self.pki = folder / "pki"
        self.chain = chain
        make_trust_folders(self.pki)
        by = chain[-1] if chain else None
        self.file, _ = certificates.make(folder / "server", by=by, **server)
        self.server = x509.load_der_x509_certificate(self.file.read_bytes())

    def trusts(self, *chain: Authority) -> None:
        for issuer in chain:
            (self.pki / "trusted" / "certs" / f"{issuer.name}.pem").write_bytes(issuer.pem)

    def knows(self, *chain: Authority) -> None:
        for issuer in chain:
            (self.pki / "issuers" / "certs" / f"{issuer.name}.pem").write_bytes(issuer.pem)

    def has_crls(self, *chain: Authority, **how: Any) -> None:
        for issuer in chain:
            (self.pki / "trusted" / "crl" / f"{issuer.name}.crl").write_bytes(issuer.crl(**how))

    def problem(self, sent: Sequence[Authority] = (), **options: Any) -> str:
        """Why the server is refused; empty: it is not."""
        values = {"name": "plc", "kind": "opcua", "address": "opc.tcp://127.0.0.1:4840", "tags": (), **options}
        try:
            all_sent = [self.server, *(issuer.certificate for issuer in sent)]
            validate.check(all_sent, SERVER_URI, OpcuaSource.model_validate(values), self.pki)
        except SourceError as error:
            return str(error)
        return ""

    def openssl(self) -> bool:
        """Return whether OpenSSL finds the chain valid, up to the root, with a list of each CA."""
        files = sorted((self.pki / "trusted" / "crl").iterdir())
        lists = [Authority("unrelated").crl(), *(path.read_bytes() for path in files)]
        crls = map(x509.load_der_x509_crl, lists)
        pem = {
            "root": self.chain[0].pem,
            "between": b"".join(issuer.pem for issuer in self.chain),
            "crl": b"".join(crl.public_bytes(Encoding.PEM) for crl in crls),
            "server": self.server.public_bytes(Encoding.PEM),
        }
        for name, content in pem.items():
            (self.pki / f"{name}.pem").write_bytes(content)
        trusted = ("-CAfile", "root.pem", "-untrusted", "between.pem", "-CRLfile", "crl.pem", "-crl_check_all")
        command = ["openssl", "verify", *trusted, "-auth_level", "2", "server.pem"]
        return subprocess.run(command, cwd=self.pki, check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_any_ca_of_a_complete_chain_is_enough(depth: int, tmp_path: Path) -> None:
    chain = authorities(depth)
    for level, one in enumerate(chain):
        others = [other for other in chain if other is not one]
        plant = Plant(tmp_path / str(level), chain)
        plant.has_crls(*chain)
        assert "is not trusted" in plant.problem(chain), "what a server sends along is no trust"
        plant.knows(*others)
        assert "is not trusted" in plant.problem(chain), "issuers complete chains only"
        plant.trusts(one)
        assert plant.problem() == ""
        for issuer in (plant.pki / "issuers" / "certs").iterdir():
            issuer.unlink()
        assert plant.problem(others) == "", "the server may send the others"
        if len(chain) > 1 and one is not chain[0]:
            missing = plant.problem([other for other in others if other is not chain[0]])
            assert "is not trusted" in missing
            assert "`plantlog source certificate add FILE --issuer` with the certificate of the CA CN=ca0" in missing


@pytest.mark.parametrize(("depth", "level"), LEVELS)
@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_each_ca(fault: str, depth: int, level: int, tmp_path: Path) -> None:
    """By its name, with what was found; some can be tolerated by that name, others never."""
    how, message = FAULTS[fault]
    check = fault.strip()
    chain = authorities(depth, level, **how)
    plant = Plant(tmp_path, chain)
    plant.trusts(chain[0])
    plant.knows(*chain[1:])
    plant.has_crls(*chain)
    reason = plant.problem()
    assert "is trusted, but not valid" in reason
    assert f"{check}: found {message}" in reason
    if check in {"wrong-issuer", "critical-extension"}:
        assert "accept = [" not in reason
    else:
        assert f'or set accept = ["{check}"]' in reason
        assert plant.problem(accept=[check]) == ""
    if fault not in {"wrong-issuer ", "wrong-issuer   ", "critical-extension"}:  # where OpenSSL is less strict
        assert not plant.openssl()


@pytest.mark.parametrize(("depth", "level"), LEVELS)
def test_each_ca_needs_a_revocation_list(depth: int, level: int, tmp_path: Path) -> None:
    chain = authorities(depth)
    plant = Plant(tmp_path, chain)
    plant.trusts(*chain)
    one = chain[level]
    file = plant.pki / "trusted" / "crl" / f"ca{level}.crl"
    plant.has_crls(*chain)
    assert plant.problem() == ""
    assert plant.openssl()

    file.unlink()
    reason = plant.problem()
    assert (
        f"revocation-unknown: found no CRL, expected one of CN=ca{level}, which `plantlog source certificate add"
        in reason
    )
    assert reason.endswith('Add the CRL, or set accept = ["revocation-unknown"]')
    assert plant.problem(accept=["revocation-unknown"]) == ""
    assert not plant.openssl()

    for content, problem in (
        (b"half a list", "not a CRL (DER or PEM)"),
        (one.crl(critical=x509.DeltaCRLIndicator(1)), "a CRL with deltaCRLIndicator, expected a complete one"),
    ):
        file.write_bytes(content)
        assert f"found no CRL; {file}: {problem}" in plant.problem()
    file.write_bytes(one.crl(signer=Authority("another")))
    assert "revocation-unknown" in plant.problem(), "somebody else has signed it"
    file.write_bytes(one.crl(days=(1, 30)))
    assert "revocation-unknown" in plant.problem(), "it is not in force yet"

    file.write_bytes(one.crl(days=(-30, -2)))
    ended = datetime.now(UTC) - timedelta(days=2)
    reason = plant.problem()
    assert f"expired-crl: found {file} valid until {ended:%Y-%m-%d} " in reason
    assert f"expected a newer CRL of CN=ca{level}, which `plantlog source certificate add FILE` adds" in reason
    assert plant.problem(accept=["expired-crl"]) == ""
    assert not plant.openssl()

    below = plant.server if level == depth - 1 else chain[level + 1].certificate
    other = Authority("other", one).certificate
    for days in ((-1.0, 30.0), (-30.0, -2.0)):
        file.write_bytes(one.crl([other, below], days=days))
        every = ["bad-signature", "expired", "expired-crl", "key-size", "not-yet-valid", "revocation-unknown"]
        reason = plant.problem(accept=[*every, "weak-hash", "wrong-host", "wrong-uri", "wrong-usage"])
        assert f"revoked: found {below.subject.rfc4514_string()} revoked on " in reason
        assert str(file) in reason
        assert "accept" not in reason
        assert not plant.openssl()
    file.write_bytes(one.crl([other]))
    assert plant.problem() == "", "a renewed file is read at the next connection"


def test_path_length(tmp_path: Path) -> None:
    for number, (length, valid) in enumerate(((0, False), (1, False), (2, True))):
        root = Authority("root", path_length=length)
        regional = Authority("regional", root)
        chain = [root, regional, Authority("issuing", regional)]
        plant = Plant(tmp_path / str(number), chain)
        plant.trusts(*chain)
        plant.has_crls(*chain)
        expected = "" if valid else f"2 CAs below CN=root, expected at most {length} (path length)"
        reason = plant.problem()
        if not valid:
            assert expected in reason
        else:
            # two CAs are below the root, of which one issued the server's certificate
            assert reason == ""
        assert plant.openssl() == valid


def test_a_pinned_certificate_needs_no_ca_but_can_be_revoked(tmp_path: Path) -> None:
    (root,) = chain = authorities(1)
    plant = Plant(tmp_path, chain)
    pinned = plant.pki / "trusted" / "certs" / "plc.der"
    pinned.write_bytes(plant.file.read_bytes())
    assert plant.problem() == ""
    assert plant.problem(chain) == "", "a CA that only the server names is none of ours"
    assert plant.problem(server_certificate=plant.file) == ""
    plant.knows(root)
    assert "revocation-unknown" in plant.problem()
    plant.has_crls(root)
    assert plant.problem() == ""
    plant.has_crls(root, revoked=[plant.server])
    assert "revoked: " in plant.problem()
    pinned.unlink()
    assert "revoked: " in plant.problem(server_certificate=plant.file)


def test_server_certificate_is_exactly_that_one(tmp_path: Path) -> None:
    chain = authorities(1)
    plant = Plant(tmp_path, chain)
    plant.trusts(*chain)
    plant.has_crls(*chain)
    other, _ = certificates.make(tmp_path / "other")
    assert "the configured server_certificate" in plant.problem(server_certificate=other)


def test_a_ca_of_the_same_name_is_another_one(tmp_path: Path) -> None:
    plant = Plant(tmp_path, [Authority("ca", key_of="forger")])
    plant.trusts(Authority("ca"))
    plant.has_crls(Authority("ca"))
    reason = plant.problem([Authority("ca", key_of="forger")], accept=["bad-signature"])
    assert "is not trusted" in reason
    reason = plant.problem()
    assert "bad-signature: found an invalid signature, expected one by CN=ca" in reason
    assert "is not trusted" in plant.problem(accept=["bad-signature"])


def test_a_renewed_ca_certificate(tmp_path: Path) -> None:
    """The chain without faults counts."""
    old = Authority("ca", days=(-400, -2))
    plant = Plant(tmp_path, [old])
    plant.trusts(old)
    plant.has_crls(old)
    assert "expired: found CA CN=ca: valid until" in plant.problem()
    (plant.pki / "trusted" / "certs" / "new.pem").write_bytes(dataclasses.replace(old, days=(-3, 400)).pem)
    assert plant.problem() == ""


def test_endless_chains_are_no_load(tmp_path: Path) -> None:
    """CAs that have all issued each other's certificates."""
    circle = [Authority(f"c{i}", Authority(f"c{j}")) for i in range(4) for j in range(4) if i != j]
    plant = Plant(tmp_path, [circle[0]])
    assert "is not trusted" in plant.problem(circle * 20)


def test_what_a_trusted_server_has_issued_is_not_trusted(tmp_path: Path) -> None:
    device = Authority("device", uri="urn:a:device")
    plant = Plant(tmp_path, [device])
    plant.trusts(device)
    plant.has_crls(device)
    assert "wrong-issuer: found CN=device, which has an application URI" in plant.problem()


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTLOG_STATE", str(tmp_path))

    def run(*arguments: str | Path) -> str:
        result = CliRunner().invoke(app, list(map(str, arguments)))
        if isinstance(result.exception, OperationError):
            return str(result.exception)
        assert result.exit_code == 0, result.output
        return result.output

    root, issuing = chain = authorities(2)
    plant = Plant(tmp_path, chain)
    reason = plant.problem([issuing])
    assert "with the certificate of the CA CN=ca0, which issued CN=ca1" in reason
    crl = tmp_path / "issuing.crl"
    crl.write_bytes(issuing.crl(days=(-2, 30)))
    assert "is a CRL of CN=ca1, and no certificate of this CA in the trust list" in run("add", crl)
    both = tmp_path / "both.pem"
    both.write_bytes(root.pem + issuing.pem)
    assert run("add", both, "--issuer").count("added: ") == 2
    assert "or `plantlog source certificate add FILE` with the certificate of its CA CN=ca1" in plant.problem()
    both.write_bytes(issuing.pem)
    assert "CA CN=ca1" in run("add", both)
    assert "revocation-unknown" in plant.problem()
    assert "added: " in run("add", crl)
    root_crl = tmp_path / "root.crl"
    root_crl.write_bytes(x509.load_der_x509_crl(root.crl()).public_bytes(Encoding.PEM))
    assert "CRL of CN=ca0, 0 revoked" in run("add", root_crl)
    assert plant.problem() == ""
    assert [len(list((plant.pki / folder / "crl").iterdir())) for folder in ("trusted", "issuers")] == [1, 1]

    crl.write_bytes(issuing.crl([plant.server], days=(-1, 30)))
    assert "1 revoked" in run("add", crl), "it replaces the former one"
    assert "revoked: " in plant.problem()
    crl.write_bytes(issuing.crl(days=(-2, 30)))
    assert "older than" in run("add", crl)
    crl.write_bytes(issuing.crl(days=(-9, -2)))
    assert f"{crl} has expired on " in run("add", crl)
    crl.write_bytes(b"nothing")
    assert "is neither a certificate nor a CRL" in run("add", crl)
    assert "found no such file; legal: a certificate" in run("add", tmp_path / "missing")
    assert "is not a CA's" in run("add", plant.file, "--issuer")
    assert "urn:plantlog:tests:server" in run("add", plant.file)

    (plant.pki / "issuers" / "crl" / "old.crl").write_bytes(root.crl(days=(-9, -2)))
    listed = list(commands.list_certificates(plant.pki))
    assert any("CA CN=ca1" in line for line in listed[listed.index("trusted:") : listed.index("issuers:")])
    assert any("CRL of CN=ca1, 1 revoked" in line for line in listed)
    assert any(line.startswith("  old.crl: CRL of CN=ca0") and line.endswith("EXPIRED") for line in listed)
