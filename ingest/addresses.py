"""Network addresses: which are this machine's own, and why nobody answers at one."""

from __future__ import annotations

import ipaddress
import socket

OPCUA_PORT = 4840  # of an address without one (OPC 10000-6, 7.2)


def is_loopback(host: str) -> bool:
    """Whether the address is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def unreachable(address: str, error: Exception) -> str:
    """Why a connection to ``address`` failed, in words."""
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
