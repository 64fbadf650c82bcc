"""asyncua's server, to be filled and started by a test."""

from __future__ import annotations

from asyncua import Server, ua

from tests.ports import free_port


async def unsecured(*namespaces: str, port: int | None = None) -> tuple[Server, str]:
    """A server without security that does not run yet, and its address; ``namespaces`` have the indices 2, 3, …"""
    server = Server()
    await server.init()
    address = f"opc.tcp://127.0.0.1:{port or free_port()}/"
    server.set_endpoint(address)
    server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
    for uri in namespaces:
        await server.register_namespace(uri)
    return server, address
