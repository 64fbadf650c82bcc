"""The plant behind an OPC UA server: asyncua's, with units, engineering units and ranges to browse."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from asyncua import Server, ua
from asyncua.crypto.cert_gen import setup_self_signed_certificate
from cryptography.x509.oid import ExtendedKeyUsageOID

from simulator.tags import OpcuaType, SimTag

NAMESPACE = "urn:plantlog:simulator:plant"
_APPLICATION_URI = "urn:plantlog:simulator"
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


def node_identifier(tag: SimTag) -> str:
    """The string identifier of a tag's node: its name with dots."""
    return tag.name.replace("/", ".")


class OpcuaServer:
    """Serves the tags that have an OPC UA type."""

    def __init__(self, tags: list[SimTag], pki: Path, secure: bool) -> None:
        self._tags = {i: tag for i, tag in enumerate(tags) if tag.opcua is not None}
        self._pki = pki
        self._secure = secure
        self._nodes: dict[int, Any] = {}
        # writable tags → the value that they have from us
        self._set_points = {i: 0.0 for i, t in self._tags.items() if t.signal.endswith("_sp")}
        self._server: Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Build the address space and listen."""
        server = Server()
        await server.init()
        server.set_endpoint(f"opc.tcp://{host}:{port}/plantlog/simulator")
        server.set_server_name("plantlog simulator")
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
        server.set_security_policy(policies)
        await self._build(server, await server.register_namespace(NAMESPACE))
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Stop serving."""
        if self._server is not None:
            await self._server.stop()
            self._server = None

    def pause(self, silent: bool) -> None:
        """Stop reading from all connections, which stay open, or go on."""
        if self._server is None or self._server.bserver is None:
            return
        for client in list(self._server.bserver.clients):
            transport = client.transport
            if transport is not None and not transport.is_closing():
                (transport.pause_reading if silent else transport.resume_reading)()

    async def write(self, tag: int, value: Any, time_us: int, status: int) -> None:
        """Publish one value with its source timestamp."""
        opcua = self._tags[tag].opcua
        assert opcua is not None
        assert self._server is not None
        if tag in self._set_points:
            self._set_points[tag] = float(value)
        time = _EPOCH + timedelta(microseconds=time_us)
        variant = ua.Variant(_CASTS[opcua](value), _TYPES[opcua])
        data = ua.DataValue(variant, ua.StatusCode(status), SourceTimestamp=time, ServerTimestamp=time)
        await self._server.write_attribute_value(self._nodes[tag], data)

    async def written(self) -> list[tuple[int, float, int, int]]:
        """(tag, value, time µs, status) of set points that a client has written since we did."""
        found = []
        for i, ours in self._set_points.items():
            assert self._server is not None
            data = await self._server.get_node(self._nodes[i]).read_data_value(raise_on_bad_status=False)
            value = float(data.Value.Value)
            if value != ours:
                self._set_points[i] = value
                stamp = data.SourceTimestamp or data.ServerTimestamp or datetime.now(UTC)
                time = (stamp - _EPOCH) // timedelta(microseconds=1)
                found.append((i, value, time, 0 if data.StatusCode is None else data.StatusCode.value))
        return found

    async def _build(self, server: Server, namespace: int) -> None:
        folders: dict[str, Any] = {
            "": await server.nodes.objects.add_folder(ua.NodeId("Plant", namespace), f"{namespace}:Plant")
        }
        rich = len(self._tags) <= 1000  # thousands of load channels need no properties
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
            if rich and tag.unit:
                await node.add_property(0, "EngineeringUnits", ua.EUInformation(DisplayName=ua.LocalizedText(tag.unit)))
            if rich and tag.lo is not None and tag.hi is not None:
                await node.add_property(0, "EURange", ua.Range(Low=tag.lo, High=tag.hi))
            if i in self._set_points:
                await node.set_writable()
            self._nodes[i] = node.nodeid
            if count % 500 == 0:
                await asyncio.sleep(0)


async def _folder(folders: dict[str, Any], path: str, namespace: int) -> Any:
    if path not in folders:
        parent, _, leaf = path.rpartition("/")
        above = await _folder(folders, parent, namespace)
        folders[path] = await above.add_folder(ua.NodeId(path.replace("/", "."), namespace), f"{namespace}:{leaf}")
    return folders[path]


logging.getLogger("asyncua").setLevel(logging.ERROR)
