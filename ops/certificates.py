"""Certificates of ``plantlog source certificate``: the OPC UA client certificate, the trust list, our servers' one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from core.certificates import identity as client_certificate
from core.certificates import trust as trust_list
from core.certificates.chain import is_authority, named
from core.config.https import TlsSettings
from core.config.model import Plant
from core.errors import OperationError
from core.files import CERTIFICATE_SUFFIXES, file_errors, make_trust_folders, write_atomically
from core.servers import own_certificate
from core.servers.server_tls import ca_file

_MIN_KEY_BITS = 2048
_MIN_DIGITS = 8  # of a fingerprint, hexadecimal, that identify a certificate


def show(pki: Path) -> str:
    """The client certificate, which is created if there is none."""
    return _describe(client_certificate.identity(pki))


def renew(pki: Path, days: int | None) -> str:
    """A new key and certificate; None: valid as long as the first one."""
    return _describe(client_certificate.renew(pki, client_certificate.DAYS if days is None else days))


def export(pki: Path, file: Path, with_key: bool) -> str:
    """Write the client certificate to ``file``: PEM if its name ends in .pem or the key is included, else DER."""
    identity = client_certificate.identity(pki)
    pem = identity.certificate.public_bytes(Encoding.PEM)
    try:
        if with_key:
            client_certificate.write_private(file, pem + client_certificate.key_pem(identity.key))
        else:
            der = identity.certificate.public_bytes(Encoding.DER)
            write_atomically(file, pem if file.suffix == ".pem" else der)
    except OSError as error:
        raise OperationError(f"cannot write {file}: {error.strerror}") from error
    return f"{file}: {identity}"


def use(pki: Path, file: Path, key: Path | None) -> str:
    """Use a certificate that was issued elsewhere; its key is in ``key``, or in ``file``."""
    with file_errors(file, "a certificate, DER or PEM"):
        content = file.read_bytes()
    private = content
    if key is not None:
        with file_errors(key, "an RSA key, PEM or DER, without a password"):
            private = key.read_bytes()
    identity = client_certificate.load_identity(content, private, file)
    problems = "; ".join(_problems(identity.certificate))
    if problems:
        raise OperationError(f"{file} is not a valid OPC UA client certificate (OPC 10000-6, 6.2.2): {problems}")
    return _describe(client_certificate.store(pki, identity.certificate, identity.key))


def trust(pki: Path, name_or_digits: str) -> str:
    """Accept a rejected certificate: of the source ``name_or_digits``, or with a fingerprint that starts with it.

    Raises OperationError if none or several match.
    """
    make_trust_folders(pki)
    digits = name_or_digits.replace(":", "").lower()
    rejected = list(trust_list.certificates_in(pki / "rejected"))
    matches = [
        (path, certificate)
        for path, certificate in rejected
        if name_or_digits in (path.name, path.name.rsplit(".", 2)[0])
    ]
    if not matches and len(digits) >= _MIN_DIGITS:
        matches = [
            (path, certificate)
            for path, certificate in rejected
            if trust_list.fingerprint(certificate).startswith(digits)
        ]
    if len(matches) != 1:
        meant = matches or rejected
        these = (
            "; ".join(f"{path.name}: {trust_list.fingerprint(certificate)}" for path, certificate in meant) or "none"
        )
        problem = (
            f"{len(matches)} rejected certificates match {name_or_digits}"
            if matches
            else f"no rejected certificate matches {name_or_digits}"
        )
        raise OperationError(f"{problem}; give at least {_MIN_DIGITS} digits of a fingerprint (SHA-256): {these}")
    ((path, certificate),) = matches
    return _summary(path.rename(pki / "trusted" / "certs" / path.name), certificate)


def add(pki: Path, file: Path, issuer: bool) -> Iterator[str]:
    """Add the certificates in ``file``, or its CRL, to the trust list. ``issuer``: they only complete chains."""
    with file_errors(file, "a certificate or a CRL, DER or PEM"):
        content = file.read_bytes()
    load = x509.load_pem_x509_certificates if b"-----BEGIN" in content else _load_der
    try:
        certificates = load(content)
        is_ca = [is_authority(certificate) for certificate in certificates]
    except ValueError as error:
        crl = trust_list.read_crl(file)
        if crl.content is None:
            raise OperationError(
                f"{file} is neither a certificate nor a CRL, DER or PEM: {error}; {crl.problem}"
            ) from error
        path = _add_crl(pki, crl, crl.content, now := datetime.now(UTC))
        yield f"{path}: {_crl_line(crl, now)}"
        return
    if issuer and not all(is_ca):
        raise OperationError(f"{file} has a certificate that is not a CA's: an issuer is one")
    make_trust_folders(pki)
    for certificate in certificates:
        name = f"{file.stem}.{trust_list.fingerprint(certificate)[:16]}.der"
        path = pki / ("issuers" if issuer else "trusted") / "certs" / name
        write_atomically(path, certificate.public_bytes(Encoding.DER))
        yield _summary(path, certificate)


def _add_crl(pki: Path, crl: trust_list.Crl, content: x509.CertificateRevocationList, now: datetime) -> Path:
    """Add it, in the place of an earlier one of the same CA. Raises OperationError if it is of no use."""
    make_trust_folders(pki)
    if crl.expires is not None and crl.expires < now:
        raise OperationError(f"{crl.path} has expired on {crl.expires:%Y-%m-%d %H:%M}Z: get a newer CRL from the CA")
    trusted_list = trust_list.read_list(pki)
    issuer = next((ca for ca in (*trusted_list.trusted, *trusted_list.issuers) if crl.is_of(ca)), None)
    if issuer is None:
        ca = content.issuer.rfc4514_string()
        raise OperationError(
            f"{crl.path} is a CRL of {ca}, and no certificate of this CA in the trust list has signed it: "
            "add the CA's certificate first"
        )
    old = trust_list.newest(trusted_list.crls, issuer, now)
    if old is not None and old.content is not None and old.content.last_update_utc > content.last_update_utc:
        raise OperationError(
            f"{crl.path} is of {content.last_update_utc:%Y-%m-%d %H:%M}Z, and older than {old.path}, "
            f"which is of {old.content.last_update_utc:%Y-%m-%d %H:%M}Z"
        )
    folder = "trusted" if issuer in trusted_list.trusted else "issuers"
    path = pki / folder / "crl" / f"{trust_list.fingerprint(issuer)[:16]}.crl"
    write_atomically(path, content.public_bytes(Encoding.DER))
    return path


def list_certificates(pki: Path) -> Iterator[str]:
    """The certificates of servers and CAs, and the CRLs, a line each."""
    make_trust_folders(pki)
    suffixes = ", ".join(f"*{suffix}" for suffix in CERTIFICATE_SUFFIXES)
    for name, folder in (("trusted", "trusted/certs"), ("issuers", "issuers/certs"), ("rejected", "rejected")):
        certificates = list(trust_list.certificates_in(pki / folder))
        yield f"{name}:" if certificates else f"{name}: none"
        for path, certificate in certificates:
            yield f"  {_summary(path, certificate)}"
        for path in sorted({*(pki / folder).iterdir()} - {path for path, _ in certificates}):
            yield f"  {path.name}: ignored, not a certificate (DER or PEM) named {suffixes}"
    crls = list(trust_list.crls_in(pki))
    yield "CRLs:" if crls else "CRLs: none"
    for crl in crls:
        yield f"  {crl.path.name}: {_crl_line(crl, datetime.now(UTC))}"


def _crl_line(crl: trust_list.Crl, now: datetime) -> str:
    """Line that describes a revocation list."""
    if crl.content is None:
        return crl.problem
    until = "no end" if crl.expires is None else f"{crl.expires:%Y-%m-%d %H:%M}Z"
    expired = ", EXPIRED" if crl.expires is not None and now > crl.expires else ""
    revoked = len(crl.content)
    return (
        f"CRL of {crl.content.issuer.rfc4514_string()}, {revoked} revoked, "
        f"{crl.content.last_update_utc:%Y-%m-%d %H:%M}Z to {until}{expired}"
    )


def server_certificate(plant: Plant, state: Path) -> str:
    """The certificate that plantlog's servers show, and whom clients have to trust."""
    file = TlsSettings.of(plant).certificate_file(state)
    if file is None:
        raise OperationError("all servers listen on loopback, or have plain_http = true: they have no certificate")
    TlsSettings.of(plant).ensure(state)
    lines = _server("certificate", file)
    is_ours = plant.tls.certificate_file is None
    return "\n".join([*lines, *(_server("CA, to be trusted", ca_file(state / "pki")) if is_ours else ())])


def authority_pem(plant: Plant, state: Path) -> str:
    """The certificate of plantlog's own CA, for clients to trust."""
    if plant.tls.certificate_file is not None or TlsSettings.of(plant).certificate_file(state) is None:
        raise OperationError("the servers show no certificate of plantlog's own CA")
    TlsSettings.of(plant).ensure(state)
    return ca_file(state / "pki").read_text()


def cluster_member(pki: Path, folder: Path) -> str:
    """Write a new certificate with its key, and the CA that members of a cluster trust, to a folder."""
    member, authority = folder / "member.pem", pki / "cluster"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        member.unlink(missing_ok=True)
        own_certificate.ensure(authority, (), own_certificate.machine_names(), member, of_client=True)
        write_atomically(folder / "ca.crt", ca_file(authority).read_bytes())
    except OSError as error:
        raise OperationError(f"cannot write {folder}: {error.strerror}") from error
    return "\n".join([*_server("member", member), *_server("CA of the cluster", folder / "ca.crt")])


def fault(plant: Plant) -> str | None:
    """Fault of the certificate in [tls]; None: there is none."""
    file = plant.tls.certificate_file
    if (problem := TlsSettings.of(plant).problem()) is not None or file is None:
        return problem
    certificate = client_certificate.read(file.read_bytes(), file)
    begins, ends, now = certificate.not_valid_before_utc, client_certificate.expires_at(certificate), datetime.now(UTC)
    if begins <= now < ends:
        return None
    return f"tls.certificate_file: found one that is valid from {_dates(certificate)}; legal: one that is valid now"


def _server(title: str, file: Path) -> list[str]:
    with file_errors(file):
        certificate = client_certificate.read(file.read_bytes(), file)
    names = ", ".join(own_certificate.names_of(certificate))
    return [
        f"{title + ':':<19}{file}",
        f"  subject          {certificate.subject.rfc4514_string()}",
        *([f"  names            {names}"] if names else ()),
        f"  valid            {_dates(certificate)}",
        f"  SHA-256          {trust_list.fingerprint(certificate)}",
    ]


def _dates(certificate: x509.Certificate) -> str:
    return f"{certificate.not_valid_before_utc:%Y-%m-%d} to {client_certificate.expires_at(certificate):%Y-%m-%d}"


def _describe(identity: client_certificate.Identity) -> str:
    certificate = identity.certificate
    return (
        f"certificate      {identity.path}\n"
        f"application URI  {identity.uri}\n"
        f"subject          {certificate.subject.rfc4514_string()}\n"
        f"valid            {_dates(certificate)}\n"
        f"key              RSA, {identity.key.key_size} bits\n"
        f"SHA-256          {trust_list.fingerprint(certificate)}\n"
        f"thumbprint       {client_certificate.thumbprint(certificate)}"
    )


def _summary(path: Path, server: x509.Certificate) -> str:
    uri = ", ".join(client_certificate.application_uris(server)) or "no application URI"
    subject = f"CA {named(server)}" if is_authority(server) else uri
    return ", ".join(
        (
            f"{path.name}: {subject}",
            f"expires {client_certificate.expires_at(server):%Y-%m-%d}",
            f"SHA-256 {trust_list.fingerprint(server)}",
        )
    )


def _load_der(content: bytes) -> list[x509.Certificate]:
    return [x509.load_der_x509_certificate(content)]


def _problems(certificate: x509.Certificate) -> Iterator[str]:
    key = certificate.public_key()
    if isinstance(key, RSAPublicKey) and key.key_size < _MIN_KEY_BITS:
        yield f"its key has {key.key_size} bits, at least {_MIN_KEY_BITS} are required"
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if not {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & set(usage):
        yield "its extended key usage lacks clientAuth"
