"""Users of an OPC UA server: passwords and certificates."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from asyncua import ua
from asyncua.crypto import security_policies
from asyncua.server.internal_server import InternalServer
from asyncua.server.internal_session import InternalSession
from asyncua.server.user_managers import CertificateUserManager

from core.config.sources import OpcuaSource
from ops.certificates import trust
from tests import certificates
from tests.integration.ingest.test_opcua_session import SECURE, Users, connect_problem, serving, source
from tests.peers import peer


async def test_password_is_never_sent_in_clear(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("drowssap\n")
    users = Users()
    who = {"insecure": True, "username": "logger", "password_file": tmp_path / "password"}
    async with serving(None, ua.SecurityPolicyType.NoSecurity, users) as address:
        assert "accepts the password only in clear text" in await connect_problem(
            source(address, **who), tmp_path / "pki"
        )
        assert not users.logins
        assert await connect_problem(source(address, **who, password_in_clear=True), tmp_path / "pki") == ""
        assert users.logins == [("logger", "drowssap")]


ECC = "http://opcfoundation.org/UA/SecurityPolicy#ECC_nistP256"
RSA = security_policies.SecurityPolicyBasic256Sha256.URI
CLEAR = security_policies.SecurityPolicyNone.URI


@pytest.mark.parametrize(
    ("policies", "without", "reason"),
    [
        ((RSA,), True, ""),
        ((ECC, CLEAR, RSA), True, ""),
        ((ECC, CLEAR), True, "the server encrypts the password only by ECC_nistP256, which plantlog does not support"),
        ((ECC, RSA), False, ""),
        ((ECC, CLEAR), False, ""),
        ((ECC,), False, "the server encrypts the password only by ECC_nistP256, which plantlog does not support"),
    ],
)
async def test_the_policy_of_the_user_token_counts(
    policies: tuple[str, ...], without: bool, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encrypted where a policy that we know does it, even if clear text is allowed; ``without``: a secure channel."""
    (tmp_path / "password").write_text("drowssap\n")
    get_endpoints, activate = InternalServer.get_endpoints, InternalSession.activate_session
    tokens: list[Any] = []

    async def with_policies(server: InternalServer, *others: Any, **named: Any) -> list[Any]:
        endpoints: list[Any] = await get_endpoints(server, *others, **named)
        for endpoint in endpoints:
            endpoint.EndpointUrl = None  # some servers leave it out
            endpoint.UserIdentityTokens = [
                ua.UserTokenPolicy(PolicyId="username", TokenType=ua.UserTokenType.UserName, SecurityPolicyUri=policy)
                for policy in policies
            ]
        return endpoints

    def activated(session: InternalSession, parameters: Any, *others: Any) -> Any:
        tokens.append(parameters.UserIdentityToken)
        return activate(session, parameters, *others)

    monkeypatch.setattr(InternalServer, "get_endpoints", with_policies)
    monkeypatch.setattr(InternalSession, "activate_session", activated)
    certificate, users = certificates.make(tmp_path / "server"), Users()
    how = {"insecure": True, "password_in_clear": True} if without else {"server_certificate": certificate[0]}
    async with serving(certificate, SECURE, users) as address:
        who = {"username": "logger", "password_file": tmp_path / "password", **how}
        assert (await connect_problem(source(address, **who), tmp_path / "pki")).startswith(reason)
    assert users.logins == ([] if reason else [("logger", "drowssap")])
    assert [bool(token.EncryptionAlgorithm) for token in tokens] == ([] if reason else [RSA in policies])


async def test_password_needs_the_certificate_to_encrypt_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("drowssap\n")
    get_endpoints = InternalServer.get_endpoints

    async def encrypting(server: InternalServer, *others: Any, **named: Any) -> list[Any]:
        endpoints: list[Any] = await get_endpoints(server, *others, **named)
        for endpoint in endpoints:
            for policy in endpoint.UserIdentityTokens:
                policy.SecurityPolicyUri = RSA
        return endpoints

    monkeypatch.setattr(InternalServer, "get_endpoints", encrypting)
    who = {"insecure": True, "username": "logger", "password_file": tmp_path / "password"}
    async with serving(None, ua.SecurityPolicyType.NoSecurity, Users()) as address:
        reason = await connect_problem(source(address, **who), tmp_path / "pki")
    assert reason == "the server's certificate can't be read: found nothing, expected X.509 v3 in DER"


async def test_a_password_over_a_secure_channel(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("drowssap\n")
    users = Users()
    certificate = certificates.make(tmp_path / "server")
    who = {"username": "logger", "password_file": tmp_path / "password", "server_certificate": certificate[0]}
    async with serving(certificate, SECURE, users) as address:
        assert await connect_problem(source(address, **who), tmp_path / "pki") == ""
        assert users.logins == [("logger", "drowssap")]


async def test_user_certificate(tmp_path: Path) -> None:
    certificate = certificates.make(tmp_path / "server")
    known, unknown = (certificates.make(tmp_path / name, uri="urn:a:person") for name in ("known", "unknown"))
    users = CertificateUserManager()
    await users.add_user(known[0], "logger")
    async with serving(certificate, SECURE, users) as address:

        def user(pair: tuple[Path, Path]) -> OpcuaSource:
            files = {"user_certificate_file": pair[0], "user_key_file": pair[1]}
            return source(address, server_certificate=certificate[0], **files)

        assert await connect_problem(user(known), tmp_path / "pki") == ""
        reason = await connect_problem(user(unknown), tmp_path / "pki")
        assert re.fullmatch(rf"the server rejects the user certificate {unknown[0]} \(Bad\w+\): trust it there", reason)
        reason = await connect_problem(user((known[0], unknown[1])), tmp_path / "pki")
        assert reason == f"the key does not match the certificate {known[0]}"
        assert "user anonymous" in await connect_problem(
            source(address, server_certificate=certificate[0]), tmp_path / "pki"
        )


@pytest.mark.slow
async def test_user_certificate_on_a_foreign_server(tmp_path: Path) -> None:
    user, other = (certificates.make(tmp_path / name, uri="urn:a:person") for name in ("user", "other"))
    trusted = tmp_path / "peer" / "users" / "trusted" / "certs"
    trusted.mkdir(parents=True)
    shutil.copy(user[0], trusted)  # before its start: some changes of a running server's folder it never notices
    async with peer("node-opcua", tmp_path / "peer", 1, "200") as server:
        who = {"user_certificate_file": user[0], "user_key_file": user[1]}
        mine = source(f"opc.tcp://127.0.0.1:{server.port}", accept=["wrong-host"], **who)
        assert "is not trusted" in await connect_problem(mine, tmp_path / "pki")
        trust(tmp_path / "pki", "plc")
        assert await connect_problem(mine, tmp_path / "pki") == ""
        others = mine.model_copy(update={"user_certificate_file": other[0], "user_key_file": other[1]})
        assert "the server rejects the user certificate" in await connect_problem(others, tmp_path / "pki")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["milo"])
async def test_server_without_user_certificates_is_reported(name: str, tmp_path: Path) -> None:
    user = certificates.make(tmp_path / "user", uri="urn:a:person")
    async with peer(name, tmp_path / "peer", 1, "200") as server:
        who = {"user_certificate_file": user[0], "user_key_file": user[1], "accept": ["wrong-host"]}
        mine = source(f"opc.tcp://127.0.0.1:{server.port}", **who)
        assert "is not trusted" in await connect_problem(mine, tmp_path / "pki")
        trust(tmp_path / "pki", "plc")
        assert (await connect_problem(mine, tmp_path / "pki")).startswith("the server accepts no user certificates")


async def test_refused_user_is_reported(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("wrong\n")
    who = {"username": "logger", "password_file": tmp_path / "password", "password_in_clear": True}
    async with serving(None, ua.SecurityPolicyType.NoSecurity, Users()) as address:
        reason = await connect_problem(source(address, insecure=True, **who), tmp_path / "pki")
        assert re.fullmatch(r"the server rejects user logger \(Bad\w+\): check username and password_file", reason)
        reason = await connect_problem(source(address, insecure=True), tmp_path / "pki")
        assert re.fullmatch(r"the server rejects user anonymous \(Bad\w+\): .* set username and .*", reason)
        reason = await connect_problem(source(address), tmp_path / "pki")
        assert reason.endswith("no endpoint with Basic256Sha256 SignAndEncrypt; it offers no security")
