"""Modbus/TCP Security (MB-TCP-Security-v36): Modbus TCP in TLS, in which both sides show a certificate.

Files are read for each connection, so that renewed ones are used from the next one on. The device checks the role in
the client's certificate (extension 1.3.6.1.4.1.50316.802.1): it answers exception 1 to a client that may not read.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from core import tls
from core.certificates.identity import identity, key_pem, paths
from core.config.addresses.modbus_address import ModbusAddress, ModbusTlsOptions
from core.errors import SourceError
from core.timeouts import within
from ingest.modbus.failures import BAD_SECURITY_CHECKS_FAILED, BAD_TIMEOUT, ConnectionLost
from ingest.modbus.frame import TcpFramer
from ingest.modbus.protocol import ModbusProtocol

_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python does not name
_NOT_YET_VALID, _EXPIRED, _WRONG_HOST = 9, 10, (62, 64)  # X509_V_ERR_… of OpenSSL
_UNTRUSTED = (2, 7, 18, 19, 20, 21)  # likewise: no chain to a trusted certificate, or only by name
# Parts of the names of OpenSSL's errors, and their meaning; MINE stands for our certificate. Alerts: RFC 8446, 6.2
_MEANINGS = (
    (
        ("ALERT_BAD_CERT", "ALERT_CERT", "ALERT_UNKNOWN_CA", "ALERT_ACCESS", "ALERT_UNSUPPORTED_CERT", "ALERT_DECRYPT"),
        "the device refuses the client certificate MINE: trust it there",
    ),
    (("ALERT_HANDSHAKE_FAILURE",), "the device accepts no offered cipher suite, or not the client certificate MINE"),
    (("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW"), "the device has no TLS version from 1.2 up"),
    (("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH", "RECORD_LAYER"), "the device answers, but not with TLS"),
    (("EOF",), "the device closed the connection: it expects no TLS here, or no client with the certificate MINE"),
)


class TlsProtocol(ModbusProtocol):
    """Protocol over TLS; the device may refuse the client's certificate after the handshake (RFC 8446, 4.4.2.4)."""

    def __init__(
        self, address: ModbusAddress, pki: Path, late: Callable[[int], bool], transactions: Iterator[int]
    ) -> None:
        """``pki``: the folder of plantlog's own certificate."""
        super().__init__(TcpFramer(), late, transactions)
        assert address.tls is not None
        self._address = address
        self._pki = pki
        self._tls = address.tls
        self._certificate = address.tls.client_certificate or paths(pki)[1]

    async def connect(self, time_out: float) -> datetime:
        """Connect, and make the handshake: ``time_out`` (s) for each. Return when the server's certificate ends.

        Raises ConnectionLost, OSError, ValueError.
        """
        try:
            context = await asyncio.to_thread(_context, self._tls, self._pki)
        except SourceError as error:
            raise ConnectionLost(str(error), BAD_SECURITY_CHECKS_FAILED) from error
        loop, host = asyncio.get_running_loop(), self._address.host
        # Clear text goes to a protocol of its own, which drops it.
        plain, _ = await within(time_out, loop.create_connection(asyncio.Protocol, host, self._address.port))
        try:
            secured = await within(time_out, loop.start_tls(plain, self, context, server_hostname=host))
        except TimeoutError as error:
            plain.abort()
            reason = f"TLS handshake: no response within {time_out:g} s; the device may expect no TLS here"
            raise ConnectionLost(reason, BAD_TIMEOUT) from error
        except OSError as error:
            plain.abort()
            raise ConnectionLost(f"TLS handshake: {self._reason(error)}", BAD_SECURITY_CHECKS_FAILED) from error
        assert secured is not None
        self.connection_made(secured)
        ends = ssl.cert_time_to_seconds(secured.get_extra_info("peercert")["notAfter"])
        return datetime.fromtimestamp(ends, UTC)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection ended; ``exc``: the reason, if known."""
        if isinstance(exc, ssl.SSLError):
            exc = ConnectionLost(self._reason(exc), BAD_SECURITY_CHECKS_FAILED)
        elif not self.answers:
            reason = f"the device closed the connection; it may not accept the client certificate {self._certificate}"
            exc = ConnectionLost(reason, BAD_SECURITY_CHECKS_FAILED)
        super().connection_lost(exc)

    def _reason(self, error: Exception | None) -> str:
        """Reason why there is no secure connection, for people."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return self._rejected(error)
        name, words = "EOF", ""
        if isinstance(error, ssl.SSLError):
            name, words = error.reason or "", f" ({tls.reason(error)})"
        meaning = next((text for parts, text in _MEANINGS if any(part in name for part in parts)), "failed")
        return meaning.replace("MINE", str(self._certificate)) + words

    def _rejected(self, error: ssl.SSLCertVerificationError) -> str:
        """Reason why the server's certificate was rejected, for people."""
        words = error.verify_message.rstrip(".")
        if error.verify_code in _UNTRUSTED:
            path = self._tls.server_certificate
            return f"the server's certificate is neither {path}, the server_certificate, nor issued by it ({words})"
        if error.verify_code == _EXPIRED:
            return f'the server\'s certificate is not valid: {words}. Renew it, or set accept = ["expired"]'
        if error.verify_code == _NOT_YET_VALID:
            return f"the server's certificate is not valid: {words}, if our clock is right"
        if error.verify_code in _WRONG_HOST:
            return f'the server\'s certificate is for another host: {words}. Replace it, or set accept = ["wrong-host"]'
        return f"the server's certificate is not valid: {words}"


def _context(options: ModbusTlsOptions, pki: Path) -> ssl.SSLContext:
    """TLS context of a client. Raises SourceError if a file can't be used."""
    context = tls.trusting(options.server_certificate)
    if "wrong-host" in options.accept:
        context.check_hostname = False
    if "expired" in options.accept:
        context.verify_flags |= _NO_CHECK_TIME
    if options.client_certificate is not None and options.client_key is not None:
        tls.present(context, options.client_certificate, options.client_key)
        return context
    own_identity = identity(pki)
    # OpenSSL reads files alone, and one certificate form; this one is in memory, so that no copy of the key stays.
    with open(os.memfd_create("certificate"), "wb") as file:  # noqa: PTH123
        file.write(own_identity.certificate.public_bytes(Encoding.PEM) + key_pem(own_identity.key))
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context
