"""A session with one OPC UA server, by asyncua: secure channel, trust, user identity, every step with a deadline."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

from asyncua import Client, ua
from asyncua.client.ua_client import UaClientState
from asyncua.crypto import security_policies

from ingest.awake import within
from ingest.config.model import OpcuaSource
from ingest.errors import SourceError
from ingest.opcua import limits, trust, validate
from ingest.opcua.certificate import Identity, identity

_POLICIES = {
    "Basic256Sha256": security_policies.SecurityPolicyBasic256Sha256,
    "Aes128Sha256RsaOaep": security_policies.SecurityPolicyAes128Sha256RsaOaep,
    "Aes256Sha256RsaPss": security_policies.SecurityPolicyAes256Sha256RsaPss,
}
NO_SECURITY = "no security"  # an endpoint of SecurityPolicy None, as people call it
_USER_REFUSED = ("BadUserAccessDenied", "BadIdentityTokenRejected", "BadIdentityTokenInvalid")


async def connect(source: OpcuaSource, pki: Path) -> Client:
    """A fresh client with an active session. Raises SourceError with the reason, never waits beyond the deadlines."""
    client = _Client(source)
    ours: Identity | None = None
    try:
        if source.password_file is not None:
            client.set_password(source.password_file.read_text().rstrip("\n"))
        if not source.insecure:
            trust.folders(pki)
            ours = identity(pki)
            client.application_uri = ours.uri
            await _secure(client, source, pki, ours)
        # socket, hello, channel, session, activation: there is a time-out for each, this one is for all
        await within(5 * source.time_out, client.connect())
    except SourceError:
        await close(client, source.time_out)
        raise
    except Exception as error:  # asyncua raises what a server's bytes make it raise
        await close(client, source.time_out)
        raise SourceError(_why(error, source, ours if client.secured else None)) from error
    except BaseException:
        await close(client, source.time_out)
        raise
    return client


async def close(client: Client, time_out: float) -> None:
    """Leave, politely if the server still listens; subscriptions stay with it, for whoever comes next."""
    session_close = client.uaclient.close_session
    client.uaclient.close_session = lambda _: session_close(False)  # asyncua's own asks for their deletion
    with suppress(Exception):  # it is over, whatever it says
        async with asyncio.timeout(time_out):
            await client.disconnect()
    with suppress(Exception):
        client.disconnect_socket()


class _Client(Client):  # type: ignore[misc]
    """asyncua's client, which sends no password in clear unless it is told to."""

    def __init__(self, source: OpcuaSource) -> None:
        super().__init__(source.address, timeout=source.time_out)
        limits.bound(self.uaclient)
        self.name = self.description = "plantlog"
        self.secured = False  # from now on the server looks at our certificate
        self._in_clear = source.password_in_clear
        if source.username is not None:
            self.set_user(source.username)

    async def _wait_for_health_signal(self) -> None:
        """asyncua's, which gives a server one second to answer, takes a late look for a late answer, and asks a server
        that it hears."""
        protocol = self.uaclient.protocol
        if protocol is not None:
            protocol.heard = False
        async with self.uaclient.subscribe_state() as changes:
            with suppress(TimeoutError):
                await changes.next_change(self._watchdog_intervall)
        if self.uaclient.state is UaClientState.CONNECTED and not (protocol and protocol.heard):
            await self.nodes.server_state.read_value()  # within the time-out

    async def _stale_watchdog_loop(self) -> None:
        """asyncua's looks twice a second after the subscriptions that it made, and ours are none of them."""

    def server_policy(self, token_type: Any) -> Any:
        """How the server wants a user to identify himself. Raises SourceError where that gives the password away."""
        policy = super().server_policy(token_type)
        if token_type == ua.UserTokenType.UserName and self._password and not self._in_clear:
            encrypted = self.security_policy.Mode == ua.MessageSecurityMode.SignAndEncrypt
            if not encrypted and policy.SecurityPolicyUri == security_policies.SecurityPolicyNone.URI:
                raise SourceError(
                    "the server takes the password in clear only, so it was not sent: use a secure endpoint, "
                    "or say password_in_clear = true"
                )
        return policy


async def _secure(client: _Client, source: OpcuaSource, pki: Path, ours: Identity) -> None:
    """Look at the server's certificate, and let the client use it. Raises SourceError where it is not right."""
    policy = _POLICIES[source.security]
    endpoints = await within(4 * source.time_out, client.connect_and_get_server_endpoints())
    endpoint = _endpoint(endpoints, policy.URI, source)
    certificates = validate.chain(endpoint.ServerCertificate)
    uri = endpoint.Server.ApplicationUri if endpoint.Server is not None else None
    faults = list(validate.faults(certificates, source, uri))
    server, print_ = certificates[0], trust.fingerprint(certificates[0])
    said = "; ".join(map(str, faults))
    if not trust.trusted(pki, server, source.server_certificate):
        kept = trust.reject(pki, source.name, server)
        also = f". It also fails {said}" if faults else ""
        if source.server_certificate is not None:
            raise SourceError(
                f"the server's certificate (SHA-256 {print_}) is not trusted: it is not {source.server_certificate}, "
                f"which server_certificate names. It is kept in {kept}{also}"
            )
        raise SourceError(
            f"the server's certificate (SHA-256 {print_}) is not trusted: if it is the right one, "
            f"`plantlog certificate trust {source.name}`{also}"
        )
    if faults:
        names = ", ".join(f'"{name}"' for name in sorted({fault.check for fault in faults}))
        raise SourceError(
            f"the server's certificate (SHA-256 {print_}) is trusted, but not valid: {said}. "
            f"Give the server a right one, or say accept = [{names}]"
        )
    security = policy(server, ours.certificate, ours.key, ua.MessageSecurityMode.SignAndEncrypt)
    client.security_policy = security
    client.uaclient.set_security(security)
    client.secured = True


def _endpoint(endpoints: list[Any], policy: str, source: OpcuaSource) -> Any:
    """The server's endpoint that speaks ``policy`` with SignAndEncrypt."""
    for endpoint in endpoints:
        if endpoint.SecurityPolicyUri == policy and endpoint.SecurityMode == ua.MessageSecurityMode.SignAndEncrypt:
            return endpoint
    offered = sorted({_named(endpoint) for endpoint in endpoints})
    raise SourceError(
        f"the server has no endpoint with {source.security} SignAndEncrypt; it offers {', '.join(offered) or 'none'}"
    )


def _named(endpoint: Any) -> str:
    """Policy and mode of an endpoint."""
    if endpoint.SecurityMode == ua.MessageSecurityMode.None_:
        return NO_SECURITY
    return f"{str(endpoint.SecurityPolicyUri).rpartition('#')[2]} {endpoint.SecurityMode.name}"


def _why(error: Exception, source: OpcuaSource, ours: Identity | None) -> str:
    """What went wrong. ``ours``: what the server may have refused."""
    if isinstance(error, limits.TooLarge):
        return str(error)
    said = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, ua.UaStatusCodeError):
        code = ua.StatusCode(error.code).name
        if code in _USER_REFUSED:
            look = "look at" if source.username is not None else "it takes nobody without a name: say"
            user = source.username or "anonymous"
            return f"the server refuses user {user} ({code}): {look} username and password_file"
        if ours is not None and (code.startswith("BadCertificate") or code == "BadSecurityChecksFailed"):
            return f"the server does not trust our certificate ({code}): accept there {ours}"
    if ours is not None and isinstance(error, AssertionError):  # asyncua: the answer is no channel, but a ServiceFault
        return f"the server does not trust our certificate (it refused the secure channel): accept there {ours}"
    if ours is not None and isinstance(error, ConnectionError):
        return f"the server closed the connection ({said}): it may not trust our certificate; accept there {ours}"
    return f"connect: {said}"
