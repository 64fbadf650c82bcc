"""Addresses of Modbus devices: ``tcp://HOST:PORT``, also ``tls`` and ``rtu+tcp``, and ``serial:///DEVICE?…``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

Scheme: TypeAlias = Literal["tcp", "tls", "rtu+tcp", "serial"]

PATTERN = r"^(t(cp|ls)://[^/\s?]+:[0-9]+|rtu\+tcp://[^/\s?]+:[0-9]+(\?\S*)?|serial://(/[^\s/?]+)+(\?\S*)?)$"
LEGAL = (
    "an address as in tcp://host:502, tls://host:802, rtu+tcp://host:4001 or "
    "serial:///dev/ttyUSB0?baud=19200&parity=E&stop=1"
)

_BAUDS = tuple(map(str, (1200, 2400, 4800, 9600, 19200, 38400, 57600, 115200, 230400, 460800, 921600)))
# Parameter → legal values. RTU has 8 data bits (MODBUS over Serial Line V1.02, 2.5.1).
_SETTINGS: Mapping[str, Sequence[str]] = {"baud": _BAUDS, "parity": ("E", "O", "N"), "stop": ("1", "2"), "data": ("8",)}
_PARAMETERS: Mapping[str, Sequence[str]] = {
    "tcp": (),
    "tls": (),
    "rtu+tcp": ("baud",),
    "serial": tuple(_SETTINGS),
}
_BITS_PER_CHARACTER = 11  # start, 8 data, parity or a second stop bit, stop (2.5.1)


class AddressError(ValueError):
    """An address that is not legal. ``found`` and ``legal`` are as in ``core.errors.Problem``."""

    def __init__(self, found: str, legal: str) -> None:
        super().__init__(f"found {found}; legal: {legal}")
        self.found = found
        self.legal = legal


@dataclass(frozen=True, slots=True)
class ModbusTlsOptions:
    """TLS options of ``tls://…``: trust in the server, and the certificate of the client."""

    server_certificate: Path
    """File with the server's certificate, or those of authorities; DER or PEM."""
    client_certificate: Path | None
    """File, PEM, as the key. None: that of the installation."""
    client_key: Path | None
    accept: tuple[str, ...]
    """Faults of the server's certificate that are tolerated."""


@dataclass(frozen=True, slots=True)
class ModbusAddress:
    """Address of devices, with the settings of the line. Equal addresses share one connection."""

    scheme: Scheme
    endpoint: str
    """``HOST:PORT``, or the path of the serial device."""
    host: str = ""
    port: int = 0
    baud: int = 19200
    """Baud rate of the serial line, also of one behind a gateway."""
    parity: str = "E"
    stop: int = 1
    tls: ModbusTlsOptions | None = None

    @property
    def rtu(self) -> bool:
        """Return whether frames are those of a serial line: with a CRC, without a transaction id."""
        return self.scheme in ("rtu+tcp", "serial")

    def seconds(self, characters: float) -> float:
        """The time (s) of so many characters on the line."""
        return characters * _BITS_PER_CHARACTER / self.baud


@cache
def parse(address: str) -> ModbusAddress:
    """The parts of an address that matches PATTERN. Raises AddressError."""
    scheme, _, rest = address.partition("://")
    endpoint, _, query = rest.partition("?")
    parameters = _parameters(scheme, query)
    baud, parity = int(parameters.get("baud", "19200")), parameters.get("parity", "E")
    if scheme == "serial":
        stop = int(parameters.get("stop", "2" if parity == "N" else "1"))  # 2.5.1: without parity, a second stop bit
        return ModbusAddress("serial", endpoint, baud=baud, parity=parity, stop=stop)
    try:
        parts = urlsplit(f"//{endpoint}")
        host, port = parts.hostname, parts.port
    except ValueError:  # brackets of an IPv6 address, or a port beyond 65535
        host = port = None
    if not host or not port:
        raise AddressError(repr(address), "a host, and a port from 1 to 65535")
    of_tcp: Scheme = "tcp" if scheme == "tcp" else "tls" if scheme == "tls" else "rtu+tcp"
    return ModbusAddress(of_tcp, endpoint.lower(), host, port, baud)


def _parameters(scheme: str, query: str) -> dict[str, str]:
    """Parameter → value. Raises AddressError."""
    legal, parameters = _PARAMETERS[scheme], {}
    for part in query.split("&") if query else ():
        name, equals, value = part.partition("=")
        if name not in legal:
            raise AddressError(f"an unknown parameter {name!r}", f"one of {', '.join(legal)}")
        if name in parameters:
            raise AddressError(f"{name} twice", "each parameter once")
        if not equals or value not in _SETTINGS[name]:
            raise AddressError(repr(part), " or ".join(f"{name}={value}" for value in _SETTINGS[name]))
        parameters[name] = value
    return parameters
