"""The plant's OPC UA server, based on asyncua, with browsable units, engineering units and ranges."""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from asyncua import Server, ua
from asyncua.common.utils import ServiceError
from asyncua.crypto.cert_gen import setup_self_signed_certificate
from asyncua.crypto.permission_rules import UserRole
from asyncua.server.address_space import AttributeService
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from core.samples import Samples
from core.timestamps import utc
from simulator.history import History
from simulator.relay import Relay
from simulator.subscriptions import Subscriptions, Transit
from simulator.tags import OpcuaType, SimTag, node_identifier

NAMESPACE = "urn:plantlog:simulator:plant"
_MAX_WITH_PROPERTIES = 1000  # maximum number of tags with properties: load channels need none
_HISTORY = 2000  # default number of stored values per node
_APPLICATION_URI = "urn:plantlog:simulator"
_SHOWN = np.dtype([("value", "<f8"), ("time", "<i8"), ("status", "<u4")])
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

OnSetPointWrite = Callable[[int, float], Awaitable[None]]  # tag, value; returns once the value is published


@dataclass(slots=True)
class _Published(ua.DataValue):  # type: ignore[misc]
    """An immutable value.

    asyncua deep-copies each value for each monitored item, to compare it with the next one; the copy is two thirds
    of the cost of a value.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> _Published:
        return self


class OpcuaServer:
    """Serves all tags with an OPC UA type. Tags are indices into the plant's list."""

    def __init__(
        self,
        tags: list[SimTag],
        pki: Path,
        secure: bool,
        on_write: OnSetPointWrite | None = None,
        history: int | None = None,
    ) -> None:
        """``history``: number of values stored per node; None: default for a plant, none for a load."""
        self._tags = {i: tag for i, tag in enumerate(tags) if tag.opcua is not None}
        self._has_properties = len(self._tags) <= _MAX_WITH_PROPERTIES
        self._history_size = history if history is not None else _HISTORY if self._has_properties else 0
        self._pki = pki
        self._secure = secure
        self._on_write = on_write
        self._nodes: dict[int, Any] = {}
        # Numbers without set points and history are published as columns; these are their current values.
        self.publishes_in_bulk = not self._history_size and all(_plain(tag) for tag in self._tags.values())
        self._shown = np.zeros(len(tags), _SHOWN)
        self._places: dict[Any, int] = {}  # node id → tag, of numbers published as columns
        self._statuses = {0: ua.StatusCode(0)}
        self._relay = Relay()
        self._server: Server | None = None
        self._subscriptions: Subscriptions
        self._history: History
        self.transit = Transit()

    async def build(self, host: str, port: int) -> None:
        """Build the address space; values can be written after this, but not read by clients yet."""
        collecting = gc.isenabled()
        gc.disable()  # looking for garbage takes half of the time, and there is none
        try:
            await self._make(host, port)
        finally:
            if collecting:
                gc.enable()

    async def _make(self, host: str, port: int) -> None:
        server = Server()
        self._subscriptions = Subscriptions(server.iserver.aspace, server.iserver, self.transit, self._places)
        server.iserver.subscription_service = self._subscriptions
        self._history = server.iserver.history_manager = History(server.iserver, self._history_size)
        await server.init()
        server.iserver.isession.add_method_callback(
            ua.NodeId(ua.ObjectIds.Server_ResendData), self._subscriptions.resend
        )
        server.iserver.isession.add_method_callback(
            ua.NodeId(ua.ObjectIds.Server_GetMonitoredItems), self._subscriptions.get_monitored_items
        )
        server.set_endpoint(f"opc.tcp://{host}:{port}/plantlog/simulator")
        server.socket_address = ("127.0.0.1", 0)  # clients connect through the relay
        server.set_match_discovery_client_ip(False)
        server.set_server_name("plantlog simulator")
        server.iserver.allow_remote_admin = False
        await server.set_application_uri(_APPLICATION_URI)
        policies = [ua.SecurityPolicyType.NoSecurity]
        if self._secure:
            key, certificate = self._pki / "server.pem", self._pki / "server.der"
            self._pki.mkdir(parents=True, exist_ok=True)
            usage = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            partial = self._pki / "server.der.partial"  # whoever waits for the certificate finds it whole
            partial.unlink(missing_ok=True)
            if certificate.exists():
                shutil.copyfile(certificate, partial)
            await setup_self_signed_certificate(key, partial, _APPLICATION_URI, host, usage, {})
            partial.replace(certificate)
            await server.load_certificate(str(certificate))
            await server.load_private_key(str(key))
            policies.append(ua.SecurityPolicyType.Basic256Sha256_SignAndEncrypt)
            server.set_certificate_validator(self._check_client)
        server.set_security_policy(policies)
        await self._build(server, await server.register_namespace(NAMESPACE))
        if self._on_write is not None:
            set_points = {self._nodes[i]: (i, t) for i, t in self._tags.items() if t.writable}
            server.iserver.attribute_service = _Attributes(server.iserver.aspace, set_points, self._on_write)
        self._server = server

    async def start(self, host: str, port: int) -> None:
        """Listen; builds the address space if needed. Raises OSError if the port is in use."""
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
            clock, self._server.iserver.time_task = self._server.iserver.time_task, None
            if clock is not None:  # which asyncua would wait for, up to a second
                clock.cancel()
                await asyncio.wait([clock])
            await self._server.stop()
            self._server = None

    def pause(self, silent: bool) -> None:
        """Suspend or resume all connections without closing them."""
        self._relay.silence(silent)

    async def refuse(self, refused: bool) -> None:
        """Cut all connections and refuse new ones, or accept them again; sessions and subscriptions stay."""
        if refused:
            self._relay.refuse()
        else:
            await self._relay.accept()

    def garble(self) -> None:
        """Send unsolicited bytes to each client."""
        self._relay.garble()

    async def forget(self) -> None:
        """Cut all connections and drop all subscriptions, like a restart."""
        self._relay.refuse()
        await self._subscriptions.forget()
        await self._relay.accept()

    async def set_service_level(self, level: int) -> None:
        """Set the ServiceLevel (OPC 10000-5, 6.3.1), as a redundant server does."""
        assert self._server is not None
        node = self._server.get_node(ua.NodeId(ua.ObjectIds.Server_ServiceLevel))
        await node.write_value(ua.Variant(level, ua.VariantType.Byte))

    async def write(self, tag: int, value: Any, time_us: int, status: int, server_time_us: int = 0) -> None:
        """Publish one value with its timestamps (µs, by default equal ones); a Bad one without its value."""
        opcua = self._tags[tag].opcua
        assert opcua is not None
        assert self._server is not None
        time, server_time = utc(time_us), utc(server_time_us or time_us)
        code = self._statuses.get(status) or self._statuses.setdefault(status, ua.StatusCode(status))
        data = _Published(ua.Variant(_CASTS[opcua](value), _TYPES[opcua]), code, time, server_time)
        await self._server.iserver.aspace.write_attribute_value(self._nodes[tag], ua.AttributeIds.Value, data)
        self._history.published(self._nodes[tag], data)

    def publish(self, numbers: Samples) -> None:
        """Publish values of many tags, the channels; only if ``publishes_in_bulk``."""
        shown = self._shown
        shown["value"][numbers.channel], shown["time"][numbers.channel] = numbers.value, numbers.time
        shown["status"][numbers.channel] = numbers.status
        self._subscriptions.offer(numbers)

    def _read(self, node: Any, _: Any) -> Any:
        """The current value of a tag published as columns."""
        value, time_us, status = self._shown[self._places[node]].tolist()
        time = utc(time_us)
        return ua.DataValue(ua.Variant(value, ua.VariantType.Double), ua.StatusCode(status), time, time)

    async def _check_client(self, certificate: x509.Certificate, _: Any) -> None:
        """Reject clients that are not in the trust folder; an empty folder trusts all."""
        trusted = _certificates(self._pki / "trusted")
        presented = certificate.public_bytes(Encoding.DER)
        if not trusted:
            log.warning("accepting any client: no certificate in %s", self._pki / "trusted")
        elif presented not in trusted:
            log.warning("client %s rejected: not in %s", certificate.subject.rfc4514_string(), self._pki / "trusted")
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
            if self._has_properties and tag.unit:
                await node.add_property(0, "EngineeringUnits", ua.EUInformation(DisplayName=ua.LocalizedText(tag.unit)))
            if self._has_properties and tag.lo is not None and tag.hi is not None:
                await node.add_property(0, "EURange", ua.Range(Low=tag.lo, High=tag.hi))
            if tag.writable:
                await node.set_writable()
            if self._history_size:
                self._history.historize(node.nodeid)
            self._nodes[i] = node.nodeid
            if self.publishes_in_bulk:
                self._places[node.nodeid] = i
                server.iserver.aspace.set_attribute_value_callback(node.nodeid, ua.AttributeIds.Value, self._read)
            if count % 500 == 0:
                await asyncio.sleep(0)


class _Attributes(AttributeService):  # type: ignore[misc]
    """Set point writes by clients: applied to the process, then published with the plant's clock."""

    def __init__(self, space: Any, set_points: dict[Any, tuple[int, SimTag]], on_write: OnSetPointWrite) -> None:
        super().__init__(space)
        self._set_points = set_points  # by node id
        self._on_write = on_write

    async def write(self, params: Any, user: Any) -> list[Any]:
        """One status per node (OPC 10000-4, 5.11.4)."""
        results = []
        for item in params.NodesToWrite:
            if user.role == UserRole.Admin or item.AttributeId != ua.AttributeIds.Value:
                results += await super().write(ua.WriteParameters(NodesToWrite=[item]), user)
            elif item.NodeId not in self._set_points:
                status = self._aspace.read_attribute_value(item.NodeId, ua.AttributeIds.Value).StatusCode
                missing = status.value == ua.StatusCodes.BadNodeIdUnknown
                results.append(status if missing else ua.StatusCode(ua.StatusCodes.BadUserAccessDenied))
            else:
                results.append(await self._write(*self._set_points[item.NodeId], item.Value.Value))
        return results

    async def _write(self, tag: int, set_point: SimTag, variant: Any) -> Any:
        assert set_point.opcua is not None
        if variant is None or variant.VariantType != _TYPES[set_point.opcua] or variant.is_array:
            return ua.StatusCode(ua.StatusCodes.BadTypeMismatch)
        if not set_point.accepts(float(variant.Value)):
            return ua.StatusCode(ua.StatusCodes.BadOutOfRange)
        await self._on_write(tag, float(variant.Value))
        return ua.StatusCode(0)


def _plain(tag: SimTag) -> bool:
    return tag.opcua == "Double" and not tag.writable


def _certificates(folder: Path) -> list[bytes]:
    """The DER certificates in a folder."""
    certificates = [path.read_bytes() for path in sorted(folder.glob("*.der"))]
    for path in sorted(folder.glob("*.pem")):
        certificates += [c.public_bytes(Encoding.DER) for c in x509.load_pem_x509_certificates(path.read_bytes())]
    return certificates


async def _folder(folders: dict[str, Any], path: str, namespace: int) -> Any:
    if path not in folders:
        parent, _, leaf = path.rpartition("/")
        above = await _folder(folders, parent, namespace)
        folders[path] = await above.add_folder(ua.NodeId(path.replace("/", "."), namespace), f"{namespace}:{leaf}")
    return folders[path]


logging.getLogger("asyncua").setLevel(logging.ERROR)
