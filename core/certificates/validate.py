"""Validation of server certificates (OPC 10000-4, 6.1.3), by named checks.

A certificate is trusted if it is in the trust list itself, or if its chain is complete and has a CA of the trust list.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID

from core.certificates import trust
from core.certificates.chain import (
    Chain,
    ChainFault,
    authority_faults,
    chains,
    is_root,
    issued,
    key_faults,
    named,
    validity_faults,
)
from core.certificates.identity import application_uris
from core.certificates.trust import TrustList, revocation_faults
from core.config.sources import OpcuaSource, SecurityPolicy
from core.errors import SourceError

_WEAK = ("md5", "sha1")
_MAX_SENT = 10  # certificates that a server may send along
_MAX_CHAINS = 100


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a validation. ``trusted``: by the trust list; ``faults``: those that are not tolerated."""

    trusted: bool
    chain: Chain
    faults: tuple[ChainFault, ...]


def chain(content: bytes | None) -> list[x509.Certificate]:
    """The certificates of an EndpointDescription, the server's first. Raises SourceError if they are invalid."""
    certificates, rest = [], content or b""
    try:
        while rest:
            size = _der_size(rest)
            certificates.append(x509.load_der_x509_certificate(rest[:size]))
            rest = rest[size:]
        for certificate in certificates:
            tuple(certificate.extensions)  # parsed on access
        key = certificates[0].public_key()
    except (ValueError, IndexError) as error:
        reason = str(error) if content else "nothing"
        raise SourceError(
            f"the server's certificate can't be read: found {reason}, expected X.509 v3 in DER"
        ) from error
    if not isinstance(key, RSAPublicKey):
        raise SourceError(f"the server's certificate has the wrong key: found {type(key).__name__}, expected RSA")
    return certificates


def check(certificates: list[x509.Certificate], uri: str | None, source: OpcuaSource, pki: Path) -> None:
    """Check the certificates of a server. Raises SourceError, which says what to do. One that is not trusted is saved.

    ``uri``: the application URI that the server's endpoint names.
    """
    server = certificates[0]
    trust_list = trust.read_list(pki)
    verdict = judge(certificates, uri, source, trust_list, datetime.now(UTC))
    who = f"the server's certificate (SHA-256 {trust.fingerprint(server)})"
    faults = "; ".join(map(str, verdict.faults))
    if not verdict.trusted:
        kept = trust.reject(pki, source.name, server)
        also = f". It also fails validation: {faults}" if faults else ""
        if source.server_certificate is not None:
            raise SourceError(
                f"{who} is not trusted: it is not {source.server_certificate}, the configured server_certificate. "
                f"It was saved as {kept}{also}"
            )
        authority = _untrusted_authority(verdict.chain, trust_list)
        raise SourceError(
            f"{who} is not trusted. To trust it, run `plantlog source certificate trust {source.name}`{authority}{also}"
        )
    if verdict.faults:
        names = ", ".join(f'"{name}"' for name in sorted({fault.check for fault in verdict.faults}))
        tolerable = all(fault.tolerable for fault in verdict.faults)
        accept = f", or set accept = [{names}]" if tolerable else ""
        crl = all(fault.check in {"revocation-unknown", "expired-crl"} for fault in verdict.faults)
        advice = "Add the CRL" if crl else "Replace the server's certificate"
        raise SourceError(f"{who} is trusted, but not valid: {faults}. {advice}{accept}")


def judge(
    certificates: list[x509.Certificate], uri: str | None, source: OpcuaSource, trust_list: TrustList, now: datetime
) -> Verdict:
    """Judge the certificates of a server, its own first, by the chain that has the fewest faults."""
    server, sent = certificates[0], certificates[1 : _MAX_SENT + 1]
    stored = (*trust_list.trusted, *trust_list.issuers)
    if source.server_certificate is not None:
        pinned = server in (certificate for _, certificate in trust.certificates_in(source.server_certificate))
    else:
        pinned = server in trust_list.trusted
    # A certificate that is trusted itself needs no CA. Those in the trust list are checked all the same.
    pool = stored if pinned else (*stored, *sent)

    def judged(chain: Chain) -> Verdict:
        trusted = pinned or (
            source.server_certificate is None
            and is_root(chain[-1])
            and any(authority in trust_list.trusted for authority in chain[1:])
        )
        return Verdict(trusted, chain, tuple(_chain_faults(chain, source, trust_list, now)) if trusted else ())

    best = min(
        map(judged, islice(chains(server, pool), _MAX_CHAINS)),
        key=lambda verdict: (not verdict.trusted, len(verdict.faults), -len(verdict.chain)),
    )
    own_faults = _own_faults(server, (*stored, *sent), uri, source, now)
    return Verdict(best.trusted, best.chain, (*(f for f in own_faults if f.check not in source.accept), *best.faults))


def _chain_faults(chain: Chain, source: OpcuaSource, trust_list: TrustList, now: datetime) -> Iterator[ChainFault]:
    """Failed checks of the CAs, and revocations, except those accepted for the source."""
    for fault in (
        *authority_faults(chain, source.security, now),
        *(fault for pair in pairwise(chain) for fault in revocation_faults(*pair, trust_list.crls, now)),
    ):
        if fault.check not in source.accept:
            yield fault


def _own_faults(
    server: x509.Certificate, others: Chain, uri: str | None, source: OpcuaSource, now: datetime
) -> Iterator[ChainFault]:
    """Failed checks of the server's certificate alone."""
    yield from _signature(server, others)
    yield from key_faults(server, source.security)
    yield from _hash(server, source.security)
    yield from validity_faults(server, now)
    yield from _host(server, urlsplit(source.address).hostname or "")
    yield from _application(server, uri)
    yield from _usage(server)


def _untrusted_authority(chain: Chain, trust_list: TrustList) -> str:
    """Advice how to complete the chain to a trusted CA; empty if the certificate has no CA."""
    last = chain[-1]
    if len(chain) == 1 and last.issuer == last.subject:
        return ""
    if not is_root(last):
        has_trusted = any(authority in trust_list.trusted for authority in chain)
        option = " --issuer" if has_trusted else ""
        return (
            f", or complete its chain: run `plantlog source certificate add FILE{option}` with the certificate of the "
            f"CA {last.issuer.rfc4514_string()}, which issued {named(last)}"
        )
    return f", or `plantlog source certificate add FILE` with the certificate of its CA {named(chain[1])}"


def _signature(server: x509.Certificate, others: Chain) -> Iterator[ChainFault]:
    """Check that the issuer, if known, signed the certificate. Otherwise, the certificate itself has to be trusted."""
    issuers = [other for other in (server, *others) if other.subject == server.issuer]
    if issuers and not any(issued(server, issuer) for issuer in issuers):
        who = "itself" if issuers[0] is server else named(issuers[0])
        yield ChainFault("bad-signature", "an invalid signature", f"one by {who}")


def _hash(server: x509.Certificate, policy: SecurityPolicy) -> Iterator[ChainFault]:
    algorithm = server.signature_hash_algorithm
    if algorithm is None or algorithm.name in _WEAK:
        yield ChainFault("weak-hash", "none" if algorithm is None else algorithm.name.upper(), f"SHA-256 for {policy}")


def _host(server: x509.Certificate, host: str) -> Iterator[ChainFault]:
    names = [*_names(server, x509.DNSName), *(str(address) for address in _names(server, x509.IPAddress))]
    if _plain(host) not in {_plain(str(name)) for name in names}:
        yield ChainFault("wrong-host", ", ".join(map(str, names)) or "no host", f"{host}, as in the source's address")


def _application(server: x509.Certificate, uri: str | None) -> Iterator[ChainFault]:
    uris = application_uris(server)
    if uri not in uris:
        expected = f"{uri}, which the server's endpoint names" if uri else "the same as at the server's endpoint"
        yield ChainFault("wrong-uri", ", ".join(uris) or "no application URI", expected)


def _usage(server: x509.Certificate) -> Iterator[ChainFault]:
    """Check the usage (OPC 10000-6, 6.2.2). Without key usage, all is allowed (RFC 5280, 4.2.1.3)."""
    with suppress(x509.ExtensionNotFound):
        usage = server.extensions.get_extension_for_class(x509.KeyUsage).value
        usages = {name: getattr(usage, name) for name in ("digital_signature", "key_encipherment", "data_encipherment")}
        if not all(usages.values()):
            has = ", ".join(name for name, allowed in usages.items() if allowed) or "none of them"
            yield ChainFault("wrong-usage", f"key usage {has}", ", ".join(usages))
    with suppress(x509.ExtensionNotFound):
        extended = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        if not {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE} & set(extended):
            has = ", ".join(oid._name for oid in extended)
            yield ChainFault("wrong-usage", f"extended key usage {has}", "serverAuth")


def _names(server: x509.Certificate, kind: type[x509.DNSName] | type[x509.IPAddress]) -> list[object]:
    try:
        names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return list(names.get_values_for_type(kind))


def _plain(host: str) -> str:
    """A normalised name or address."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.rstrip(".").lower()


def _der_size(content: bytes) -> int:
    """Length of the DER value at the start of ``content`` (X.690, 8.1.3). Raises ValueError, IndexError."""
    length, start = content[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(content[2:start])
    if content[0] != 0x30 or start + length > len(content):
        raise ValueError("not a DER certificate")
    return start + length
