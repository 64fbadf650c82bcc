"""Sessions with asyncua: secure channel, trust, user identity, a deadline for every step."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from asyncua import Client, ua
from asyncua.client.ua_client import UaClientState
from asyncua.crypto import security_policies
from cryptography.hazmat.primitives.serialization import Encoding

from core.addresses import OPCUA_PORT, unreachable
from core.certificates import validate
from core.certificates.identity import Identity, identity, load_pair
from core.config.sources import OpcuaSource
from core.errors import SourceError
from core.files import make_trust_folders
from core.opcua.service import REFUSED
from core.opcua.transport import MessageTooLarge, apply_limits
from core.timeouts import within

_POLICIES = {
    "Basic256Sha256": security_policies.SecurityPolicyBasic256Sha256,
    "Aes128Sha256RsaOaep": security_policies.SecurityPolicyAes128Sha256RsaOaep,
    "Aes256Sha256RsaPss": security_policies.SecurityPolicyAes256Sha256RsaPss,
}
_NO_SECURITY = security_policies.SecurityPolicyNone.URI
_KNOWN = {policy.URI for policy in (*_POLICIES.values(), security_policies.SecurityPolicyBasic256)}  # of user tokens
_WRONG_PATH = ("BadTcpEndpointUrlInvalid", "BadServerUriInvalid")
NO_SECURITY = "no security"  # SecurityPolicy None in messages
_USER_REFUSED = ("BadUserAccessDenied", "BadIdentityTokenRejected", "BadIdentityTokenInvalid")


async def connect(source: OpcuaSource, pki: Path) -> Client:
    """Connect a new client with an active session. Raises SourceError with the reason, within the deadlines."""
    client = _Client(source)
    own_identity: Identity | None = None
    try:
        if source.password_file is not None:
            client.set_password(source.password_file.read_text().rstrip("\n"))
        if (path := source.user_certificate_file) is not None and source.user_key_file is not None:
            pair = load_pair(path.read_bytes(), source.user_key_file.read_bytes(), path)
            client.user_certificate, client.user_private_key = pair
        if not source.insecure:
            make_trust_folders(pki)
            own_identity = identity(pki)
            client.application_uri = own_identity.uri
            await _secure(client, source, pki, own_identity)
        # socket, hello, channel, session, activation: each has a timeout, this one is for all
        await within(5 * source.time_out, client.connect())
    except SourceError:
        await close(client, source.time_out)
        raise
    except Exception as error:  # malformed answers can make asyncua raise anything
        await close(client, source.time_out)
        if source.insecure and _needs_security(error):
            offered = ", ".join(_offered(await _endpoints(source, source.address))) or "only secure ones"
            reason = f"the server has no endpoint without security; it offers {offered}: remove insecure"
            raise SourceError(reason) from error
        if paths := await _paths_offered(error, source):
            raise SourceError(paths) from error
        raise SourceError(_describe(error, source, own_identity if client.secured else None)) from error
    except BaseException:
        await close(client, source.time_out)
        raise
    return client


async def close(client: Client, time_out: float) -> None:
    """Disconnect, cleanly if the server still responds; subscriptions are kept for the next session."""
    session_close = client.uaclient.close_session
    client.uaclient.close_session = lambda _: session_close(False)  # asyncua requests their deletion
    with suppress(Exception):  # closing anyway
        await within(time_out, client.disconnect())  # awaited itself, it would swallow a cancellation of the caller
    with suppress(Exception):
        client.disconnect_socket()


class _Client(Client):  # type: ignore[misc]
    """asyncua's client, but without sending passwords in clear text by default."""

    def __init__(self, source: OpcuaSource) -> None:
        super().__init__(_with_port(source.address), timeout=source.time_out)
        apply_limits(self.uaclient)
        self.name = self.description = "plantlog"
        self.secured = False  # the server validates our certificate from here on
        self._in_clear = source.password_in_clear
        if source.username is not None:
            self.set_user(source.username)

    async def _wait_for_health_signal(self) -> None:
        """Replaces asyncua's, which allows one second per answer, counts own delays as late answers, and sends requests
        even while the server is publishing."""
        protocol = self.uaclient.protocol
        if protocol is not None:
            protocol.received = False
        async with self.uaclient.subscribe_state() as changes:
            with suppress(TimeoutError):
                await changes.next_change(self._watchdog_intervall)
        if self.uaclient.state is UaClientState.CONNECTED and not (protocol and protocol.received):
            try:
                await self.nodes.server_state.read_value()  # within the timeout
            except REFUSED:
                if not (protocol and protocol.received):  # a refusal shows that the server is alive
                    raise

    async def _stale_watchdog_loop(self) -> None:
        """Do nothing: asyncua's loop checks twice per second for its own subscriptions, which ours are not."""

    async def create_session(self) -> Any:
        """Create the session. asyncua cannot read an endpoint without an URL: it counts as the one connected to."""
        create = self.uaclient.create_session

        async def create_readable(parameters: Any) -> Any:
            response = await create(parameters)
            response.ServerEndpoints = response.ServerEndpoints or []
            for endpoint in response.ServerEndpoints:
                endpoint.EndpointUrl = endpoint.EndpointUrl or self.server_url.geturl()
                endpoint.UserIdentityTokens = endpoint.UserIdentityTokens or []
            return response

        self.uaclient.create_session = create_readable
        try:
            return await super().create_session()
        finally:
            self.uaclient.create_session = create

    def server_policy(self, token_type: Any) -> Any:
        """The user token policy (OPC 10000-4, 7.41): one that encrypts or signs, if there is one that we know.

        Raises SourceError if it would expose the password, or if there is none.
        """
        channel_policy = self.security_policy.URI
        policies = [p for p in self._policy_ids if p.TokenType == token_type]
        policies = [replace(p, SecurityPolicyUri=p.SecurityPolicyUri or channel_policy) for p in policies]
        supported = [p for p in policies if p.SecurityPolicyUri in _KNOWN]
        plain = [p for p in policies if p.SecurityPolicyUri == _NO_SECURITY]
        unknown = ", ".join(
            sorted({_policy_name(p.SecurityPolicyUri) for p in policies if p not in supported and p not in plain})
        )
        if token_type == ua.UserTokenType.Certificate:
            if not supported:
                only = f", except by {unknown}, which plantlog does not support" if unknown else ""
                raise SourceError(
                    f"the server accepts no user certificates{only}: remove user_certificate_file and user_key_file"
                )
            return supported[0]
        if token_type != ua.UserTokenType.UserName or not self._password:
            return (policies or [super().server_policy(token_type)])[0]
        if supported:
            return supported[0]
        policy = plain[0] if plain else super().server_policy(token_type)
        if self.security_policy.Mode == ua.MessageSecurityMode.SignAndEncrypt and (plain or not policies):
            return policy  # the channel encrypts
        if unknown:
            raise SourceError(
                f"the server encrypts the password only by {unknown}, which plantlog does not support: it was not sent"
            )
        if not self._in_clear:
            raise SourceError(
                "the server accepts the password only in clear text, so it was not sent: use a secure endpoint, "
                "or set password_in_clear = true"
            )
        return policy

    def _encrypt_password(self, password: str, policy_uri: str) -> tuple[bytes, str]:
        certificates = validate.chain(self.security_policy.peer_certificate)  # it says what is wrong with it
        self.security_policy.peer_certificate = certificates[0].public_bytes(Encoding.DER)
        encrypted: tuple[bytes, str] = super()._encrypt_password(password, policy_uri)
        return encrypted


async def _secure(client: _Client, source: OpcuaSource, pki: Path, own_identity: Identity) -> None:
    """Validate the server's certificate and use it. Raises SourceError if it is invalid."""
    policy = _POLICIES[source.security]
    endpoints = await within(4 * source.time_out, client.connect_and_get_server_endpoints())
    endpoint = _endpoint(endpoints, policy.URI, source)
    certificates = validate.chain(endpoint.ServerCertificate)
    uri = endpoint.Server.ApplicationUri if endpoint.Server is not None else None
    await asyncio.to_thread(validate.check, certificates, uri, source, pki)
    security = policy(
        certificates[0], own_identity.certificate, own_identity.key, ua.MessageSecurityMode.SignAndEncrypt
    )
    client.security_policy = security
    client.uaclient.set_security(security)
    client.secured = True


def _endpoint(endpoints: list[Any], policy: str, source: OpcuaSource) -> Any:
    """The server's endpoint for ``policy`` with SignAndEncrypt."""
    for endpoint in endpoints:
        if endpoint.SecurityPolicyUri == policy and endpoint.SecurityMode == ua.MessageSecurityMode.SignAndEncrypt:
            return endpoint
    offered = ", ".join(_offered(endpoints)) or "none"
    raise SourceError(f"the server has no endpoint with {source.security} SignAndEncrypt; it offers {offered}")


def _needs_security(error: Exception) -> bool:
    """Return whether the server refuses sessions without security."""
    if isinstance(error, ua.UaStatusCodeError):
        return str(ua.StatusCode(error.code).name) == "BadSecurityPolicyRejected"
    return isinstance(error, ua.UaError) and str(error).startswith("No matching endpoints")  # asyncua's text


async def refuses_connections(source: OpcuaSource) -> bool:
    """Return whether nobody listens at the address."""
    parts = urlsplit(_with_port(source.address))
    try:
        _, writer = await within(source.time_out, asyncio.open_connection(parts.hostname, parts.port))
    except (OSError, TimeoutError) as error:
        return isinstance(error, ConnectionRefusedError)
    writer.close()
    return False


async def _paths_offered(error: Exception, source: OpcuaSource) -> str:
    """Paths of the server, if it does not know the path of the address; empty: the error has another cause."""
    parts = urlsplit(_with_port(source.address))
    if not (isinstance(error, ua.UaStatusCodeError) and ua.StatusCode(error.code).name in _WRONG_PATH):
        return ""
    endpoints = await _endpoints(source, parts._replace(path="", query="", fragment="").geturl())
    addresses = sorted({endpoint.EndpointUrl for endpoint in endpoints if endpoint.EndpointUrl})
    return f"the server has no endpoint {source.address}; it has {', '.join(addresses) or 'none that it tells'}"


async def _endpoints(source: OpcuaSource, address: str) -> list[Any]:
    """The server's endpoints. Empty where it does not tell them without security."""
    client = _Client(source.at(address))
    try:
        return list(await within(4 * source.time_out, client.connect_and_get_server_endpoints()) or ())
    except Exception:  # malformed answers can make asyncua raise anything
        return []
    finally:
        await close(client, source.time_out)


def _offered(endpoints: list[Any]) -> list[str]:
    return sorted({_policy_and_mode(endpoint) for endpoint in endpoints})


def _policy_and_mode(endpoint: Any) -> str:
    """Policy and mode of an endpoint as text."""
    if endpoint.SecurityMode == ua.MessageSecurityMode.None_:
        return NO_SECURITY
    return f"{_policy_name(endpoint.SecurityPolicyUri)} {endpoint.SecurityMode.name}"


def _policy_name(uri: str | None) -> str:
    return str(uri).rpartition("#")[2]


def _with_port(address: str) -> str:
    """The address with a port."""
    parts = urlsplit(address)
    return address if parts.port else parts._replace(netloc=f"{parts.netloc}:{OPCUA_PORT}").geturl()


def _describe(error: Exception, source: OpcuaSource, own_identity: Identity | None) -> str:
    """The reason of a failure. ``own_identity``: our identity, which the server may have rejected."""
    if isinstance(error, MessageTooLarge):
        return str(error)
    message = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, ua.UaStatusCodeError):
        code = ua.StatusCode(error.code).name
        if code in _USER_REFUSED:
            return _user_refused(source, code)
        if own_identity is not None and (code.startswith("BadCertificate") or code == "BadSecurityChecksFailed"):
            return f"the server does not trust plantlog's certificate ({code}): trust it on the server: {own_identity}"
    # An AssertionError of asyncua: the answer is a ServiceFault instead of a channel
    if own_identity is not None and isinstance(error, AssertionError):
        reason = "secure channel refused"
        return f"the server does not trust plantlog's certificate ({reason}): trust it on the server: {own_identity}"
    if own_identity is not None and isinstance(error, ConnectionError):
        return f"the server closed the connection ({message}); it may not trust plantlog's certificate: {own_identity}"
    return f"connect: {unreachable(source.address, error)}"


def _user_refused(source: OpcuaSource, code: str) -> str:
    if source.user_certificate_file is not None:
        return f"the server rejects the user certificate {source.user_certificate_file} ({code}): trust it there"
    look = "check" if source.username is not None else "anonymous access is not allowed: set"
    return f"the server rejects user {source.username or 'anonymous'} ({code}): {look} username and password_file"
