"""``plantlog certificate``: the OPC UA client certificate, and the trust list of server certificates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from ingest.errors import OperationError
from ingest.opcua import certificate as client_certificate
from ingest.opcua import trust as trust_list
from ops.paths import State

app = typer.Typer(
    help="Manage the OPC UA client certificate and trusted server certificates.",
    no_args_is_help=True,
    add_completion=False,
)
_MIN_KEY_BITS = 2048


@app.command()
def show() -> None:
    """Show the client certificate. Creates it if there is none."""
    _print_identity(client_certificate.identity(_pki()))


@app.command()
def renew(
    days: Annotated[
        int, typer.Option(min=1, max=36525, help="Validity of the new certificate in days.")
    ] = client_certificate.DAYS,
) -> None:
    """Create a new key and certificate with the same application URI. Every server must trust the new certificate."""
    _print_identity(client_certificate.renew(_pki(), days))
    typer.echo("The old certificate is in pki/replaced. Collectors use the new one from their next connection on.")


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Output file. PEM if its name ends in .pem, else DER.")],
    with_key: Annotated[
        bool, typer.Option("--with-key", help="Write PEM including the private key. Keep the file secret.")
    ] = False,
) -> None:
    """Write the client certificate to a file, for a server to trust."""
    identity = client_certificate.identity(_pki())
    pem = identity.certificate.public_bytes(Encoding.PEM)
    try:
        if with_key:
            client_certificate.write_private(file, pem + client_certificate.key_pem(identity.key))
        else:
            file.write_bytes(pem if file.suffix == ".pem" else identity.certificate.public_bytes(Encoding.DER))
    except OSError as error:
        raise OperationError(f"cannot write {file}: {error.strerror}") from error
    typer.echo(f"{file}: {identity}")


@app.command("import")
def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Certificate, DER or PEM. A PEM file may also contain the key.")
    ],
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Private key, if it is not in FILE.")] = None,
) -> None:
    """Use a certificate issued by a certificate authority."""
    try:
        content = file.read_bytes()
        identity = client_certificate.load_identity(content, content if key is None else key.read_bytes(), file)
    except OSError as error:
        raise OperationError(f"{error.filename}: {error.strerror}") from error
    problems = "; ".join(_problems(identity.certificate))
    if problems:
        raise OperationError(f"{file} is not a valid OPC UA client certificate (OPC 10000-6, 6.2.2): {problems}")
    _print_identity(client_certificate.store(_pki(), identity.certificate, identity.key))


@app.command()
def trust(
    what: Annotated[
        str, typer.Argument(metavar="NAME|FINGERPRINT", help="Source, or at least 8 digits of the SHA-256 fingerprint.")
    ],
) -> None:
    """Trust a rejected server certificate. Compare its fingerprint with that on the server first."""
    path, server = trust_list.trust(_pki(), what)
    typer.echo(f"trusted: {_summary(path, server)}\nThe collector uses it from its next connection on.")


@app.command("list")
def list_() -> None:
    """List trusted and rejected server certificates."""
    trust_list.make_folders(_pki())
    for name in ("trusted", "rejected"):
        found = list(trust_list.certificates_in(_pki() / name))
        typer.echo(f"{name}:" if found else f"{name}: none")
        for path, server in found:
            typer.echo(f"  {_summary(path, server)}")
        for path in sorted({*(_pki() / name).iterdir()} - {path for path, _ in found}):
            typer.echo(f"  {path.name}: ignored, not a certificate (DER or PEM) named {trust_list.SUFFIXES_LEGAL}")


def _pki() -> Path:
    return State.current().pki


def _print_identity(identity: client_certificate.Identity) -> None:
    certificate, expires = identity.certificate, client_certificate.expires_at(identity.certificate)
    typer.echo(
        f"certificate      {identity.path}\n"
        f"application URI  {identity.uri}\n"
        f"subject          {certificate.subject.rfc4514_string()}\n"
        f"valid            {certificate.not_valid_before_utc:%Y-%m-%d} to {expires:%Y-%m-%d}\n"
        f"key              RSA, {identity.key.key_size} bits\n"
        f"SHA-256          {trust_list.fingerprint(certificate)}\n"
        f"thumbprint       {client_certificate.thumbprint(certificate)}"
    )


def _summary(path: Path, server: x509.Certificate) -> str:
    uri = ", ".join(client_certificate.application_uris(server)) or "no application URI"
    return ", ".join(
        (
            f"{path.name}: {uri}",
            f"expires {client_certificate.expires_at(server):%Y-%m-%d}",
            f"SHA-256 {trust_list.fingerprint(server)}",
        )
    )


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
