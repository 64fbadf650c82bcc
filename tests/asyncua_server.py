"""asyncua's server, to be filled and started by a test."""

from __future__ import annotations

from asyncua import Server, ua

from simulator.subscriptions import Subscriptions, Transit
from tests.ports import free_port


async def unsecured(*namespaces: str, port: int | None = None, transfers: bool = False) -> tuple[Server, str]:
    """A server without security that does not run yet, and its address; ``namespaces`` have the indices 2, 3, …

    ``transfers``: subscriptions publish after a transfer to another session. Those of asyncua answer to publish
    requests of the former session, and never publish again after three.
    """
    server = Server()
    await server.init()
    if transfers:
        server.iserver.subscription_service = Subscriptions(server.iserver.aspace, server.iserver, Transit(), {})
    address = f"opc.tcp://127.0.0.1:{port or free_port()}/"
    server.set_endpoint(address)
    server.set_security_policy([ua.SecurityPolicyType.NoSecurity])
    for uri in namespaces:
        await server.register_namespace(uri)
    return server, address
