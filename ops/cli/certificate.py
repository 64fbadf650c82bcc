"""``plantlog source certificate``: the OPC UA client certificate, and the trust list."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from core.paths import State

app = typer.Typer(
    help="Manage the OPC UA client certificate, and the servers and certificate authorities that are trusted.",
    no_args_is_help=True,
)


@app.command()
def show() -> None:
    """Show the client certificate. Creates it if there is none."""
    from ops import certificates

    typer.echo(certificates.show(_pki()))


@app.command()
def renew(
    days: Annotated[
        int | None,
        typer.Option(min=1, max=36525, help="Validity of the new certificate in days.", show_default="5 years"),
    ] = None,
) -> None:
    """Create a new key and certificate with the same application URI. Every server must trust the new certificate."""
    from ops import certificates

    typer.echo(certificates.renew(_pki(), days))
    typer.echo("The old certificate is in pki/replaced. Collectors use the new one from their next connection on.")


@app.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Output file. PEM if its name ends in .pem, else DER.")],
    with_key: Annotated[
        bool, typer.Option("--with-key", help="Write PEM including the private key. Keep the file secret.")
    ] = False,
) -> None:
    """Write the client certificate to a file, for a server to trust."""
    from ops import certificates

    typer.echo(certificates.export(_pki(), file, with_key))


@app.command("import")
def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Certificate, DER or PEM. A PEM file may also contain the key.")
    ],
    key: Annotated[Path | None, typer.Option(metavar="FILE", help="Private key, if it is not in FILE.")] = None,
) -> None:
    """Use a certificate issued by a certificate authority."""
    from ops import certificates

    typer.echo(certificates.use(_pki(), file, key))


@app.command()
def trust(
    what: Annotated[
        str, typer.Argument(metavar="NAME|FINGERPRINT", help="Source, or at least 8 digits of the SHA-256 fingerprint.")
    ],
) -> None:
    """Trust a rejected server certificate. Compare its fingerprint with that on the server first."""
    from ops import certificates

    typer.echo(f"trusted: {certificates.trust(_pki(), what)}\nThe collector uses it from its next connection on.")


@app.command()
def add(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Certificate of a CA or server, or CRL; DER or PEM. Not changed.")
    ],
    issuer: Annotated[
        bool, typer.Option("--issuer", help="Only to complete chains: do not trust what the CA has issued.")
    ] = False,
) -> None:
    """Trust all servers whose certificates a CA has issued, or add a CA's revocation list (CRL)."""
    from ops import certificates

    for line in certificates.add(_pki(), file, issuer):
        typer.echo(f"added: {line}")
    typer.echo("Collectors use it from their next connection on.")


@app.command("list")
def list_() -> None:
    """List the trust list: certificates of servers and CAs, and CRLs; and rejected certificates."""
    from ops import certificates

    for line in certificates.list_certificates(_pki()):
        typer.echo(line)


def _pki() -> Path:
    return State.current().pki
