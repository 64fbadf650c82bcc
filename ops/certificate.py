"""``plantlog certificate``: our own certificate for OPC UA servers, and theirs that we trust."""

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
from ingest.opcua import certificate as own
from ingest.opcua import trust as servers
from ops.paths import State

app = typer.Typer(
    help="Show, renew, export, import our OPC UA certificate; trust and list those of servers.",
    no_args_is_help=True,
    add_completion=False,
)
_LEAST_BITS = 2048


@app.command()
def show() -> None:
    """Show our own certificate; makes it where there is none yet."""
    _say(own.identity(_pki()))


@app.command()
def renew(
    days: Annotated[int, typer.Option(min=1, max=36525, help="How long the new one is valid.")] = own.DAYS,
) -> None:
    """Make a new key and certificate for the same application URI. Every server must trust the new one."""
    _say(own.renewed(_pki(), days))
    typer.echo("The old one is in pki/replaced. Collectors take the new one when they connect the next time.")


@app.command()
def export(
    file: Annotated[Path, typer.Argument(help="Where to; PEM where its name ends so, else DER.")],
    with_key: Annotated[
        bool, typer.Option("--with-key", help="PEM, with the private key: keep it to yourself.")
    ] = False,
) -> None:
    """Write our certificate to a file, for a server to trust."""
    ours = own.identity(_pki())
    pem = ours.certificate.public_bytes(Encoding.PEM)
    try:
        if with_key:
            own.write_private(file, pem + own.key_pem(ours.key))
        else:
            file.write_bytes(pem if file.suffix == ".pem" else ours.certificate.public_bytes(Encoding.DER))
    except OSError as error:
        raise OperationError(f"{file} can't be written: {error.strerror}") from error
    typer.echo(f"{file}: {ours}")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="The certificate, DER or PEM; PEM may hold the key, too.")],
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key, where FILE has it not.")] = None,
) -> None:
    """Use a certificate that somebody else made, such as a plant's authority or another installation."""
    try:
        content = file.read_bytes()
        ours = own.checked(content, content if key is None else key.read_bytes(), file)
    except OSError as error:
        raise OperationError(f"{error.filename}: {error.strerror}") from error
    wrong = "; ".join(_unfit(ours.certificate))
    if wrong:
        raise OperationError(f"{file} is no certificate for an OPC UA client (OPC 10000-6, 6.2.2): {wrong}")
    _say(own.store(_pki(), ours.certificate, ours.key))


@app.command()
def trust(
    what: Annotated[str, typer.Argument(metavar="NAME|FINGERPRINT", help="A source, or SHA-256 from 8 digits on.")],
) -> None:
    """Trust a server's certificate that was refused. Compare the fingerprint with the server's own first."""
    path, server = servers.trust(_pki(), what)
    typer.echo(f"trusted: {_line(path, server)}\nThe collector takes it up when it connects the next time.")


@app.command("list")
def list_() -> None:
    """List the certificates of servers: trusted, and rejected until somebody trusts them."""
    servers.folders(_pki())
    for name in ("trusted", "rejected"):
        found = list(servers.listed(_pki() / name))
        typer.echo(f"{name}:" if found else f"{name}: none")
        for path, server in found:
            typer.echo(f"  {_line(path, server)}")
        for path in sorted({*(_pki() / name).iterdir()} - {path for path, _ in found}):
            typer.echo(f"  {path.name}: not used, it is no certificate (DER or PEM) named {servers.SUFFIXES_LEGAL}")


def _pki() -> Path:
    return State.current().pki


def _say(ours: own.Identity) -> None:
    certificate = ours.certificate
    typer.echo(
        f"certificate      {ours.path}\n"
        f"application URI  {ours.uri}\n"
        f"subject          {certificate.subject.rfc4514_string()}\n"
        f"valid            {certificate.not_valid_before_utc:%Y-%m-%d} to {own.ends(certificate):%Y-%m-%d}\n"
        f"key              RSA, {ours.key.key_size} bits\n"
        f"SHA-256          {servers.fingerprint(certificate)}\n"
        f"thumbprint       {own.thumbprint(certificate)}"
    )


def _line(path: Path, server: x509.Certificate) -> str:
    uri = ", ".join(own.application_uris(server)) or "no application URI"
    return f"{path.name}: {uri}, ends {own.ends(server):%Y-%m-%d}, SHA-256 {servers.fingerprint(server)}"


def _unfit(certificate: x509.Certificate) -> Iterator[str]:
    key = certificate.public_key()
    if isinstance(key, RSAPublicKey) and key.key_size < _LEAST_BITS:
        yield f"its key has {key.key_size} bits, not {_LEAST_BITS} or more"
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if not {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & set(usage):
        yield "its extended key usage lacks clientAuth"
