"""The plant behind an OPC UA server: asyncua's, with units, engineering units and ranges to browse."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
from asyncua import Server, ua
from asyncua.common.utils import ServiceError
from asyncua.crypto.cert_gen import setup_self_signed_certificate
from asyncua.crypto.permission_rules import UserRole
from asyncua.server.address_space import AttributeService
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from simulator.history import History
from simulator.prepared import Numbers
from simulator.relay import Relay
from simulator.subscriptions import Subscriptions
from simulator.tags import OpcuaType, SimTag

NAMESPACE = "urn:plantlog:simulator:plant"
_RICH = 1000  # tags, at most, that have properties: thousands of load channels need none
_HISTORY = 2000  # values of a node that are remembered, where nobody says
_APPLICATION_URI = "urn:plantlog:simulator"
_SHOWN = np.dtype([("value", "<f8"), ("time", "<i8"), ("status", "<u4")])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES: dict[OpcuaType, Any] = {
    "Double": ua.VariantType.Double,
    "Float": ua.VariantType.Float,
    "Int32": ua.VariantType.Int32,
    "Boolean": ua.VariantType.Boolean,
    "String": ua.VariantType.String,
}
_CASTS: dict[OpcuaType, Callable[[Any], Any]] = {
    "Double": float, "Float": float, "Int32": int, "Boolean": bool, "String": str,
}  # fmt: skip

log = logging.getLogger(__name__)

SetPointWritten = Callable[[int, float], Awaitable[None]]  # tag, value; returns when the value is published


def node_identifier(tag: SimTag) -> str:
    """The string identifier of a tag's node: its name with dots."""
    return tag.name.replace("/", ".")


@dataclass(slots=True)
class _Published(ua.DataValue):  # type: ignore[misc]
    """A value that nobody changes any more.

    asyncua copies each value deeply for each monitored item, to compare it with the next one; that copy is two thirds
    of the cost of a value.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> _Published:
        return self


class OpcuaServer:
    """Serves the tags that have an OPC UA type. Tags are indices into the plant's list."""

    def __init__(
        self,
        tags: list[SimTag],
        pki: Path,
        secure: bool,
        written: SetPointWritten | None = None,
        history: int | None = None,
    ) -> None:
        """``history``: values of each node that are remembered; None: many of a plant, none of a load."""
        self._tags = {i: tag for i, tag in enumerate(tags) if tag.opcua is not None}
        self._rich = len(self._tags) <= _RICH
        self._kept = history if history is not None else _HISTORY if self._rich else 0
        self._pki = pki
        self._secure = secure
        self._written = written
        self._nodes: dict[int, Any] = {}
        # Many numbers that nobody writes or asks for later are published as columns; what each shows now is here.
        self.prepared = not self._kept and all(_plain(tag) for tag in self._tags.values())
        self._shown = np.zeros(len(tags), _SHOWN)
        self._places: dict[Any, int] = {}  # node id → tag, of those that are published so
        self._statuses = {0: ua.StatusCode(0)}
        self._relay = Relay()
        self._server: Server | None = None
        self._subscriptions: Subscriptions
        self._history: History
        self._loses: Literal["no", "sent again", "gone"] = "no"

    async def build(self, host: str, port: int) -> None:
        """Build the address space; values can be written from now on, nobody can read them yet."""
        server = Server()
        self._subscriptions = Subscriptions(server.iserver.aspace, server.iserver, lambda: self._loses, self._places)
        server.iserver.subscription_service = self._subscriptions
        self._history = server.iserver.history_manager = History(server.iserver, self._kept)
        await server.init()
        server.iserver.isession.add_method_callback(
            ua.NodeId(ua.ObjectIds.Server_ResendData), self._subscriptions.resend
        )
        server.set_endpoint(f"opc.tcp://{host}:{port}/plantlog/simulator")
        server.socket_address = ("127.0.0.1", 0)  # clients come through the relay
        server.set_match_discovery_client_ip(False)
        server.set_server_name("plantlog simulator")
        server.iserver.allow_remote_admin = False
        await server.set_application_uri(_APPLICATION_URI)
        policies = [ua.SecurityPolicyType.NoSecurity]
        if self._secure:
            key, certificate = self._pki / "server.pem", self._pki / "server.der"
            self._pki.mkdir(parents=True, exist_ok=True)
            usage = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            await setup_self_signed_certificate(key, certificate, _APPLICATION_URI, host, usage, {})
            await server.load_certificate(str(certificate))
            await server.load_private_key(str(key))
            policies.append(ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt)
            server.set_certificate_validator(self._check_client)
        server.set_security_policy(policies)
        await self._build(server, await server.register_namespace(NAMESPACE))
        if self._written is not None:
            set_points = {self._nodes[i]: (i, t) for i, t in self._tags.items() if t.writable}
            server.iserver.attribute_service = _Attributes(server.iserver.aspace, set_points, self._written)
        self._server = server

    async def start(self, host: str, port: int) -> None:
        """Listen; builds first where nobody did. Raises OSError where the port is taken."""
        if self._server is None:
            await self.build(host, port)
        assert self._server is not None
        await self._server.start()
        inner = self._server.bserver
        assert inner is not None
        try:
            await self._relay.start((host, port), (inner.hostname, inner.port))
        except OSError:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop serving."""
        if self._server is not None:
            await self._relay.stop()
            await self._server.stop()
            self._server = None

    def pause(self, silent: bool) -> None:
        """Say nothing and hear nothing on all connections, which stay open, or go on."""
        self._relay.silence(silent)

    async def refuse(self, refused: bool) -> None:
        """Cut all connections and refuse new ones, or accept them again; sessions and subscriptions live on."""
        if refused:
            self._relay.refuse()
        else:
            await self._relay.accept()

    def lose(self, loses: Literal["no", "sent again", "gone"]) -> None:
        """Lose what is published on its way to the clients; ``sent again``: those who ask can have it."""
        self._loses = loses

    def garble(self) -> None:
        """Send each client bytes that nobody asked for."""
        self._relay.garble()

    async def forget(self) -> None:
        """Cut all connections and lose all subscriptions, as if started again."""
        self._relay.refuse()
        await self._subscriptions.forget()
        await self._relay.accept()

    async def write(self, tag: int, value: Any, time_us: int, status: int) -> None:
        """Publish one value with its source timestamp; a Bad one is published without its value."""
        opcua = self._tags[tag].opcua
        assert opcua is not None
        assert self._server is not None
        time = _EPOCH + timedelta(microseconds=time_us)
        code = self._statuses.get(status) or self._statuses.setdefault(status, ua.StatusCode(status))
        data = _Published(ua.Variant(_CASTS[opcua](value), _TYPES[opcua]), code, time, time)
        await self._server.iserver.aspace.write_attribute_value(self._nodes[tag], ua.AttributeIds.Value, data)
        self._history.published(self._nodes[tag], data)

    def publish(self, numbers: Numbers) -> None:
        """Publish values of many tags, where the server is ``prepared``."""
        shown = self._shown
        shown["value"][numbers.of], shown["time"][numbers.of] = numbers.value, numbers.time
        shown["status"][numbers.of] = numbers.status
        self._subscriptions.offer(numbers)

    def _read(self, node: Any, _: Any) -> Any:
        """What a tag that is published so shows now."""
        value, time_us, status = self._shown[self._places[node]].tolist()
        time = _EPOCH + timedelta(microseconds=time_us)
        return ua.DataValue(ua.Variant(value, ua.VariantType.Double), ua.StatusCode(status), time, time)

    async def _check_client(self, certificate: x509.Certificate, _: Any) -> None:
        """Refuse a client that is not in the trust folder; an empty folder trusts everybody."""
        trusted = _certificates(self._pki / "trusted")
        presented = certificate.public_bytes(Encoding.DER)
        if not trusted:
            log.warning("any client is accepted: no certificate in %s", self._pki / "trusted")
        elif presented not in trusted:
            log.warning("client %s refused: not in %s", certificate.subject.rfc4514_string(), self._pki / "trusted")
            raise ServiceError(ua.StatusCodes.BadCertificateUntrusted)

    async def _build(self, server: Server, namespace: int) -> None:
        folders: dict[str, Any] = {
            "": await server.nodes.objects.add_folder(ua.NodeId("Plant", namespace), f"{namespace}:Plant")
        }
        for count, (i, tag) in enumerate(self._tags.items()):
            path, _, leaf = tag.name.rpartition("/")
            folder = await _folder(folders, path, namespace)
            opcua = tag.opcua
            assert opcua is not None
            variant = ua.Variant(_CASTS[opcua](0 if opcua != "String" else ""), _TYPES[opcua])
            node = await folder.add_variable(
                ua.NodeId(node_identifier(tag), namespace),
                f"{namespace}:{leaf}",
                variant,
                datatype=ua.NodeId(_TYPES[opcua].value),
            )
            if self._rich and tag.unit:
                await node.add_property(0, "EngineeringUnits", ua.EUInformation(DisplayName=ua.LocalizedText(tag.unit)))
            if self._rich and tag.lo is not None and tag.hi is not None:
                await node.add_property(0, "EURange", ua.Range(Low=tag.lo, High=tag.hi))
            if tag.writable:
                await node.set_writable()
            if self._kept:
                self._history.historize(node.nodeid)
            self._nodes[i] = node.nodeid
            if self.prepared:
                self._places[node.nodeid] = i
                server.iserver.aspace.set_attribute_value_callback(node.nodeid, ua.AttributeIds.Value, self._read)
            if count % 500 == 0:
                await asyncio.sleep(0)


class _Attributes(AttributeService):  # type: ignore[misc]
    """Clients' writes of set points: the process takes the value, and the plant publishes it with its own clock."""

    def __init__(self, space: Any, set_points: dict[Any, tuple[int, SimTag]], written: SetPointWritten) -> None:
        super().__init__(space)
        self._set_points = set_points  # by node id
        self._written = written

    async def write(self, params: Any, user: Any) -> list[Any]:
        """One status for each node (OPC 10000-4, 5.11.4)."""
        results = []
        for item in params.NodesToWrite:
            if user.role == UserRole.Admin or item.AttributeId != ua.AttributeIds.Value:
                results += await super().write(ua.WriteParameters(NodesToWrite=[item]), user)
            elif item.NodeId not in self._set_points:
                known = self._aspace.read_attribute_value(item.NodeId, ua.AttributeIds.Value).StatusCode
                missing = known.value == ua.StatusCodes.BadNodeIdUnknown
                results.append(known if missing else ua.StatusCode(ua.StatusCodes.BadUserAccessDenied))
            else:
                results.append(await self._write(*self._set_points[item.NodeId], item.Value.Value))
        return results

    async def _write(self, tag: int, set_point: SimTag, variant: Any) -> Any:
        assert set_point.opcua is not None
        if variant is None or variant.VariantType != _TYPES[set_point.opcua] or variant.is_array:
            return ua.StatusCode(ua.StatusCodes.BadTypeMismatch)
        if not set_point.accepts(float(variant.Value)):
            return ua.StatusCode(ua.StatusCodes.BadOutOfRange)
        await self._written(tag, float(variant.Value))
        return ua.StatusCode(0)


def _plain(tag: SimTag) -> bool:
    return tag.opcua == "Double" and not tag.writable


def _certificates(folder: Path) -> list[bytes]:
    """The certificates in a folder, DER."""
    found = [path.read_bytes() for path in sorted(folder.glob("*.der"))]
    for path in sorted(folder.glob("*.pem")):
        found += [c.public_bytes(Encoding.DER) for c in x509.load_pem_x509_certificates(path.read_bytes())]
    return found


async def _folder(folders: dict[str, Any], path: str, namespace: int) -> Any:
    if path not in folders:
        parent, _, leaf = path.rpartition("/")
        above = await _folder(folders, parent, namespace)
        folders[path] = await above.add_folder(ua.NodeId(path.replace("/", "."), namespace), f"{namespace}:{leaf}")
    return folders[path]


logging.getLogger("asyncua").setLevel(logging.ERROR)
