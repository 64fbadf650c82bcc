"""Network addresses of this machine and of others."""

from __future__ import annotations

import ipaddress
import re
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

OPCUA_PORT = 4840  # of an address without one (OPC 10000-6, 7.2)
WILDCARDS = ("0.0.0.0", "::")  # of a server that listens at all addresses
FIRST_EPHEMERAL_PORT = 32_768  # of Linux' ip_local_port_range: those of outgoing connections


def is_loopback(host: str) -> bool:
    """Return whether the address is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def port_advice(port: int) -> str:
    """Advice, behind an error, on a port to listen on that an outgoing connection can take at any time."""
    if port < FIRST_EPHEMERAL_PORT:
        return ""
    return f". Outgoing connections use ports from {FIRST_EPHEMERAL_PORT:,}: choose one below"


def reachable(address: str) -> bool:
    """Return whether a URL has a host, and a port from 1 to 65535 if any."""
    try:
        parts = urlsplit(address)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets of an IPv6 address, or a port beyond 65535
        return False


def machine_addresses() -> set[str]:
    """The addresses of this machine's interfaces, except link-local ones of IPv6."""
    addresses: set[str] = set()
    with suppress(OSError):  # proc(5): an address of this machine is followed by "/32 host LOCAL"
        addresses |= set(re.findall(r"\|-- (\S+)\n\s+/32 host LOCAL", Path("/proc/net/fib_trie").read_text()))
    with suppress(OSError):
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            address = ipaddress.IPv6Address(bytes.fromhex(line[:32]))
            addresses |= {str(address)} if not address.is_link_local else set()
    return addresses


def unreachable(address: str, error: Exception) -> str:
    """Reason why a connection to ``address`` failed, for people."""
    match error:
        case ConnectionRefusedError():
            return f"nothing listens at {address}"
        case TimeoutError():
            return f"{address} does not answer"
        case socket.gaierror():
            return f"the host name of {address} cannot be resolved"
        case OSError(strerror=str(reason)):
            return f"{address}: {reason}"
    return f"{type(error).__name__}: {error}".rstrip(": ")
